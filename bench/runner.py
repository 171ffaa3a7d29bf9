"""Run a case: every contestant in a process of its own; they are checked against each other, then take turns.

In one process, the threads of some libraries would slow down the others, memory could not be told apart, and a failure
would end everything. Every turn begins with a run that is not timed. A ratio is that of medians; its spread is over
rounds, in each of which all contestants had a turn under the same load.
"""

import multiprocessing
import os
import statistics
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from multiprocessing.connection import Connection
from multiprocessing.connection import wait as wait_for_any
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from bench.case import Case, Contestant, Prepared, Setting, disagreements
from bench.machine import peak_megabytes, release, wait
from bench.profile import profile_updates

TURN_SECONDS = 0.3  # that the timed runs of a turn take together, at least one
MOST_RUNS = 50  # of a turn
LEAST_ROUNDS, MOST_ROUNDS = 3, 25
LONGEST_REASON = 120  # characters of the reason why a contestant is absent
PATIENCE = 900.0  # seconds for a contestant to get ready
SETTLING = 1.5  # seconds in which other work can stop before anything is timed


@dataclass
class Timing:
    """What is known of a contestant: milliseconds for a unit of work, in each round."""

    first_s: float = 0.0  # to get ready and run once, without importing
    amount: float = 1.0
    facts: Mapping[str, float] = field(default_factory=dict)
    rounds: list[float] = field(default_factory=list)
    memory_mb: float = 0.0
    profile: dict[str, Any] | None = None
    absent: str = ""  # why it could not run

    def table(self) -> dict[str, Any]:
        """Return the timing as JSON stores it."""
        if self.absent:
            return {"absent": self.absent}
        return {
            "median_ms": statistics.median(self.rounds),
            "spread_ms": quartiles(self.rounds),
            "rounds": len(self.rounds),
            "first_s": self.first_s,
            "memory_mb": self.memory_mb,
            "facts": dict(self.facts),
            **({} if self.profile is None else {"profile": self.profile}),
        }


def quartiles(values: list[float]) -> list[float]:
    """Return the lower and the upper quartile."""
    if len(values) < 2:
        return [values[0], values[0]]
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return [low, high]


def run_case(
    case: Case, device: str, threads: int, ceilings: Mapping[str, float], profiles: bool = False
) -> dict[str, Any]:
    """Check and time a case, and profile it if asked to; return what JSON stores of it."""
    with tempfile.TemporaryDirectory() as name, _Contest(case, device, threads, Path(name)) as contest:
        for who in case.contestants:  # one after the other, so that the first run is timed alone
            contest.start(who)
            contest.wait_for(who, PATIENCE)
        return _result(contest, ceilings, profiles)


@dataclass(frozen=True)
class Together:
    """How the contestants of several cases get ready together.

    `at_once` of them at the same time, all within `patience` seconds. While they are timed, the file `sign` exists, so
    that other work on the machine can be stopped for that time.
    """

    patience: float
    at_once: int = 1000
    sign: Path | None = None
    profiles: bool = False


def run_together(
    cases: Sequence[Case], device: str, threads: int, ceilings: Callable[[], Mapping[str, float]], how: Together
) -> Iterator[tuple[Case, dict[str, Any]]]:
    """Yield the results of cases whose contestants get ready before any is timed.

    They are timed alone, but the time of a first run is that of a busy machine.
    """
    with ExitStack() as stack:
        folders = [Path(stack.enter_context(tempfile.TemporaryDirectory())) for _ in cases]
        contests = [
            stack.enter_context(_Contest(case, device, threads, path))
            for case, path in zip(cases, folders, strict=True)
        ]
        _get_ready(contests, how)
        stack.enter_context(_existing(how.sign))
        rates = ceilings()  # now that nothing else runs
        for contest in contests:
            yield contest.case, _result(contest, rates, how.profiles) | {"together": True}
            contest.end()  # and its memory is free again


