"""The page docs/benchmarks.md, rendered from the files in bench/measured: nothing in it is typed by hand."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from bench.profile import profile_lines

MEASURED = Path(__file__).parent / "measured"
PAGE = Path(__file__).parents[1] / "docs" / "benchmarks.md"
Result = Mapping[str, Any]
BUSY = 0.5  # load of other programs before the first case, above which the page says so

INTRODUCTION = """# Benchmarks

Rendered by `python -m bench --render` from the files in `bench/measured`, which `make bench` and
`python -m bench --device cuda` write. [performance.md](performance.md) explains the figures: the floor of each case,
the gap to it, and what was tried.

All contestants of a case do equal work: facts such as the tokens that are written, sums of outputs and gradients, or
the number of parameters are compared before anything is timed. Each runs in a process of its own, and they take turns.
A *ratio* is our time over the peer's for the same amount of useful work (medians; below 1 we are faster), with the
quartiles over rounds. *First* is the time until the first run is done, with building, compiling and capturing, but
without importing. Memory is the peak of what is allocated on an accelerator, or of the resident process on a CPU.
*Of the ceiling* compares our time with the floor of the case: its operations at the rate of the machine's largest
product, or its bytes at that of a copy. Where there is a profile, it shows how an update spends its time: on a GPU by
kernels, and *idle* is the time between them; on a CPU by operators, and the rest is Python and the profiler itself.
"""


def render(results: Mapping[str, Result]) -> str:
    """Return the page."""
    return "\n".join([INTRODUCTION, *(line for result in results.values() for line in machine_lines(result))])


def read_results() -> dict[str, Result]:
    """Read all files of results, by the name of the machine."""
    return {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(MEASURED.glob("*.json"))}


def machine_lines(result: Result) -> Iterator[str]:
    """Yield the section of one machine."""
    machine, ceilings = result["machine"], result["ceilings"]
    cores = f", {machine['cores']} cores" if machine["device"] == "cpu" else ""
    packages = ", ".join(f"{name} {version}" for name, version in machine["packages"].items())
    yield f"## {machine['name']}{cores}\n"
    yield f"{result['date']}. Python {machine['python']}, {packages}.\n"
    yield (
        f"Ceilings: {ceilings['operations_per_s'] / 1e12:.3g} TFLOP/s in a product, "
        f"{ceilings['bytes_per_s'] / 1e9:.3g} GB/s in a copy.\n"
    )
    yield from summary_lines(result["cases"])
    for name, case in result["cases"].items():
        yield from case_lines(name, case)


def summary_lines(cases: Mapping[str, Result]) -> Iterator[str]:
    """Yield the table of all goals."""
    rows = [(*row, is_busy(case)) for name, case in cases.items() for row in goals_of(name, case)]
    if not rows:
        return
    yield "| case | | measured | goal | |"
    yield "|---|---|---|---|---|"
    for name, what, measured, goal, met, busy in rows:
        verdict = f"{'met' if met else '**missed**'}{', on a busy machine' if busy else ''}"
        yield f"| {name} | {what} | {measured} | {goal} | {verdict} |"
    yield ""


def goals_of(name: str, case: Result) -> Iterator[tuple[str, str, str, str, bool]]:
    """Yield the goals of a case: what is compared, what was measured, the goal, and whether it is met."""
    for each in case.get("ratios", ()):
        if each["goal"] is not None:
            what = f"{each['ours']} over {each['peer']}"
            yield name, what, f"{each['ratio']:.2f}", f"{each['goal']:.2f}", each["ratio"] <= each["goal"]
    if case.get("limit_ms") is not None and case["contestants"]:
        ours = next(iter(case["contestants"].values()))
        if "median_ms" in ours:
            limit = case["limit_ms"]
            yield name, "time", short_time(ours["median_ms"]), short_time(limit), ours["median_ms"] <= limit


def is_busy(case: Result) -> bool:
    """Return whether other programs took time from a case."""
    return bool(case["load"] > BUSY)


def conditions(case: Result) -> str:
    """Return when and how a case was measured."""
    threads = f"{case['threads']} thread{'' if case['threads'] == 1 else 's'}"
    busy = f"; the machine was busy with other work, load {case['load']:.1f}" if is_busy(case) else ""
    together = "; contestants got ready at the same time, which lengthens the first run" if case.get("together") else ""
    return f"{case['date']}, {threads}{busy}{together}"


def case_lines(name: str, case: Result) -> Iterator[str]:
    """Yield the section of one case."""
    yield f"### {name}\n"
    yield f"{case['about']} ({conditions(case)})\n"
    if case["wrong"]:
        yield f"Not timed, since the contestants do not agree: {'; '.join(case['wrong'])}.\n"
        return
    yield f"| | time per {case['unit']} | {case['unit']}/s | first | memory | ratio |"
    yield "|---|---|---|---|---|---|"
    ratios = {(each["ours"], each["peer"]): each for each in case["ratios"]}
    ours = list(dict.fromkeys(each["ours"] for each in case["ratios"]))
    for who, timing in case["contestants"].items():
        if "absent" in timing:
            yield f"| {who} | {timing['absent']} | | | | |"
            continue
        low, high = (short_time(value) for value in timing["spread_ms"])
        compared = "; ".join(show_ratio(ratios[mine, who], len(ours)) for mine in ours if (mine, who) in ratios)
        yield (
            f"| {who} | {short_time(timing['median_ms'])} ({low} to {high}) | {short(1000 / timing['median_ms'])} "
            f"| {timing['first_s']:.1f} s | {short_bytes(1e6 * timing['memory_mb'])} | {compared} |"
        )
    yield ""
    if case.get("floor"):
        yield floor_line(case) + "\n"
    yield from profile_lines(case["contestants"])


def floor_line(case: Result) -> str:
    """Return how far ours is from the floor."""
    floor = case["floor"]
    best = next((each["median_ms"] for each in case["contestants"].values() if "median_ms" in each), None)
    parts = []
    if floor["operations"]:
        parts.append(f"{short(floor['operations'])} operations ({short_time(floor['compute_ms'])})")
    if floor["bytes"]:
        parts.append(f"{short_bytes(floor['bytes'])} read or written ({short_time(floor['memory_ms'])})")
    reached = "" if best is None else f"; ours reaches {100 * floor['ms'] / best:.0f} % of the ceiling"
    return f"Floor per {case['unit']}: {', '.join(parts)}{reached}."


def show_ratio(each: Result, several: int) -> str:
    """Return a ratio with its quartiles; with the contestant of ours if there are several."""
    of = f"{each['ours'].removeprefix('regard, ')} " if several > 1 else ""
    return f"{of}{each['ratio']:.2f} ({each['spread'][0]:.2f} to {each['spread'][1]:.2f})"


def short(value: float) -> str:
    """Shorten a number: 516k."""
    for unit in ("", "k", "M", "G", "T"):
        if abs(value) < 999.5:
            return f"{value:.3g}{unit}"
        value /= 1000
    return f"{value:.3g}P"


def short_bytes(value: float) -> str:
    """Shorten a number of bytes: 516 MB."""
    text = short(value)
    return f"{text} B" if text[-1].isdigit() else f"{text[:-1]} {text[-1]}B"


def short_time(milliseconds: float) -> str:
    """Shorten a time: 12.3 ms."""
    for unit, scale in (("s", 1000.0), ("ms", 1.0), ("µs", 1e-3)):
        if milliseconds >= scale:
            return f"{milliseconds / scale:.3g} {unit}"
    return f"{milliseconds * 1e6:.3g} ns"
