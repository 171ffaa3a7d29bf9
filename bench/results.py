"""Train the recipes of `regard/recipes/results` with several seeds, measure their test data once, and keep the records.

    python -m bench.results NAME... --data DIR --seeds 1,2,3 --jobs 4 --out OUT      train and measure; all without NAME
    python -m bench.results --merge OUT      add the records of OUT to the package; write docs/results.md and README.md

DIR has a folder for each data set, as `regard data NAME --to DIR/NAME` writes it; with `--from FOLDER` that is done
first. Each recipe and seed is one process. Its run is in `--runs` (by default runs/results), where a later call
continues a run that was stopped. OUT gets one record, one log and the translations of the test data for each; all are
small.

Rules. Everything is chosen on validation data. A recipe and seed is measured on test data once: the record has the
checksum of the recipe and of all settings that followed from it, and a second measurement of the same is refused. If
the code has changed so that it must be repeated, `--again REASON` measures again, and the record says why. Merging
keeps every measurement.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from math import isfinite
from pathlib import Path
from typing import Any

from bench.readme import write_blocks
from regard.atomic import write_text
from regard.errors import RegardError
from regard.recipe_files import RESULTS, read_recipe, result_names
from regard.runs.results import ResultRecipe, read_result_recipe
from regard.runs.results_table import results_page, results_summary

Check = Callable[[str], None]

ROOT = Path(__file__).parents[1]
KEPT = ROOT / "regard" / "recipes" / RESULTS
PAGE = ROOT / "docs" / "results.md"
MARK = "# What the runs in {name}.json come to; `python -m bench.results --merge` writes it."
WORKER = [sys.executable, "-u", "-m", "bench.results", "--one"]  # then the name and the seed
GRACE = 60  # seconds in which a run that is stopped saves
BY_SPEED = ("steps", "validate_every", "checkpoint_every", "patience", "schedule")  # with train.minutes, trials decide


@dataclass(frozen=True)
class Place:
    """Where data, runs and records are."""

    data: Path
    runs: Path
    out: Path


# --- one recipe with one seed ----------------------------------------------------------------------------------------


def perform(name: str, seed: int, place: Place, jobs: int, again: str) -> None:
    """Train a recipe with one seed, measure it, and write the record."""
    import torch

    import regard
    from regard.models.count import cost
    from regard.models.recipe import build_empty
    from regard.training.result import read_result
    from regard.training.session import machine

    result = read_result_recipe(name)
    device = result.config.device
    if device == "cuda" and not torch.cuda.is_available():
        raise RegardError(f"{name}: is meant for {result.config.hardware}, and this machine has no CUDA device")
    start = trained(read_result_recipe(result.config.start), seed, place, None) if result.config.start else None
    check = None if again else partial(refuse_again, result, seed, others=records(place.out))
    run = trained(result, seed, place, start, check)
    folder, spent = run.folder, [spending(each.folder) for each in (run, start) if each is not None]
    print("measuring", flush=True)
    finished = read_result(run.folder)
    assert finished is not None
    valid = dict(finished.evaluation)
    resolved = checksum_of(run.config, place.data)
    stem = f"{name}-{seed}-{resolved}"
    test, signatures = measure(run, result, place, place.out / f"{stem}.txt")
    if wrong := [key for key, value in (*valid.items(), *test.items()) if not isfinite(value)]:
        raise RegardError(f"{name}, seed {seed}: not finite, so nothing is recorded: {', '.join(wrong)}")
    record = {
        "name": name,
        "seed": seed,
        "recipe": result.checksum,
        "resolved": resolved,
        "valid": valid,
        "test": test,
        "signatures": signatures,
        "seconds": round(sum(each["wall"] for each in spent), 1),
        "flops": None if any(each["flops"] is None for each in spent) else sum(each["flops"] for each in spent),
        "updates": spent[0]["step"],
        "parameters": cost(build_empty(run.model_config)).parameters,
        "machine": machine(torch.device(device)),
        "side_by_side": jobs,
        "torch": torch.__version__,
        "regard": regard.__version__,
        "date": time.strftime("%Y-%m-%d"),
        "command": " ".join(("regard train", f"{RESULTS}/{name}", *result.config.changes(seed)))
        + (" --init-from START" if start else ""),
        "again": again,
        "folder": folder.name,
    }
    number = len(list(place.out.glob(f"{stem}*.json")))
    write_text(place.out / (f"{stem}-{number}.json" if number else f"{stem}.json"), json.dumps(record, indent=2) + "\n")
    print(f"done: {json.dumps(test or valid)}", flush=True)


def refuse_again(result: ResultRecipe, seed: int, resolved: str, *, others: Sequence[Mapping[str, Any]]) -> None:
    """Raise an error if the recipe was measured with this seed and these settings before."""
    own = [record for record in others if record["name"] == result.name]
    for record in (*result.runs, *own):
        if (record["seed"], record["resolved"]) == (seed, resolved):
            raise RegardError(f"{result.name}, seed {seed}: was measured on {record['date']}; nothing was done")


def trained(result: ResultRecipe, seed: int, place: Place, start: Any, check: Check | None = None) -> Any:
    """Train a recipe, continue its run, or open it if it is finished; first `check` the checksum of its settings."""
    from rich.console import Console

    import regard
    from regard.runs.ownership import take_folder
    from regard.training.planning import plan_run
    from regard.training.ranks import join_ranks
    from regard.training.request import RunRequest
    from regard.training.result import read_result
    from regard.training.settings import left_as_found
    from regard.training.start import PlannedRun, begin

    begun = time.monotonic()
    recipe, device = f"{RESULTS}/{result.name}", result.config.device
    changes = (*with_data(read_recipe(recipe)["task"], place.data), *result.config.changes(seed))
    with join_ranks(device) as ranks, left_as_found(ranks.device):
        plan = plan_run(RunRequest(recipe, changes, init_from=start), ranks)
        resolved = checksum_of(plan.config, place.data)
        if check is not None:
            check(resolved)
        folder = place.runs / f"{result.name}-{seed}-{resolved}"
        if read_result(folder) is not None:
            return regard.open_run(folder)
        if not (folder / "recipe.toml").exists():
            with timed(folder, begun), take_folder(folder, overwrite=False):
                return begin(PlannedRun(plan, folder, ranks), Console())
    with timed(folder, begun):
        return regard.resume(folder, device=device)


def with_data(task: Mapping[str, Any], data: Path) -> Iterator[str]:
    """Yield changes of the settings that name files: data/NAME/FILE is in the folder of the data."""
    for key, value in task.items():
        names = value if isinstance(value, list) else [value]
        if names and all(isinstance(name, str) and name.startswith("data/") for name in names):
            moved = [moved_name(name, data) for name in names]
            yield f"task.{key}={json.dumps(moved if isinstance(value, list) else moved[0])}"


def moved_name(name: str, data: Path) -> str:
    return str(data.absolute() / name.removeprefix("data/"))


def checksum_of(config: Any, data: Path) -> str:
    """Return the checksum of all settings of a run but the seed, the fold, the threads and the folder of the data."""
    from regard.config import to_table

    table = json.loads(json.dumps(to_table(config)).replace(str(data.absolute()), "data"))
    left_out = {"seed", "threads", *(BY_SPEED if "minutes" in table["train"] else ())}
    table["task"].pop("fold", None)
    table["train"] = {key: value for key, value in table["train"].items() if key not in left_out}
    return sha256(json.dumps(table, sort_keys=True).encode()).hexdigest()[:16]


def measure(run: Any, result: ResultRecipe, place: Place, made: Path) -> tuple[dict[str, float], dict[str, str]]:
    """Measure a run on its test data; translations are kept."""
    from regard.config import kind_of
    from regard.data.lines import read_lines
    from regard.tasks.metric import tokenised_scores, translation_scores, translation_signatures

    names = [Path(moved_name(name, place.data)) for name in result.config.test]
    if not names:
        return {}, {}
    if kind_of(type(run.config.task)) != "translation":
        return dict(run.evaluate(*names, device=result.config.device)), {}
    sources, wanted = (list(read_lines(path)) for path in names)
    translated = run.load(result.config.device).translate(sources)
    write_text(made, "".join(f"{line}\n" for line in translated))
    found, tokenised = translation_scores(translated, wanted), tokenised_scores(translated, wanted)
    scores = found | {name: score for name, (score, _) in tokenised.items()}
    return scores, translation_signatures(wanted) | {name: text for name, (_, text) in tokenised.items()}


# --- time and cost ---------------------------------------------------------------------------------------------------


@contextmanager
def timed(folder: Path, begun: float) -> Iterator[None]:
    """Add the wall time since `begun`, at the end of the block, to that of earlier calls."""
    path = folder.with_name(f"{folder.name}.time.json")
    before = json.loads(path.read_text())["wall"] if path.exists() else 0.0
    try:
        yield
    finally:
        write_text(path, json.dumps({"wall": before + time.monotonic() - begun}))


def spending(folder: Path) -> dict[str, Any]:
    """Return the wall time, the FLOPs and the updates of a run."""
    from regard.runs.records import read_metrics

    last = read_metrics(folder)[-1]
    wall = json.loads(folder.with_name(f"{folder.name}.time.json").read_text())["wall"]
    return {"wall": wall, "flops": last.get("flops"), "step": last["step"]}


# --- all of them -----------------------------------------------------------------------------------------------------


def perform_all(
    names: Sequence[str], seeds: Sequence[int], place: Place, jobs: int, minutes: float | None, again: str
) -> int:
    """Run a process for each recipe and seed, some side by side; return how many failed or were stopped."""
    waiting = [(name, seed) for seed in seeds for name in names]
    running: dict[tuple[str, int], subprocess.Popen[bytes]] = {}
    threads = max((os.cpu_count() or 1) // jobs, 1)
    begin, failed = time.monotonic(), 0
    deadline = None if minutes is None else begin + 60 * minutes - GRACE
    say(f"{len(waiting)} runs, {jobs} side by side, {threads} threads each")
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                one = waiting.pop(0)
                running[one] = begin_process(one, place, jobs, threads, again)
                say(f"{one[0]} {one[1]}: begins")
            if deadline is not None and time.monotonic() > deadline:
                say(f"the time is over; {len(waiting)} runs were not started")
                failed += len(waiting)
                break
            time.sleep(0.2)
            failed += report_ended(running, place, begin)
    finally:
        for process in running.values():
            process.send_signal(signal.SIGINT)  # it saves, and a later call continues it
        for one, process in running.items():
            try:
                process.wait(GRACE)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            say(f"{one[0]} {one[1]}: stopped; the same command continues it")
            failed += 1
    return failed


def begin_process(one: tuple[str, int], place: Place, jobs: int, threads: int, again: str) -> subprocess.Popen[bytes]:
    name, seed = one
    where = ["--data", place.data, "--runs", place.runs, "--out", place.out]
    options = ["--jobs", jobs, *where, *(["--again", again] if again else [])]
    command = [*WORKER, name, str(seed), *map(str, options)]
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": str(threads),
        "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path[1:]]),
    }
    with (place.out / f"{name}-{seed}.log").open("ab") as log:
        return subprocess.Popen(command, stdout=log, stderr=log, env=environment)


def report_ended(running: dict[tuple[str, int], subprocess.Popen[bytes]], place: Place, begin: float) -> int:
    """Print the last line of each run that has ended; return how many failed."""
    failed = 0
    for one in [one for one, process in running.items() if process.poll() is not None]:
        code = running.pop(one).returncode
        lines = (place.out / f"{one[0]}-{one[1]}.log").read_text(errors="replace").split("\n")
        last = next((line for line in reversed(lines) if line.strip()), "")
        say(f"{one[0]} {one[1]}: {last} [{time.monotonic() - begin:.0f} s]" + (f" (exit code {code})" if code else ""))
        failed += code != 0
    return failed


def say(text: str) -> None:
    print(text, flush=True)


# --- records ---------------------------------------------------------------------------------------------------------


def records(folder: Path) -> list[dict[str, Any]]:
    """Read all records of a folder."""
    found = [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]
    return [record for record in found if isinstance(record, dict) and "resolved" in record]


def merge_records(folder: Path, kept: Path = KEPT) -> list[str]:
    """Add records to those of the package; return the names of the recipes that have new ones."""
    changed = []
    for record in records(folder):
        path = kept / f"{record.pop('name')}.json"
        known = json.loads(path.read_text()) if path.exists() else []
        if record not in known:
            write_text(path, json.dumps([*known, record], indent=2) + "\n")
            changed.append(path.stem)
    return list(dict.fromkeys(changed))


def write_expected(name: str, kept: Path = KEPT) -> None:
    """Write what the runs come to at the end of a recipe."""
    import tomli_w

    from regard.config import to_table

    path, mark, expected = kept / f"{name}.toml", MARK.format(name=name), read_result_recipe(name).expected()
    own = path.read_text(encoding="utf-8").split(mark)[0].rstrip() + "\n"
    if expected is not None:
        own += f"\n{mark}\n{tomli_w.dumps({'result': {'expected': to_table(expected)}})}"
    write_text(path, own)


def trained_for(name: str) -> Sequence[str]:
    """Return the results to train for a result: itself, or those that it is the mean of."""
    return read_result_recipe(name).config.mean_of or [name]


def main() -> int:
    parser = argparse.ArgumentParser(description="Train and measure the recipes with goals, and keep the records.")
    parser.add_argument("names", nargs="*", help="names of results; all by default")
    parser.add_argument("--data", type=Path, default=Path("data"), help="folder with a folder for each data set")
    parser.add_argument("--from", dest="source", type=Path, help="first make the data from the files in this folder")
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--jobs", type=int, default=1, help="runs side by side")
    parser.add_argument("--out", type=Path, default=Path("build/results"), help="folder for records and logs")
    parser.add_argument("--runs", type=Path, default=Path("runs/results"), help="folder for the runs")
    parser.add_argument("--minutes", type=float, help="stop after this time; the same command continues")
    parser.add_argument("--again", default="", metavar="REASON", help="measure again what was measured before")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)  # the names are one name and its seed
    parser.add_argument("--merge", type=Path, metavar="OUT", help="add the records of a folder to the package")
    given = parser.parse_args()
    if given.merge is not None:
        for name in merge_records(given.merge):
            say(f"new measurements: {name}")
        for name in result_names():
            write_expected(name)
        write_text(PAGE, results_page())
        write_blocks(results=results_summary())
        return 0
    place = Place(given.data, given.runs, given.out)
    if given.one:
        perform(given.names[0], int(given.names[1]), place, given.jobs, given.again)
        return 0
    chosen = given.names or [name for name in result_names() if read_result_recipe(name).config.goals]
    names = list(dict.fromkeys(each for name in chosen for each in trained_for(name)))
    if given.source is not None:
        from regard.data.fetch import fetch

        for data in sorted({each for name in names for each in read_result_recipe(name).config.data}):
            fetch(data, place.data / data, given.source, lambda *done: None)
    for folder in (place.runs, place.out):
        folder.mkdir(parents=True, exist_ok=True)
    seeds = [int(seed) for seed in given.seeds.split(",")]
    return min(perform_all(names, seeds, place, given.jobs, given.minutes, given.again), 1)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except RegardError as error:
        print(f"bench.results: {error}", flush=True)
        sys.exit(getattr(error, "exit_code", 2))
    except KeyboardInterrupt:
        sys.exit(130)