def _get_ready(contests: Sequence["_Contest"], how: Together) -> None:
    """Start all contestants, not too many at once, and wait for them."""
    end = time.monotonic() + how.patience
    waiting = [(contest, who) for contest in contests for who in contest.case.contestants]
    started: list[tuple[_Contest, str]] = []
    while waiting or started:
        while waiting and len(started) < how.at_once:
            contest, who = waiting.pop(0)
            contest.start(who)
            started.append((contest, who))
        pipes = [contest.pipes[who] for contest, who in started]
        answered = wait_for_any(pipes, max(0.0, end - time.monotonic()))
        if not answered:
            for contest, who in (*started, *waiting):
                contest.give_up(who, f"not ready within {how.patience:.0f} s")
            return
        for (contest, who), pipe in list(zip(started, pipes, strict=True)):
            if pipe in answered:
                contest.wait_for(who, 0.0)
                started.remove((contest, who))


@contextmanager
def _existing(path: Path | None) -> Iterator[None]:
    """Keep a file in existence during the block."""
    if path is None:
        yield
        return
    path.touch()
    try:
        time.sleep(SETTLING)
        yield
    finally:
        path.unlink(missing_ok=True)


def _result(contest: "_Contest", ceilings: Mapping[str, float], profiles: bool) -> dict[str, Any]:
    """Check, time and profile contestants that are ready."""
    case, timings = contest.case, contest.timings
    wrong = disagreements(case, {who: each.facts for who, each in timings.items() if not each.absent})
    if not wrong:
        contest.take_turns()
        if profiles:
            contest.profile()
    result: dict[str, Any] = {
        "about": case.about,
        "unit": case.unit,
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "wrong": wrong,
        "contestants": {} if wrong else {who: each.table() for who, each in timings.items()},
        "limit_ms": case.limit,
    }
    if not wrong:
        result["ratios"] = _ratios(case, timings)
        result["floor"] = _floor(case, ceilings)
    return result


def _ratios(case: Case, timings: Mapping[str, Timing]) -> list[dict[str, Any]]:
    found = []
    for ours in case.ours():
        for peer in case.peers():
            a, b = timings[ours], timings[peer]
            if a.absent or b.absent:
                continue
            each = [x / y for x, y in zip(a.rounds, b.rounds, strict=False)]
            ratio = statistics.median(a.rounds) / statistics.median(b.rounds)
            goal = case.goals.get(f"{ours} / {peer}", case.goals.get(peer))
            found.append({"ours": ours, "peer": peer, "ratio": ratio, "spread": quartiles(each), "goal": goal})
    return found


def _floor(case: Case, ceilings: Mapping[str, float]) -> dict[str, float] | None:
    """Return the least milliseconds for a unit, at the machine's own ceilings."""
    if case.floor is None:
        return None
    compute = 1000 * case.floor.operations / ceilings["operations_per_s"]
    memory = 1000 * case.floor.bytes / ceilings["bytes_per_s"]
    return {
        "operations": case.floor.operations,
        "bytes": case.floor.bytes,
        "compute_ms": compute,
        "memory_ms": memory,
        "ms": max(compute, memory),
    }


