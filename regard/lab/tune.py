"""`regard tune`: search over the few settings that matter, by successive halving (Jamieson, Talwalkar 2016).

All settings are trained for a short time; the best third continues from its checkpoints for longer, and so on until one
is left. They are compared on validation data only, and each rung gets the same share of the time. The settings are
points of a Sobol sequence; the first is what the task suggests, so the search cannot end below it. Every setting is a
run of its own, trained by `regard train`, and the state is in the folder: the same command continues.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from hashlib import sha256
from math import isfinite
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

from rich.table import Table as Grid

from regard.arguments import check_path
from regard.atomic import lock, make_folder, write_text
from regard.config import Table, from_table, to_table
from regard.errors import ConfigError, RegardError
from regard.lab.comparison.compare import devices_for
from regard.lab.comparison.runs import say
from regard.lab.halving import SEARCH, TASK, TRIALS, Halving, Search, TunedSetting, count_settings
from regard.lab.search_space import changes_for, draw_settings, search_space, suggested_settings
from regard.machine import suggest_threads
from regard.recipe_files import override, override_path, read_recipe
from regard.runs.layout import LOCK
from regard.tasks.defaults import TaskConfig
from regard.terminal import plain_console, show_status
from regard.training.draft import RunPlan
from regard.training.planning import plan_run
from regard.training.ranks import Ranks, join_ranks
from regard.training.request import RunRequest, with_absolute_paths, with_plain_paths
from regard.training.run import open_run
from regard.training.settings import left_as_found
from regard.training.suggestions import check_size
from regard.training.trial import time_updates
from regard.untrusted import read_json

if TYPE_CHECKING:
    from rich.console import Console

TUNED = Path("tuned")  # where searches are that the user gives no folder
FOUND = "found.toml"
HEADER = re.compile(r"# [0-9a-f]{64}\n")  # of the recipe that all runs start from
SHORT = 0.25  # share of the updates of a run, below which the last rung says little about its end


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
    if not isfinite(minutes):
        raise ConfigError(f"minutes={minutes:g} must be a finite number")
    if minutes <= 0:
        raise ConfigError(f"minutes={minutes:g} must be above 0")
    for change in overrides:
        if override_path(change) in ("train.steps", "train.minutes", "train.patience"):
            raise ConfigError(f"{change!r}: the search decides how long each setting is trained; leave it out")
    check_size(size)
    if recipe is not None:
        read_recipe(recipe)
    console = console or plain_console()
    given = with_plain_paths(task)
    config = from_table(given, TaskConfig, "task")
    base: Table = {"task": with_absolute_paths(given, config.file_keys)}
    if recipe is not None:
        base["like"] = str(Path(recipe).absolute()) if str(recipe).endswith(".toml") else str(recipe)
    key = json.dumps([base, overrides, minutes, size], sort_keys=True)
    folder = (
        TUNED / f"{given['kind']}-{sha256(key.encode()).hexdigest()[:8]}" if out is None else check_path(out, "out")
    )
    with join_ranks(device) as ranks, left_as_found(ranks.device), ExitStack() as held:
        devices = devices_for(device, ranks)
        at_once = jobs or (len(devices) if ranks.device.type == "cuda" else suggest_threads())
        held.enter_context(_take_folder(folder))
        _write_task(folder, base, key)
        search = _open(folder)
        if search is None:
            with _removed_after_mistakes(folder / TASK, recipe), show_status(console, "planning") as status:
                request = RunRequest(folder / TASK, tuple(overrides), size)
                count = count_settings(60 * minutes, at_once)
                search = _begin(request, recipe is not None, count, at_once, ranks, status)
        retried = search.retry_failed()
        length = f"about {minutes:g} minute{'s' * (minutes != 1)}"
        say(console, f"{len(search.candidates)} settings, {at_once} at a time, {length}: {folder}")
        if retried:
            say(console, f"{retried} setting{'s' * (retried > 1)} that failed before: trying once more")
        try:
            Halving(folder, search, 60 * minutes, at_once, devices, console).run()
        finally:  # also of a search that is stopped
            _write_found(folder, search, base, overrides)
        print_search(console, search, folder)
    return folder


@contextmanager
def _take_folder(folder: Path) -> Iterator[None]:
    """Hold the folder of a search; what was made of it and its parents is removed if it is still empty at the end."""
    made = [each for each in (folder, *folder.parents) if not each.exists()]
    make_folder(folder, "choose another --out")
    try:
        with lock(folder / LOCK, "wait until it ends, or choose another --out"):
            yield
    finally:
        with suppress(OSError):  # not empty
            for each in made:
                each.rmdir()


@contextmanager
def _removed_after_mistakes(path: Path, recipe: str | Path | None) -> Iterator[None]:
    """Remove the recipe that all runs start from if no search could be planned; mistakes name the user's recipe."""
    try:
        yield
    except BaseException as error:
        path.unlink(missing_ok=True)
        if not isinstance(error, ConfigError):
            raise
        origin = f"{recipe}: " if str(recipe).endswith(".toml") else ""
        raise ConfigError(error.args[0].replace(f"{path}: ", origin)) from None


