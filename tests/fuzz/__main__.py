"""`python -m tests.fuzz`: try random commands for some minutes; print each failure, and how to repeat it."""

import argparse
import random
import sys
import time
from multiprocessing.connection import wait
from typing import Any

from .worker import FOLDER, Worker


def main() -> int:
    """Fuzz; return 1 if something failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--seed", type=int, help="repeat this case")
    parser.add_argument("--first", type=int, default=random.randrange(10**9), help="the first seed")
    parser.add_argument("--verb", default="", help="only verbs that begin with this")
    given = parser.parse_args()
    FOLDER.mkdir(parents=True, exist_ok=True)
    seeds = iter([given.seed] if given.seed is not None else range(given.first, 10**18))
    print(f"first seed {given.first if given.seed is None else given.seed}", flush=True)
    count, failures = _fuzz(seeds, given, time.monotonic() + 60 * given.minutes)
    print(f"{count} cases, {failures} failures", flush=True)
    return 1 if failures else 0


def _fuzz(seeds: Any, given: argparse.Namespace, end: float) -> tuple[int, int]:
    workers = [Worker(number, given.verb) for number in range(given.workers)]
    begun, count, failures, rules = time.monotonic(), 0, 0, dict[str, int]()
    try:
        while workers:
            for one in list(workers):
                if one.seed is None and one.ready:
                    seed = next(seeds, None) if time.monotonic() < end else None
                    if seed is None:
                        workers.remove(one)
                        one.stop()
                    else:
                        one.begin(seed)
            wait([one.pipe for one in workers], 1.0)
            for index, one in enumerate(workers):
                for seed, rule, details in one.results():
                    count += 1
                    if count % 100 == 0:
                        print(
                            f"{count} cases, {failures} failures, {(time.monotonic() - begun) / 60:.0f} min", flush=True
                        )
                    if rule is not None:
                        failures += 1
                        rules[rule] = rules.get(rule, 0) + 1
                        _report(seed, rule, details, given.verb)
                if one.dead:
                    workers[index] = Worker(one.number, given.verb)
    finally:
        for one in workers:
            one.stop()
    return count, failures


def _report(seed: int, rule: str, details: str, verb: str) -> None:
    repeat = f"python -m tests.fuzz --seed {seed}" + (f" --verb {verb!r}" if verb else "")
    (FOLDER / f"{seed}.txt").write_text(f"{repeat}\n\n{details}", encoding="utf-8", errors="backslashreplace")
    command = next((line for line in details.splitlines() if line.startswith("$ ")), "")
    print(f"FAILED {seed}: {rule}\n  {command[:300]}\n  repeat: {repeat}; see {FOLDER / f'{seed}.txt'}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