class _Contest:
    """The processes of the contestants of a case."""

    def __init__(self, case: Case, device: str, threads: int, folder: Path) -> None:
        self.case, self.device, self.threads, self.folder = case, device, threads, folder
        self.pipes: dict[str, Connection] = {}
        self.processes: dict[str, BaseProcess] = {}
        self.timings = {name: Timing() for name in case.contestants}

    def __enter__(self) -> "_Contest":
        os.environ["OMP_NUM_THREADS"] = os.environ["RAYON_NUM_THREADS"] = str(self.threads)
        return self

    def start(self, name: str) -> None:
        """Start the process of a contestant."""
        context = multiprocessing.get_context("spawn")
        folder = self.folder / str(len(self.processes))
        folder.mkdir()
        self.pipes[name], theirs = context.Pipe()
        given = (self.case.contestants[name], Setting(self.device, self.threads, folder), theirs)
        self.processes[name] = context.Process(target=_serve, args=given, daemon=True)
        self.processes[name].start()
        theirs.close()  # so that a process that ends closes the pipe

    def wait_for(self, name: str, seconds: float) -> None:
        """Wait until a contestant is ready."""
        answer = self._receive(name, seconds)
        if isinstance(answer, Timing):
            self.timings[name] = answer
        else:
            self.processes[name].kill()

    def give_up(self, name: str, reason: str) -> None:
        """Leave out a contestant that was not ready in time."""
        self.timings[name] = Timing(absent=reason)
        if name in self.processes:
            self.processes[name].kill()

    def end(self) -> None:
        """End all processes."""
        for process in self.processes.values():
            process.kill()
            process.join()

    def __exit__(self, *error: object) -> None:
        self.end()

    def take_turns(self) -> None:
        """Time all contestants, round after round, until the time of the case is spent."""
        begun = time.perf_counter()
        for number in range(MOST_ROUNDS):
            if number >= LEAST_ROUNDS and time.perf_counter() - begun > self.case.seconds:
                break
            for name, timing in self.timings.items():
                if not timing.absent:
                    self.pipes[name].send("turn")
                    times = self._receive(name, PATIENCE)
                    if isinstance(times, list):
                        timing.rounds.append(1000 * statistics.median(times) / timing.amount)
        for name, timing in self.timings.items():
            if not timing.absent:
                self.pipes[name].send("memory")
                memory = self._receive(name, PATIENCE)
                timing.memory_mb = memory if isinstance(memory, float) else 0.0

    def profile(self) -> None:
        """Profile all contestants that run updates of a model."""
        for name, timing in self.timings.items():
            if not timing.absent:
                self.pipes[name].send("profile")
                found = self._receive(name, PATIENCE)
                timing.profile = found if isinstance(found, dict) else None

    def _receive(self, name: str, seconds: float) -> Any:
        """Return the answer of a contestant; if it has failed, note why."""
        try:
            if self.pipes[name].poll(seconds):
                answer = self.pipes[name].recv()
                if isinstance(answer, str):
                    self.timings[name] = Timing(absent=answer)
                return answer
            reason = f"no answer within {seconds:.0f} s"
        except EOFError:
            reason = f"its process ended with code {self.processes[name].exitcode}"
        self.timings[name] = Timing(absent=reason)
        return None


def _serve(contestant: Contestant, setting: Setting, pipe: Connection) -> None:
    """Run a contestant in its process, as the runner asks."""
    os.environ["REGARD_CACHE"] = str(setting.folder / "cache")
    try:
        if torch := sys.modules.get("torch"):  # imported with the contestant, if it needs it
            torch.set_num_threads(setting.threads)
            torch.set_float32_matmul_precision("high")
            torch.manual_seed(0)
        begun = time.perf_counter()
        ready = contestant(setting)
        ready.run()
        wait(setting.device)
        pipe.send(Timing(time.perf_counter() - begun, ready.amount, ready.facts))
        release(setting.device)  # others get ready meanwhile
        for request in iter(pipe.recv, None):
            pipe.send(_answer(request, ready, setting.device))
    except ImportError as error:
        pipe.send(f"not installed: {error.name or one_line(error)}")
    except EOFError:
        pass
    except Exception as error:
        traceback.print_exc()
        pipe.send(f"{type(error).__name__}: {one_line(error)}")


def one_line(error: Exception) -> str:
    """Return a message as a cell of a table."""
    return " ".join(str(error).replace("|", "/").split())[:LONGEST_REASON]


def _answer(request: str, ready: Prepared, device: str) -> object:
    """Return what the runner asks for: the peak of memory, a profile, or times of runs."""
    if request == "memory":
        return ready.peak_megabytes() if ready.peak_megabytes else peak_megabytes(device)
    if request == "profile":
        return profile_updates(ready.run, ready.updates, device) if ready.updates else None
    return _turn(ready.run, device)


def _turn(run: Any, device: str) -> list[float]:
    run()
    wait(device)
    times: list[float] = []
    while not times or (sum(times) < TURN_SECONDS and len(times) < MOST_RUNS):
        begun = time.perf_counter()
        run()
        wait(device)
        times.append(time.perf_counter() - begun)
    return times
