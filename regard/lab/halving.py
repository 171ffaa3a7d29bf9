"""Successive halving (Jamieson, Talwalkar 2016): the rungs of a search, and its state as it is kept in its folder."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from io import StringIO
from math import isnan
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

from regard.atomic import write_text
from regard.errors import RegardError
from regard.extend import IMPORTED
from regard.lab.comparison.runs import ComparedRun, ComparisonStopError, is_finished, say, train_runs
from regard.runs.folder import is_run
from regard.tasks.metric import HIGHER_IS_BETTER
from regard.training.result import read_result

if TYPE_CHECKING:
    from rich.console import Console


TASK, SEARCH, TRIALS = "task.toml", "search.json", "trials.csv"
KEPT = 3  # one in three settings of a rung continues
COUNTS = (27, 9, 3)  # settings of a search: the most for which each gets enough time in the first rung
ENOUGH = 30.0  # seconds of a run in the first rung
STARTING = 15.0  # seconds that a run takes to start and to measure, until that is known
LEAST_UPDATES = 20
SAVED_EVERY = 5.0  # seconds of a rung, so that little time is forgotten if the search is killed
LEAST_SHARE = 0.05  # of the time that must be left for another rung
SUGGESTED = "as suggested"


@dataclass
class TunedSetting:
    """One of the settings: what was drawn, the arguments of `regard train`, and what it reached in each rung."""

    number: int
    settings: dict[str, str | float]
    arguments: list[str]
    seconds: float  # of an update
    updates: list[int] = field(default_factory=list)  # at the end of each rung that was begun
    scores: list[float] = field(default_factory=list)  # at the end of each rung that is finished
    failure: str = ""
    retried: bool = False  # whether it failed before, and was tried once more

    @property
    def state(self) -> str:
        """Why its last rung has no score."""
        return f"failed{' twice' * self.retried}: {self.failure}" if self.failure else "not finished"

    @property
    def words(self) -> str:
        """What was drawn, in words."""
        return ", ".join(_setting_words(name, value) for name, value in self.settings.items()) or SUGGESTED

    def updating(self, rung: int) -> float:
        """Return the seconds of its updates in a rung."""
        return (self.updates[rung] - sum(self.updates[rung - 1 : rung])) * self.seconds


def _setting_words(name: str, value: str | float) -> str:
    factor = "" if isinstance(value, str) or name == "dropout" else "x "
    return f"{name} {factor}{value if isinstance(value, str) else format(value, 'g')}"


@dataclass
class Search:
    """A search, as it is kept in its folder."""

    metric: str
    candidates: list[TunedSetting]
    steps: int = 0  # updates of a run that the task suggests
    spent: float = 0.0  # seconds of all rungs so far
    starting: float = STARTING  # seconds of a run that are not for updates

    def members(self, rung: int) -> list[TunedSetting]:
        """Return the candidates of a rung: all, or the best of those that finished the rung before."""
        if rung == 0:
            return self.candidates
        finished = [candidate for candidate in self.candidates if len(candidate.scores) >= rung]
        ranked = sorted(finished, key=lambda each: self.rank(each, rung - 1))
        return ranked[: rung_sizes(len(self.candidates))[rung]]

    def rank(self, candidate: TunedSetting, rung: int) -> float:
        """Return a number that is lower for a better score."""
        score = candidate.scores[rung]
        return float("inf") if isnan(score) else -score if HIGHER_IS_BETTER[self.metric] else score

    def best(self) -> TunedSetting | None:
        """Return the candidate that came furthest, and of these the best."""
        known = [candidate for candidate in self.candidates if candidate.scores]
        return min(known, key=lambda each: (-len(each.scores), self.rank(each, -1)), default=None)

    def retry_failed(self) -> int:
        """Mark candidates that failed once to be trained again, in the rung where they failed; return their number."""
        failed = [candidate for candidate in self.candidates if candidate.failure and not candidate.retried]
        for candidate in failed:
            candidate.failure, candidate.retried = "", True
        return len(failed)


@dataclass(frozen=True)
class TunedRun(ComparedRun):
    """The run of a candidate up to the end of a rung."""

    changes: tuple[str, ...]
    words: str

    @property
    def title(self) -> str:
        """Its number and settings, for messages."""
        return f"{self.name} ({self.words})"

    def arguments(self) -> list[str]:
        """Return the arguments of `regard` that train it, or continue it from the rung before."""
        if is_run(self.folder):
            return ["train", "--resume", str(self.folder), f"train.steps={self.steps}"]
        length = f"train.steps={self.steps}", "train.patience=none"
        return ["train", str(self.recipe), *self.changes, *length, "--run", str(self.folder)]


@dataclass
class Halving:
    """Trains the rungs of a search, one after the other."""

    folder: Path
    search: Search
    seconds: float
    jobs: int
    devices: Sequence[str]
    console: "Console"

    def run(self) -> None:
        """Train rung after rung, until one setting is left or the time is over."""
        sizes = rung_sizes(len(self.search.candidates))
        for rung in range(len(sizes)):
            members = self.search.members(rung)
            if not members:  # all have failed
                break
            begun = [each for each in self.search.candidates if len(each.updates) > rung]
            if rung and not begun and self.seconds - self.search.spent < LEAST_SHARE * self.seconds:
                say(self.console, f"the time is over after {rung} of {len(sizes)} rungs", "yellow")
                return
            new = [member for member in members if member not in begun]
            if new:
                self._plan(new, begun[0].updating(rung) if begun else self._time(len(sizes) - rung, len(members)))
            if any(len(member.scores) <= rung and not member.failure for member in members):
                say(self.console, f"rung {rung + 1} of {len(sizes)}: {len(members)} setting{'s' * (len(members) > 1)}")
                seconds = self._train(rung, members)
                if not begun:
                    self._note_starting(seconds, rung, members)
        if self.search.best() is None:
            failed = next(each for each in self.search.candidates if each.failure)
            remedy = "choose another --out" if failed.retried else "the same command tries once more"
            raise RegardError(f"{self.folder}: no setting could be trained: {failed.failure}; {remedy}")

    def _time(self, left: int, count: int) -> float:
        """Return the seconds of updates of a setting in a rung, which gets an even share of the time that is left."""
        share = (self.seconds - self.search.spent) / left
        return share / rounds(count, self.jobs) - self.search.starting

    def _plan(self, members: Sequence[TunedSetting], seconds: float) -> None:
        """Choose the updates of a rung: the same time for each setting."""
        for member in members:
            before = member.updates[-1] if member.updates else 0
            member.updates.append(before + max(LEAST_UPDATES, int(seconds / member.seconds)))
        self._save()

    def _train(self, rung: int, members: Sequence[TunedSetting]) -> float:
        """Train the members of a rung that have not failed, and note their scores; return the seconds that it took."""
        runs = [(member, self._run(member, rung)) for member in members if not member.failure]
        before, began = self.search.spent, monotonic()

        def note(failures: Mapping[str, str]) -> None:
            """Save failures and time regularly, since this process may be killed."""
            for member, run in runs:
                member.failure = failures.get(run.title, "")
            spent = before + monotonic() - began
            if spent - self.search.spent >= SAVED_EVERY:
                self.search.spent = spent
                self._save()

        imported = list(map(str, IMPORTED))
        try:
            note(train_runs([run for _, run in runs], self.jobs, self.devices, imported, self.console, note))
        except ComparisonStopError as stopped:
            stopped.args = (f"{stopped}: {self.folder}",)
            raise
        finally:
            for member, run in runs:
                result = read_result(run.folder)
                if len(member.scores) == rung and not member.failure and result is not None and is_finished(run):
                    member.scores.append(result.evaluation[self.search.metric])
            self.search.spent = before + monotonic() - began
            self._save()
        return self.search.spent - before

    def _note_starting(self, seconds: float, rung: int, members: Sequence[TunedSetting]) -> None:
        """Note what the runs of a rung, which took `seconds`, needed besides updates."""
        trained = [member for member in members if len(member.scores) > rung]
        if trained:
            updating = sum(member.updating(rung) for member in trained) / len(trained)
            self.search.starting = max(seconds / rounds(len(trained), self.jobs) - updating, 0.0)

    def _run(self, member: TunedSetting, rung: int) -> TunedRun:
        name = f"trial-{member.number:02d}"
        return TunedRun(
            name=name,
            seed=0,
            steps=member.updates[rung],
            recipe=self.folder / TASK,
            folder=self.folder / name,
            log=self.folder / f"{name}.log",
            metric=self.search.metric,
            changes=tuple(member.arguments),
            words=member.words,
        )

    def _save(self) -> None:
        write_text(self.folder / SEARCH, json.dumps(asdict(self.search), indent=1) + "\n")
        write_text(self.folder / TRIALS, trials_table(self.search))


def count_settings(seconds: float, jobs: int) -> int:
    """Return how many settings are searched: as many as get enough time in the first rung."""
    for count in COUNTS:
        if seconds / len(rung_sizes(count)) / rounds(count, jobs) >= ENOUGH:
            return count
    return COUNTS[-1]


def rung_sizes(count: int) -> list[int]:
    """Return how many settings each rung has: 9, 3, 1."""
    sizes = [count]
    while sizes[-1] > 1:
        sizes.append(-(-sizes[-1] // KEPT))
    return sizes


def rounds(count: int, jobs: int) -> int:
    """Return how many runs follow each other, if `jobs` are trained at a time and all take the same time."""
    return -(-count // jobs)


def trials_table(search: Search) -> str:
    """Return all measurements as CSV: a row for each setting and rung."""
    names = list(dict.fromkeys(name for candidate in search.candidates for name in candidate.settings))
    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["trial", "rung", "updates", search.metric, "state", *names])
    for candidate in search.candidates:
        for rung, updates in enumerate(candidate.updates):
            done = rung < len(candidate.scores)
            state, score = ("done", f"{candidate.scores[rung]:.6g}") if done else (candidate.state, "")
            own = [candidate.settings.get(name, "") for name in names]
            writer.writerow([candidate.number, rung + 1, updates, score, state, *own])
    return text.getvalue()