def _write_task(folder: Path, base: Table, key: str) -> None:
    """Write the recipe that all runs start from. A folder holds one search; one never planned is replaced."""
    path = folder / TASK
    import tomli_w

    text = f"# {sha256(key.encode()).hexdigest()}\n{tomli_w.dumps(base)}"
    found = path.read_text(encoding="utf-8") if path.exists() else ""
    if found == text:
        return
    is_more = any(item.name not in (LOCK, TASK) for item in folder.iterdir())
    if found and (is_more or not HEADER.match(found)):
        raise RegardError(f"{folder}: holds a search with other settings; choose another --out")
    if is_more:
        raise RegardError(f"{folder}: is not empty, and holds no search; choose another --out")
    write_text(path, text)


def _begin(request: RunRequest, named: bool, count: int, jobs: int, ranks: Ranks, status: Any) -> Search:
    """Draw the settings, and plan each size once, for the speed and for what the settings change."""
    first = plan_run(request, ranks, status)
    space = search_space(first, request, named, ranks.device.type)
    threads = (f"train.threads={max(1, suggest_threads() // jobs)}",) if ranks.device.type == "cpu" else ()
    plans: dict[str, tuple[RunPlan, float]] = {}
    candidates = []
    drawn = draw_settings(space, count, suggested_settings(first, space))
    for number, settings in enumerate(drawn, start=1):
        size = str(settings.get("size", request.size))
        if size not in plans:
            status(f"trying a few updates, size {size}")
            own = RunRequest(request.what, (*request.overrides, *threads), size)
            plan = plan_run(own, ranks)
            plans[size] = plan, time_updates(plan.config, plan.task, ranks).seconds
        plan, seconds = plans[size]
        changes = [*request.overrides, *threads, *changes_for(settings, plan)]
        candidates.append(TunedSetting(number, settings, [*changes, "--size", size], seconds))
    return Search(first.task.metric, candidates, first.config.train.steps)


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
    own = [change for change in overrides if override_path(change).startswith(("task.", "train."))]
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
    failed = [each.retried for each in search.candidates if each.failure]
    if failed:
        what = f"{len(failed)} setting{'s' * (len(failed) > 1)} failed{' twice' * all(failed)}"
        remedy = "" if all(failed) else "; the same command tries once more"
        say(console, f"{what}; {folder / TRIALS} says why{remedy}", "yellow")
    last = ranked[0].updates[len(ranked[0].scores) - 1]
    if last < SHORT * search.steps:
        remedy = "a setting that wins early need not win then; search for longer (--minutes)"
        say(console, f"The best was trained for {last:,} updates, a run has {search.steps:,}: {remedy}", "yellow")
    say(console, f"The best is {ranked[0].words}; train it to the end with:", "bold")
    say(console, f"  regard train {quote(str(folder / FOUND))}")
