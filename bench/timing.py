"""Time calls against each other: they take turns, so that all run under the same load, and medians are compared."""

import multiprocessing
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection

import torch


@dataclass(frozen=True)
class Row:
    """One comparison: what was run, against what, and the goal for the ratio."""

    bench: str
    what: str
    against: str
    ours_ms: float
    theirs_ms: float
    goal: float

    @property
    def ratio(self) -> float:
        """Ours over theirs: below 1 is faster."""
        return self.ours_ms / self.theirs_ms


def milliseconds(calls: dict[str, Callable[[], object]], device: str, repeats: int = 15) -> dict[str, float]:
    """Return the median time of each call."""

    def once(call: Callable[[], object]) -> float:
        begin = time.perf_counter()
        call()
        if device == "cuda":
            torch.cuda.synchronize()
        return 1000 * (time.perf_counter() - begin)

    for call in calls.values():
        once(call)
        once(call)
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(repeats):
        for name, call in calls.items():
            times[name].append(once(call))
    return {name: statistics.median(values) for name, values in times.items()}


Works = dict[str, Callable[[], object]]


def milliseconds_apart(makers: dict[str, Callable[[], Works]], rounds: int) -> dict[str, dict[str, float]]:
    """Return the median time of each work of each maker, with every maker in its own process.

    The threads of some libraries spin for a while after each call and slow others down. So every turn begins with a
    call that is not timed.
    """
    context = multiprocessing.get_context("spawn")
    pipes = {}
    for name, make in makers.items():
        pipes[name], theirs = context.Pipe()
        context.Process(target=_serve, args=(make, theirs), daemon=True).start()
        theirs.close()  # so that a process that fails closes the pipe, and `recv` does not wait forever
    works = {name: pipe.recv() for name, pipe in pipes.items()}
    times: dict[str, dict[str, list[float]]] = {name: {work: [] for work in works[name]} for name in works}
    for _ in range(rounds):
        for work in next(iter(works.values())):
            for name, pipe in pipes.items():
                pipe.send(work)
                times[name][work] += pipe.recv()
    for pipe in pipes.values():
        pipe.send(None)
    return {name: {work: statistics.median(values) for work, values in found.items()} for name, found in times.items()}


def _serve(make: Callable[[], Works], pipe: Connection) -> None:
    works = make()
    pipe.send(list(works))
    for name in iter(pipe.recv, None):
        work = works[name]
        work()
        times = []
        for _ in range(3):
            begin = time.perf_counter()
            work()
            times.append(1000 * (time.perf_counter() - begin))
        pipe.send(times)


def show(rows: list[Row]) -> None:
    """Print a table."""
    print(f"{'bench':12}{'what':34}{'against':26}{'ms':>9}{'theirs':>9}{'ratio':>7}{'goal':>7}")
    for row in rows:
        print(
            f"{row.bench:12}{row.what:34}{row.against:26}{row.ours_ms:9.2f}{row.theirs_ms:9.2f}"
            f"{row.ratio:7.2f}{row.goal:7.2f}{'' if row.ratio <= row.goal else '  missed'}"
        )
