"""Run benchmarks: `python -m bench [CASE ...] [--device cuda] [--minutes 20]`; `--render` writes docs/benchmarks.md."""

import argparse
import json
import multiprocessing
import os
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench.cases import all_cases, find_cases
from bench.machine import describe_machine, measure_ceilings
from bench.report import MEASURED, PAGE, case_lines, machine_lines, read_results, render
from bench.runner import run_case


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
    parser.add_argument("--out", type=Path, help="write this file, or update its cases; default: in bench/measured")
    parser.add_argument("--list", action="store_true", help="list the cases of the device")
    parser.add_argument("--render", action="store_true", help="only write docs/benchmarks.md from bench/measured")
    return parser.parse_args()


def main() -> None:
    """Run what the command line asks for; results are written as soon as a case is done."""
    asked = arguments()
    if asked.render:
        PAGE.write_text(render(read_results()), encoding="utf-8")
        return
    cases = find_cases(asked.device, asked.cases)
    if asked.list:
        for case in cases:
            print(f"{case.name:40}{case.about}")
        return
    begun = time.monotonic()
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as other:  # no CUDA in this process
        machine = other.submit(describe_machine, asked.device, asked.threads).result()
        ceilings = other.submit(measure_ceilings, asked.device, asked.threads).result()
    name = "cpu" if asked.device == "cpu" else machine["name"].lower().replace(" ", "-")
    path = asked.out or MEASURED / f"{name}.json"
    old: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))["cases"] if path.exists() else {}
    result = {"date": datetime.now(UTC).strftime("%Y-%m-%d"), "machine": machine, "ceilings": ceilings, "cases": {}}
    print(*machine_lines(result), sep="\n", flush=True)
    for case in cases:
        if time.monotonic() - begun > 60 * asked.minutes:
            print(f"{case.name}: not started; {asked.minutes:g} minutes are over", flush=True)
            continue
        chosen = case if asked.seconds is None else replace(case, seconds=asked.seconds)
        old[case.name] = run_case(chosen, asked.device, asked.threads, ceilings)
        write(path, {**result, "cases": ordered(old, asked.device)})
        print(*case_lines(case.name, old[case.name]), sep="\n", flush=True)


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
