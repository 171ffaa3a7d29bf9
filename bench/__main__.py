"""Run benchmarks: `python -m bench [CASE ...] [--device cuda] [--minutes 20]`; `--render` writes docs/benchmarks.md."""

import argparse
import json
import multiprocessing
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench.case import Case
from bench.cases import all_cases, find_cases
from bench.machine import busy_cores, describe_machine, measure_ceilings
from bench.recurrences_page import RECURRENCES, read_cells, read_comparisons, render_recurrences
from bench.report import MEASURED, PAGE, case_lines, machine_lines, read_results, render
from bench.runner import Together, run_case, run_together


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m bench", description="Speed and memory, against peers in one run.")
    parser.add_argument(
        "cases",
        nargs="*",
        metavar="CASE",
        help="cases by a part of their names; default: all that take less than a minute",
    )
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="threads on the CPU")
    parser.add_argument("--minutes", type=float, default=60.0, help="start no case after this time")
    parser.add_argument("--seconds", type=float, help="time of each case; default: its own")
    parser.add_argument("--peers", nargs="*", help="compare with these peers only, by a part of their names")
    parser.add_argument(
        "--together",
        type=float,
        metavar="SECONDS",
        help="let the contestants of all cases get ready at once, within this time; only timing is one by one",
    )
    parser.add_argument(
        "--at-once", type=int, default=1000, metavar="COUNT", help="contestants that get ready at a time"
    )
    parser.add_argument("--sign", type=Path, metavar="FILE", help="with --together: a file that exists during timing")
    parser.add_argument("--profile", action="store_true", help="also profile an update of each contestant")
    parser.add_argument("--out", type=Path, help="write this file, or update its cases; default: in bench/measured")
    parser.add_argument("--list", action="store_true", help="list the cases of the device")
    parser.add_argument("--render", action="store_true", help="only write the pages in docs from bench/measured")
    return parser.parse_args()


def main() -> None:
    """Run what the command line asks for; results are written as soon as a case is done."""
    asked = arguments()
    if asked.render:
        PAGE.write_text(render(read_results()), encoding="utf-8")
        RECURRENCES.write_text(render_recurrences(read_results(), read_comparisons(), read_cells()), encoding="utf-8")
        return
    cases = find_cases(asked.device, asked.cases)
    if asked.list:
        for case in cases:
            print(f"{case.name:40}{case.about}")
        return
    cases = [chosen(case, asked.seconds, asked.peers) for case in cases]
    result: dict[str, Any] = {"date": datetime.now(UTC).strftime("%Y-%m-%d"), "cases": {}}

    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as other:  # no CUDA here
        result["machine"] = other.submit(describe_machine, asked.device, asked.threads).result()

        def ceilings() -> dict[str, float]:
            found: dict[str, float] = other.submit(measure_ceilings, asked.device, asked.threads).result()
            result["ceilings"] = found
            print(*machine_lines({**result, "cases": {}}), sep="\n", flush=True)
            return found

        done = one_by_one(cases, asked, ceilings)
        if asked.together is not None:
            how = Together(asked.together, asked.at_once, asked.sign, asked.profile)
            done = run_together(cases, asked.device, asked.threads, ceilings, how)
        for case, found in done:
            keep(asked, result, case, {key: result["machine"][key] for key in ("threads", "load")} | found)


def keep(asked: argparse.Namespace, result: dict[str, Any], case: Case, found: dict[str, Any]) -> None:
    """Write what was found out about a case into the file of the machine, and show it."""
    name = "cpu" if asked.device == "cpu" else result["machine"]["name"].lower().replace(" ", "-")
    path = asked.out or MEASURED / f"{name}.json"
    old = json.loads(path.read_text(encoding="utf-8"))["cases"] if path.exists() else {}
    write(path, {**result, "cases": ordered(old | {case.name: found}, asked.device)})
    print(*case_lines(case.name, found), sep="\n", flush=True)


def chosen(case: Case, seconds: float | None, peers: list[str] | None) -> Case:
    """Return a case with the time and the peers that are asked for."""
    names = [name for name in case.peers() if peers is None or any(part in name for part in peers)]
    contestants = {name: make for name, make in case.contestants.items() if name in (*case.ours(), *names)}
    return replace(case, contestants=contestants, seconds=case.seconds if seconds is None else seconds)


def one_by_one(
    cases: list[Case], asked: argparse.Namespace, ceilings: Callable[[], dict[str, float]]
) -> Iterator[tuple[Case, dict[str, Any]]]:
    """Yield the results of cases, as long as there is time for more."""
    begun, rates = time.monotonic(), ceilings()
    for case in cases:
        if time.monotonic() - begun > 60 * asked.minutes:
            print(f"{case.name}: not started; {asked.minutes:g} minutes are over", flush=True)
            continue
        load = busy_cores()
        yield case, run_case(case, asked.device, asked.threads, rates, asked.profile) | {"load": load}


def ordered(found: dict[str, Any], device: str) -> dict[str, Any]:
    """Return results in the order of the cases; those of cases that are gone are dropped."""
    return {case.name: found[case.name] for case in all_cases(device) if case.name in found}


def write(path: Path, result: dict[str, Any]) -> None:
    """Replace a file at once, so that it is whole even if the time is up."""
    part = path.with_suffix(".part")
    part.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    part.replace(path)


if __name__ == "__main__":
    main()
