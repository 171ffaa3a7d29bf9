"""`regard tune`: search over the few settings that matter, by successive halving (Jamieson, Talwalkar 2016).

All settings are trained for a short time; the best third continues from its checkpoints for longer, and so on until one
is left. They are compared on validation data only, and each rung gets the same share of the time. The settings are
points of a Sobol sequence; the first is what the task suggests, so the search cannot end below it. Every setting is a
run of its own, trained by `regard train`, and the state is in the folder: the same command continues.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from io import StringIO
from math import isnan
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

from rich.table import Table as Grid
from torch.quasirandom import SobolEngine

from regard.atomic import lock, make_folder, write_text
from regard.config import Table, from_table, to_table
from regard.data.tokenizer import LEAST
from regard.errors import ConfigError, RegardError
from regard.extend import IMPORTED
from regard.lab.comparison.compare import devices_for
from regard.lab.comparison.runs import ComparedRun, ComparisonStopError, is_finished, say, train_runs
from regard.machine import suggest_threads
from regard.recipe_files import override
from regard.runs.folder import is_run
from regard.runs.layout import LOCK
from regard.tasks.defaults import TaskConfig
from regard.tasks.metric import HIGHER_IS_BETTER
from regard.terminal import plain_console, show_status
from regard.training.draft import RunPlan
from regard.training.planning import plan_run
from regard.training.ranks import Ranks, join_ranks
from regard.training.request import RunRequest, with_absolute_paths, with_plain_paths
from regard.training.result import read_result
from regard.training.run import open_run
from regard.training.settings import left_as_found
from regard.training.trial import time_updates
from regard.untrusted import read_json

if TYPE_CHECKING:
    from rich.console import Console

TUNED = Path("tuned")  # where searches are that the user gives no folder
TASK, SEARCH, TRIALS, FOUND = "task.toml", "search.json", "trials.csv", "found.toml"
KEPT = 3  # one in three settings of a rung continues
COUNTS = (27, 9, 3)  # settings of a search: the most for which each gets enough time in the first rung
ENOUGH = 30.0  # seconds of a run in the first rung
STARTING = 15.0  # seconds that a run takes to start and to measure, until that is known
LEAST_UPDATES = 20
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

    @property
    def words(self) -> str:
        """What was drawn, in words."""
        return ", ".join(_setting_words(name, value) for name, value in self.settings.items()) or SUGGESTED


def _setting_words(name: str, value: str | float) -> str:
    factor = "" if isinstance(value, str) or name == "dropout" else "x "
    return f"{name} {factor}{value if isinstance(value, str) else format(value, 'g')}"


@dataclass
class Search:
    """A search, as it is kept in its folder."""

    metric: str
    candidates: list[TunedSetting]
    spent: float = 0.0  # seconds of all rungs so far
    starting: float = STARTING  # seconds of a run that are not for updates

    def members(self, rung: int) -> list[TunedSetting]:
        """Return the candidates of a rung: all, or the best third of the rung before."""
        if rung == 0:
            return self.candidates
        before = [candidate for candidate in self.candidates if len(candidate.updates) >= rung]
        ranked = sorted(
            (each for each in before if len(each.scores) >= rung), key=lambda each: self.rank(each, rung - 1)
        )
        return ranked[: -(-len(before) // KEPT)]

    def rank(self, candidate: TunedSetting, rung: int) -> float:
        """Return a number that is lower for a better score."""
        score = candidate.scores[rung]
        return float("inf") if isnan(score) else -score if HIGHER_IS_BETTER[self.metric] else score

    def best(self) -> TunedSetting | None:
        """Return the candidate that came furthest, and of these the best."""
        known = [candidate for candidate in self.candidates if candidate.scores]
        return min(known, key=lambda each: (-len(each.scores), self.rank(each, -1)), default=None)


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


def tune(
    task: Mapping[str, Any],
    *overrides: str,
    minutes: float,
    out: str | Path | None = None,
    size: str = "auto",
    recipe: str | Path | None = None,
    jobs: int | None = None,
    device: str = "auto",
    console: "Console | None" = None,
) -> Path:
    """Search for good settings of a task for about `minutes`, and return the folder, which has the recipe `found.toml`.

    `task` and `overrides` are those of `regard.train`. What they decide is not searched. `jobs` runs are trained at a
    time, by default one on each GPU, or one on each free core.
    """
    if minutes <= 0:
        raise ConfigError(f"minutes={minutes:g} must be above 0")
    for change in overrides:
        if change.partition("=")[0].strip() in ("train.steps", "train.minutes", "train.patience"):
            raise ConfigError(f"{change!r}: the search decides how long each setting is trained; leave it out")
    console = console or plain_console()
    given = with_plain_paths(task)
    config = from_table(given, TaskConfig, "task")
    base: Table = {"task": with_absolute_paths(given, config.file_keys)}
    if recipe is not None:
        base["like"] = str(Path(recipe).absolute()) if str(recipe).endswith(".toml") else str(recipe)
    key = json.dumps([base, overrides, minutes, size], sort_keys=True)
    folder = TUNED / f"{given['kind']}-{sha256(key.encode()).hexdigest()[:8]}" if out is None else Path(out)
    make_folder(folder, "choose another --out")
    with join_ranks(device) as ranks, left_as_found(ranks.device), ExitStack() as held:
        held.enter_context(lock(folder / LOCK, "wait until it ends, or choose another --out"))
        _write_task(folder, base, key)
        devices = devices_for(device, ranks)
        at_once = jobs or (len(devices) if ranks.device.type == "cuda" else suggest_threads())
        search = _open(folder)
        if search is None:
            with show_status(console, "planning") as status:
                request = RunRequest(folder / TASK, tuple(overrides), size)
                count = count_settings(60 * minutes, at_once)
                search = _begin(request, recipe is not None, count, at_once, ranks, status)
        say(console, f"{len(search.candidates)} settings, {at_once} at a time, about {minutes:g} minutes: {folder}")
        try:
            _Halving(folder, search, 60 * minutes, at_once, devices, console).run()
        finally:  # also of a search that is stopped
            _write_found(folder, search, base, overrides)
        print_search(console, search, folder)
    return folder


def _write_task(folder: Path, base: Table, key: str) -> None:
    """Write the recipe that all runs start from; a folder holds one search."""
    path = folder / TASK
    import tomli_w

    text = f"# {sha256(key.encode()).hexdigest()}\n{tomli_w.dumps(base)}"
    if path.exists() and path.read_text(encoding="utf-8") != text:
        raise RegardError(f"{folder}: holds a search with other settings; choose another --out")
    if not path.exists():
        if any(item.name != LOCK for item in folder.iterdir()):
            raise RegardError(f"{folder}: is not empty, and holds no search; choose another --out")
        write_text(path, text)


# --- what is searched ------------------------------------------------------------------------------------------------


def _begin(request: RunRequest, named: bool, count: int, jobs: int, ranks: Ranks, status: Any) -> Search:
    """Draw the settings, and plan each size once, for the speed and for what the settings change."""
    first = plan_run(request, ranks, status)
    space = search_space(first, request, named, ranks.device.type)
    threads = (f"train.threads={max(1, suggest_threads() // jobs)}",) if ranks.device.type == "cpu" else ()
    plans: dict[str, tuple[RunPlan, float]] = {}
    candidates = []
    for number, settings in enumerate(draw_settings(space, count), start=1):
        size = str(settings.get("size", request.size))
        if size not in plans:
            status(f"trying a few updates, size {size}")
            own = RunRequest(request.what, (*request.overrides, *threads), size)
            plan = plan_run(own, ranks)
            plans[size] = plan, time_updates(plan.config, plan.task, ranks).seconds
        plan, seconds = plans[size]
        changes = [*request.overrides, *threads, *changes_for(settings, plan)]
        candidates.append(TunedSetting(number, settings, [*changes, "--size", size], seconds))
    return Search(first.task.metric, candidates)


def search_space(plan: RunPlan, request: RunRequest, named: bool, device: str) -> Mapping[str, Sequence[Any]]:
    """Return what is searched: the space of the task, without what the user has decided."""
    space = dict(plan.config.task.suggest_search(device))
    decided = [change.partition("=")[0].strip() for change in request.overrides]
    tokenizer = plan.config.tokenizer
    fixed = {
        "rate": any(path.startswith("train.optimizer") for path in decided),
        "size": named or request.size != "auto" or any(path in ("model.dim", "model.depth") for path in decided),
        "dropout": any(path.endswith("dropout") for path in decided) or not dropout_paths(plan),
        "vocabulary": any(path.startswith("tokenizer.") for path in decided)
        or tokenizer is None
        or tokenizer.path is not None
        or tokenizer.kind not in LEAST,
    }
    found = {name: values for name, values in space.items() if not fixed.get(name, False)}
    if not found:
        raise ConfigError("nothing is left to search; leave out some of the settings that you have decided")
    return found


def draw_settings(space: Mapping[str, Sequence[Any]], count: int) -> list[dict[str, Any]]:
    """Return different settings, spread evenly over the space; the first is empty: what the task suggests."""
    found: list[dict[str, Any]] = [{}]
    points = SobolEngine(len(space), scramble=True, seed=0).draw(64 * count).tolist()
    for point in points:
        settings = {
            name: values[int(place * len(values))] for place, (name, values) in zip(point, space.items(), strict=True)
        }
        if settings not in found:
            found.append(settings)
        if len(found) == count:
            break
    return found


def dropout_paths(plan: RunPlan) -> list[str]:
    """Return where a model has the dropout of a layer or of its embedding."""

    def walk(table: Mapping[str, Any], path: str) -> Iterator[str]:
        for key, value in table.items():
            place = path.split(".")
            if key == "dropout" and (place[-1] in ("embed", "model") or place[-2:-1] == ["layers"]):
                yield f"{path}.{key}"
            elif isinstance(value, Mapping):
                yield from walk(value, f"{path}.{key}")

    return [] if plan.config.model is None else list(walk(to_table(plan.config.model), "model"))


def changes_for(settings: Mapping[str, Any], plan: RunPlan) -> list[str]:
    """Return the overrides that settings stand for; rate and vocabulary are factors of what is suggested."""
    changes: list[str] = []
    if "rate" in settings:
        optimizer = to_table(plan.config.train.optimizer)
        rates = {"rate": optimizer["rate"], **({"rest.rate": optimizer["rest"]["rate"]} if "rest" in optimizer else {})}
        changes += [f"train.optimizer.{key}={settings['rate'] * rate:.4g}" for key, rate in rates.items()]
    if "dropout" in settings:
        changes += [f"{path}={settings['dropout']}" for path in dropout_paths(plan)]
    if "vocabulary" in settings:
        assert plan.config.tokenizer is not None
        assert plan.config.tokenizer.vocabulary is not None
        pieces = round(settings["vocabulary"] * plan.config.tokenizer.vocabulary)
        changes.append(f"tokenizer.vocabulary={max(pieces, LEAST[plan.config.tokenizer.kind][0])}")
    return changes


# --- halving ---------------------------------------------------------------------------------------------------------


@dataclass
class _Halving:
    """Trains the rungs of a search, one after the other."""

    folder: Path
    search: Search
    seconds: float
    jobs: int
    devices: Sequence[str]
    console: "Console"

    def run(self) -> None:
        sizes = rung_sizes(len(self.search.candidates))
        for rung in range(len(sizes)):
            members = self.search.members(rung)
            if not members:
                failure = next((each.failure for each in self.search.candidates if each.failure), "")
                raise RegardError(f"{self.folder}: no setting could be trained: {failure}")
            if any(len(member.updates) <= rung for member in members):
                if rung and self.seconds - self.search.spent < LEAST_SHARE * self.seconds:
                    say(self.console, f"the time is over after {rung} of {len(sizes)} rungs", "yellow")
                    return
                self._plan(len(sizes) - rung, members)
            if any(len(member.scores) <= rung and not member.failure for member in members):
                say(self.console, f"rung {rung + 1} of {len(sizes)}: {len(members)} settings")
                self._train(rung, members)

    def _plan(self, left: int, members: Sequence[TunedSetting]) -> None:
        """Choose the updates of a rung: an even share of the time that is left, the same time for each setting."""
        share = (self.seconds - self.search.spent) / left
        each = share * min(self.jobs, len(members)) / len(members) - self.search.starting
        for member in members:
            before = member.updates[-1] if member.updates else 0
            member.updates.append(before + max(LEAST_UPDATES, int(each / member.seconds)))
        self._save()

    def _train(self, rung: int, members: Sequence[TunedSetting]) -> None:
        runs = {member.number: self._run(member, rung) for member in members if not member.failure}
        began, failures = monotonic(), {}
        try:
            failures = train_runs(list(runs.values()), self.jobs, self.devices, list(map(str, IMPORTED)), self.console)
        except ComparisonStopError as stopped:
            stopped.args = (f"{stopped}: {self.folder}",)
            raise
        finally:
            self._note_time(monotonic() - began, rung, members)
            for member in members:
                run = runs.get(member.number)
                if run is None or len(member.scores) > rung:
                    continue
                member.failure = failures.get(run.title, "")
                result = read_result(run.folder)
                if not member.failure and is_finished(run) and result is not None:
                    member.scores.append(result.evaluation[self.search.metric])
            self._save()

    def _note_time(self, seconds: float, rung: int, members: Sequence[TunedSetting]) -> None:
        """Note the time of a rung, and what its runs took besides updates."""
        self.search.spent += seconds
        each = seconds * min(self.jobs, len(members)) / len(members)
        updating = [
            (member.updates[rung] - sum(member.updates[rung - 1 : rung])) * member.seconds for member in members
        ]
        self.search.starting = max(each - sum(updating) / len(members), 0.0)

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
        if seconds / len(rung_sizes(count)) * min(jobs, count) / count >= ENOUGH:
            return count
    return COUNTS[-1]


def rung_sizes(count: int) -> list[int]:
    """Return how many settings each rung has: 9, 3, 1."""
    sizes = [count]
    while sizes[-1] > 1:
        sizes.append(-(-sizes[-1] // KEPT))
    return sizes


# --- the folder ------------------------------------------------------------------------------------------------------


def _open(folder: Path) -> Search | None:
    """Read a search that was begun before."""
    path = folder / SEARCH
    if not path.exists():
        return None
    table = read_json(path)
    try:
        candidates = [TunedSetting(**candidate) for candidate in table.pop("candidates")]
        return Search(candidates=candidates, **table)
    except (KeyError, TypeError):
        raise RegardError(f"{path}: is not the state of a search; remove the folder, or choose another --out") from None


def trials_table(search: Search) -> str:
    """Return all measurements as CSV: a row for each setting and rung."""
    names = list(dict.fromkeys(name for candidate in search.candidates for name in candidate.settings))
    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["trial", "rung", "updates", search.metric, "state", *names])
    for candidate in search.candidates:
        for rung, updates in enumerate(candidate.updates):
            done = rung < len(candidate.scores)
            state = "done" if done else f"failed: {candidate.failure}" if candidate.failure else "not finished"
            score = f"{candidate.scores[rung]:.6g}" if done else ""
            own = [candidate.settings.get(name, "") for name in names]
            writer.writerow([candidate.number, rung + 1, updates, score, state, *own])
    return text.getvalue()


def _write_found(folder: Path, search: Search, base: Table, overrides: Sequence[str]) -> None:
    """Write the recipe of the best setting: its model, tokenizer and optimizer; the rest follows from the data."""
    import tomli_w

    best = search.best()
    if best is None:
        return
    config = open_run(folder / f"trial-{best.number:02d}").config
    score = f"{search.metric} {best.scores[-1]:.4g} after {best.updates[len(best.scores) - 1]:,} updates"
    table: Table = {"task": base["task"], "model": to_table(config.model)}
    table["train"] = {"optimizer": to_table(config.train.optimizer)}
    if config.tokenizer is not None:
        table["tokenizer"] = to_table(config.tokenizer)
    own = [change for change in overrides if change.startswith(("task.", "train."))]
    about = f"Found by regard tune: {best.words}; {score} on the validation data"
    write_text(folder / FOUND, tomli_w.dumps({"about": about, **override(table, own)}))


def print_search(console: "Console", search: Search, folder: Path) -> None:
    """Print the settings that came furthest, and how to train with the best one."""
    ranked = sorted(
        (each for each in search.candidates if each.scores), key=lambda each: (-len(each.scores), search.rank(each, -1))
    )
    grid = Grid(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for title in ("trial", "rung", "updates", search.metric, "settings"):
        grid.add_column(title, justify="left" if title == "settings" else "right")
    for candidate in ranked:
        rung = len(candidate.scores)
        row = candidate.number, rung, f"{candidate.updates[rung - 1]:,}", f"{candidate.scores[-1]:.4g}"
        grid.add_row(*map(str, row), candidate.words)
    console.print(grid)
    failed = sum(bool(each.failure) for each in search.candidates)
    if failed:
        say(console, f"{failed} settings failed; {folder / TRIALS} says why", "yellow")
    say(console, f"The best is {ranked[0].words}; train it to the end with:", "bold")
    say(console, f"  regard train {folder / FOUND}")
