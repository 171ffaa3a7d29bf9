"""The plan of a run as `regard train` prints it: what was decided, and where each value comes from."""

import os
from typing import TYPE_CHECKING, Any

from regard.cli.architecture import exportable_recipe, written_for
from regard.escape import escape_controls, short_path
from regard.quantity import list_counts, short_count

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from rich.console import Console
    from rich.table import Table

    from regard.data.columns import FileReading
    from regard.training.draft import RunPlan
    from regard.training.start import PlannedRun

GAP = 2  # characters after each column of the plan
ALIKE = 2  # files shown of those that are read in the same way


def print_plan(console: "Console", planned: "PlannedRun") -> None:
    """Print what was decided, before training."""
    from regard.config import to_table
    from regard.models.count import parameters
    from regard.models.recipe import build_empty
    from regard.tasks.baselines import describe_baseline
    from regard.tasks.cautions import caution_unknown

    config, task, ranks = planned.plan.config, planned.plan.task, planned.ranks
    assert config.model is not None  # only a module that is given from Python has no config
    model = to_table(config.model)
    weights = parameters(build_empty(config.model))
    rows = {"files": ""}  # filled in when the width of the names is known
    rows["data"] = list_counts(task.facts())
    if left_out := task.skipped.report():
        rows["left out"] = "\n".join(left_out)
    learned = config.tokenizer is not None and config.tokenizer.path is None
    if cautions := [*task.cautions(), *caution_unknown(task, learned)]:
        rows["caution"] = "\n".join(cautions)
    if config.tokenizer is not None and task.tokenizer is not None:
        kind = f"from {short_path(config.tokenizer.path)}" if config.tokenizer.path else config.tokenizer.kind
        rows["tokenizer"] = f"{kind}, {task.tokenizer.size:,} tokens"
    named = f"{planned.plan.size} " if planned.plan.size else ""
    rows["model"] = f"{named}{model['kind']}, {short_count(weights)} parameters, width {model['dim']}"
    training = config.train
    optimizer, schedule = to_table(training.optimizer)["kind"], to_table(training.schedule)["kind"]
    asked = f" (train.minutes={training.minutes:g})" if training.minutes is not None else ""
    rows["training"] = f"{training.steps:,} updates{asked} of {training.tokens:,} tokens, {optimizer}, {schedule}"
    updates = (training.patience or 0) * training.validate_every
    if 0 < updates < training.steps:
        rule = f"after {training.patience} validations ({updates:,} updates) without a better metric or loss"
        rows["stops early"] = f"{rule}; the best model is kept"
    if task.baselines:
        rows["to beat"] = "\n".join(describe_baseline(task.metric, baseline) for baseline in task.baselines)
    other = exportable_recipe(task.config.models) if planned.plan.has_own_recipe else None
    rows["exports to"] = _exports(written_for(config.model), other)
    threads = f", {training.threads} of {os.cpu_count()} threads" if training.threads is not None else ""
    rows["on"] = f"{ranks.device}{threads}" + (f", {ranks.world} processes" if ranks.world > 1 else "")
    rows["run"] = str(planned.folder)
    names = max(map(len, rows)) + GAP
    rows["files"] = "\n".join(reading_lines(task.readings(), console.width - names - GAP))
    console.print(_two_columns(rows.items()))
    console.print()


def _exports(formats: dict[str, str], other: str | None) -> str:
    """Return the formats that can express the model, and a recipe for Hugging Face if that cannot; `show` says why."""
    able = {name: text for name, text in formats.items() if not text.startswith("no")}
    names = [name if text == "yes" else f"{name} ({text})" for name, text in able.items()]
    found = ", ".join(names) or f"nothing: neither {' nor '.join(formats)} can express this model"
    if "Hugging Face" not in able and other is not None:
        found += f"; a model for Hugging Face: --recipe {other}"
    return found


def reading_lines(readings: "Iterable[FileReading]", width: int) -> "Iterator[str]":
    """Yield how files are read, with the first example of each; files that are read as others are only counted."""
    from rich.text import Text

    from regard.data.columns import shorten

    seen: dict[tuple[str, str], int] = {}
    for reading in readings:
        same = (reading.how, reading.doubt)
        seen[same] = seen.get(same, 0) + 1
        if seen[same] > ALIKE:
            continue
        yield reading.heading()
        names = max(map(len, ("source", *reading.examples))) + GAP
        for name, text in reading.examples.items():
            example = Text(f"  {name:{names}}{shorten(text, max(width - names - 2, 20))}")
            example.truncate(max(width, 30), overflow="ellipsis")  # some characters are two cells wide
            yield example.plain
    if more := sum(count - ALIKE for count in seen.values() if count > ALIKE):
        yield f"and {more:,} more, read in the same way"


def source_table(plan: "RunPlan") -> "Table":
    """Return a table of all values, grouped by where they come from."""
    from regard.config import to_table

    groups: dict[str, list[str]] = {}
    for path, value in _values(to_table(plan.config), ""):
        if source := plan.sources.get(path):
            groups.setdefault(source, []).append(f"{path}={value}")
    return _two_columns((source, "\n".join(values)) for source, values in groups.items())


def _values(table: Any, path: str) -> "Iterator[tuple[str, Any]]":
    """Yield the values of a table with their dotted paths."""
    if not isinstance(table, dict):
        yield path, f"{table:.3g}" if isinstance(table, float) else table
        return
    for key, value in table.items():
        yield from _values(value, f"{path}.{key}" if path else key)


def _two_columns(rows: "Iterable[tuple[str, str]]") -> "Table":
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, GAP, 0, 0), show_header=False)
    table.add_column(style="bold cyan", no_wrap=True)
    table.add_column(overflow="fold")
    for name, text in rows:
        table.add_row(Text(name), Text(escape_controls(text, keep="\n")))
    return table
