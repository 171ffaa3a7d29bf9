"""What a benchmark is: a `Case` with contestants that do equal work, each in a process of its own."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

OURS = "regard"


@dataclass(frozen=True)
class Setting:
    """Where a contestant runs: the device, the threads on the CPU, and a folder for its files."""

    device: str
    threads: int
    folder: Path


@dataclass(frozen=True)
class Prepared:
    """A contestant that is ready: `run` does the work once.

    `amount` is how much useful work that is (tokens, images, updates), so that contestants may do it in other pieces.
    `facts` are numbers that must agree among the contestants before anything is timed. `updates` is how many updates of
    a model a run has; they can be profiled. `peak_megabytes` returns the peak of memory where `run` starts a process;
    without it, that of the contestant's own process is measured.
    """

    run: Callable[[], object]
    amount: float = 1.0
    facts: Mapping[str, float] = field(default_factory=dict)
    updates: int = 0
    peak_megabytes: Callable[[], float] | None = None


Contestant = Callable[[Setting], Prepared]


@dataclass(frozen=True)
class Floor:
    """The least work for one unit of `amount`: floating-point operations, and bytes that must be read or written."""

    operations: float = 0.0
    bytes: float = 0.0


@dataclass(frozen=True)
class Case:
    """A comparison. The first contestant is ours, unless its name says otherwise (`regard, int8`)."""

    name: str
    about: str  # sizes, precision, what is included
    unit: str  # of `amount`: token, image, update, call
    contestants: Mapping[str, Contestant]
    devices: tuple[str, ...] = ("cpu", "cuda")
    agree: Mapping[str, float] = field(default_factory=dict)  # facts, with the largest relative difference
    goals: Mapping[str, float] = field(default_factory=dict)  # the largest ratio of ours to a peer's time
    limit: float | None = None  # the most milliseconds that ours may take for one unit
    floor: Floor | None = None
    seconds: float = 20.0  # of timing, for all contestants together
    long: bool = False  # takes minutes, so it runs only if it is named

    def ours(self) -> list[str]:
        """Return the contestants that are ours."""
        return [name for name in self.contestants if name == OURS or name.startswith(f"{OURS},")]

    def peers(self) -> list[str]:
        """Return the other contestants."""
        return [name for name in self.contestants if name not in self.ours()]


def disagreements(case: Case, facts: Mapping[str, Mapping[str, float]]) -> list[str]:
    """List the facts in which a contestant differs from the first one by more than is allowed."""
    if not facts:
        return []
    first, *others = facts
    found = []
    for name in others:
        for fact, tolerance in case.agree.items():
            ours, theirs = facts[first].get(fact), facts[name].get(fact)
            if ours is None or theirs is None:
                continue
            if abs(ours - theirs) > tolerance * max(abs(ours), abs(theirs)):
                found.append(f"{fact}: {ours:.6g} by {first}, {theirs:.6g} by {name}")
    return found
