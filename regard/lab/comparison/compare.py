"""`regard compare`: train several architectures with an equal budget, and say which differences are more than noise.

comparison.json      what all runs share; a folder with other settings is refused
recipes/NAME.toml    the complete recipe of each model
runs/NAME-SEED/      the runs, as `regard train` writes them
logs/NAME-SEED.txt   what their processes printed
evaluations/         what runs that were given measure on this data
table.csv, runs.jsonl, curves.jsonl, curves-*.png, curves-*.svg, index.html
.lock                held by the process that compares
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from regard.arguments import check_files, check_path
from regard.config import to_table
from regard.data.device import choose_device
from regard.errors import ConfigError, RegardError
from regard.extend import IMPORTED, known_only_here
from regard.lab.comparison.budget import read_amount, read_budget
from regard.lab.comparison.folder import CompareRequest, check_stored, find_folder, hold_comparison, stored_recipes
from regard.lab.comparison.measure import given_record, open_data, references_of, trained_record
from regard.lab.comparison.models import find_contenders, find_task
from regard.lab.comparison.page import curve_rows, draw_comparison, write_comparison_page
from regard.lab.comparison.plan import ComparePlan, CompareSettings, check_changes, plan_recipes
from regard.lab.comparison.runs import ComparedRun, say, train_runs
from regard.lab.comparison.table import (
    Comparison,
    RunRecord,
    choose_metric,
    compare_records,
    title_of,
    write_tables,
)
from regard.lab.runner import draw_pictures
from regard.models.scale import SIZES
from regard.quantity import list_counts, short_count
from regard.recipe_files import split_changes
from regard.runs.records import read_metrics
from regard.tasks.kinds import TASKS
from regard.tasks.task import Task
from regard.terminal import plain_console
from regard.training.ranks import Ranks
from regard.training.validation import measured_rows

if TYPE_CHECKING:
    from rich.console import Console

RUNS_OF, LOGS_OF = "runs", "logs"

Names = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


def compare(
    *models: str | os.PathLike[str],
    on: Names,
    task: str | None = None,
    valid: Names = (),
    steps: object = None,
    tokens: object = None,
    flops: object = None,
    minutes: object = None,
    seeds: int = 3,
    size: str = "auto",
    parameters: object = None,
    own_optimizer: bool = False,
    out: str | Path | None = None,
    jobs: int | None = None,
    device: str = "auto",
    console: "Console | None" = None,
) -> Comparison:
    """Train recipes with an equal budget, `seeds` runs each, and compare them: `compare("gpt2", "lstm", on="a.txt")`.

    `models` are recipes by name or file, and folders of finished runs, which are measured and not trained again;
    changes such as "train.tokens=1024" hold for all recipes. `on` names the files to train on, `valid` those to measure
    on; by default a part is held out. The `task` follows from the models where that is certain.

    The budget is one of `steps`, `tokens`, `flops` and `minutes`; numbers may be texts such as "3M". Recipes of the
    package are scaled to suit the data, or to a `size` ("own" keeps their own), or to about `parameters` each. All get
    the optimizer that the task suggests; with `own_optimizer`, that of their file.

    `jobs` processes train at a time, by default as many as there is room for; 0 trains in this process, which is the
    default if parts are registered that other processes do not know, as in a notebook. Finished runs in the folder
    `out` are kept, stopped ones are resumed.
    """
    console = console or plain_console()
    names, changes = _split(models)
    files, held = check_files(on, "on"), check_files(valid, "valid")
    budget = read_budget({"steps": steps, "tokens": tokens, "flops": flops, "minutes": minutes})
    wanted = None if parameters is None else read_amount("parameters", parameters)
    _check_options(seeds, jobs, size, wanted)
    contenders = find_contenders(names)
    kind = find_task(contenders, files, task)
    recipes = [contender for contender in contenders if contender.recipe is not None]
    ranks = Ranks(0, 1, choose_device(device))
    table = {"kind": kind, **TASKS[kind].from_files(files, held)}
    if recipes:
        check_changes(changes)
        jobs = _jobs(jobs)
    elif budget or wanted or held:
        rule = "only runs are compared, which are not trained again"
        raise ConfigError(f"{rule}; leave the budget, parameters=... and valid=... out, or add a recipe")
    settings = CompareSettings(table, budget, size, wanted, tuple(changes), own_optimizer, ranks.device.type)
    found = find_folder(settings, kind, None if out is None else check_path(out, "out"))
    stored = stored_recipes(found)
    plan = None
    if recipes:
        quiet: Any = lambda text: None  # noqa: E731
        plan = plan_recipes(recipes, settings, stored, ranks, seeds, jobs, quiet)
        check_stored(found, plan, stored)
    with hold_comparison(found, settings, kind, plan) as folder:
        request = CompareRequest(contenders, files, held, seeds, changes, device, folder, settings)
        if plan is not None:
            _print_plan(console, request, plan)
        return _compare(request, plan, ranks, console)


def _jobs(asked: int | None) -> int | None:
    """Return the number of processes that was asked for; 0 if others do not know what is registered in this one."""
    own = known_only_here()
    if own and asked:
        rule = f"other processes do not know {own[0]!r}, which is registered in this one"
        raise ConfigError(f"jobs={asked}: {rule}; leave it out, or register it in a file for --import")
    return 0 if own else asked


def _split(models: Sequence[object]) -> tuple[list[Any], list[str]]:
    """Separate the models from the changes KEY=VALUE."""
    _, changes = split_changes([model for model in models if isinstance(model, str)])
    return [model for model in models if model not in changes], changes


def _check_options(seeds: int, jobs: int | None, size: str, parameters: float | None) -> None:
    if type(seeds) is not int or seeds < 1:
        raise ConfigError(f"seeds={seeds} must be a whole number of at least 1")
    if jobs is not None and (type(jobs) is not int or jobs < 0):
        raise ConfigError(f"jobs={jobs} must be a whole number of at least 0")
    if size not in ("auto", "own", *SIZES):
        raise ConfigError(f"size={size} is unknown; use auto, own, {', '.join(SIZES)}")
    if parameters is not None and size != "auto":
        raise ConfigError(f"size={size} and parameters=... each decide the size of the models; give one of them")
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise RegardError("a comparison starts its own processes; run it without torchrun")


# --- training and measuring ------------------------------------------------------------------------------------------


def _compare(request: CompareRequest, plan: ComparePlan | None, ranks: Ranks, console: "Console") -> Comparison:
    """Train what is not trained, measure, and write everything."""
    failures: dict[str, str] = {}
    records: list[RunRecord] = []
    own: set[Path] = set()  # runs whose curves are on the same validation data
    if plan is not None:
        runs = _runs(request, plan)
        failures = train_runs(runs, plan.jobs, devices_for(request.device, ranks), list(map(str, IMPORTED)), console)
        trained = [run for run in runs if run.title not in failures]
        records += [trained_record(run, plan, with_memory=plan.jobs > 0) for run in trained]
        own |= {run.folder for run in trained}
    for contender in request.contenders:
        if contender.run is not None:
            say(console, f"measuring {contender.name}")
            record, same_data = given_record(contender, request, plan, ranks)
            records.append(record)
            own |= {contender.run} if same_data else set()
    if not records:
        raise RegardError("; ".join(f"{run}: {reason}" for run, reason in failures.items()))
    task = open_data(request, ranks) if plan is None else plan.task
    metric = choose_metric(records, task.metric)
    rows, notes = compare_records(records, metric, references_of(task))
    notes += _notes(request, plan, records)
    table = Comparison(
        task.name, metric, task.unit, rows, [each.row() for each in records], notes, failures, request.folder
    )
    curves = curve_rows({(each.model, each.seed): read_metrics(each.folder) for each in records if each.folder in own})
    write_tables(table, curves)
    method = "" if plan is None else task.method(measured_rows(task, plan.recipes[0].config.train))
    pictures = tuple(draw_pictures(lambda: draw_comparison(curves, metric, task.unit, method), request.folder))
    recipes = (
        {} if plan is None else {each.contender.name: request.recipe(each.contender.name) for each in plan.recipes}
    )
    write_comparison_page(table, pictures, _facts(request, plan, task), request.command(), recipes)
    return table


def _runs(request: CompareRequest, plan: ComparePlan) -> list[ComparedRun]:
    """Return the runs of all recipes, seed by seed, so that every model has one early."""
    found = []
    for seed in range(request.seeds):
        for recipe in plan.recipes:
            name, steps = recipe.contender.name, recipe.config.train.steps
            folder, log = request.folder / RUNS_OF / f"{name}-{seed}", request.folder / LOGS_OF / f"{name}-{seed}.txt"
            path, metric = request.recipe(name), plan.task.metric
            found.append(ComparedRun(name, seed, steps, metric, path, folder, log))
    return found


def devices_for(device: str, ranks: Ranks) -> list[str]:
    """Return the devices that runs are spread over: all GPUs, unless the user named one."""
    if ranks.device.type == "cuda" and ranks.device.index is None:
        return [f"cuda:{number}" for number in range(torch.cuda.device_count())]
    return [device if device != "auto" else str(ranks.device)]


# --- what is said ----------------------------------------------------------------------------------------------------


def _print_plan(console: "Console", request: CompareRequest, plan: ComparePlan) -> None:
    for name, text in _facts(request, plan, plan.task).items():
        say(console, f"{name:10} {text}")
    for note in plan.notes:
        say(console, note, "yellow")
    for recipe in plan.recipes:
        for warning in recipe.warnings:
            say(console, f"{recipe.contender.name}: {warning}", "yellow")


def _facts(request: CompareRequest, plan: ComparePlan | None, task: Task) -> dict[str, str]:
    """Return how a comparison is run, by name."""
    facts = {
        "task": f"{task.name}, {title_of(task.metric)}",
        "data": f"{', '.join(request.files)} ({list_counts(task.facts())})",
    }
    if request.valid:
        facts["measured"] = f"on {', '.join(request.valid)}"
    if plan is None:
        return facts | {"folder": str(request.folder)}
    train = plan.recipes[0].config.train
    models = [f"{each.contender.name} ({short_count(each.parameters)})" for each in plan.recipes]
    facts["models"] = ", ".join(models)
    updates = sorted({each.config.train.steps for each in plan.recipes})
    steps = f"{updates[0]:,}" if len(updates) == 1 else f"{updates[0]:,} to {updates[-1]:,}"
    updates_each = f"{steps} updates of {train.tokens:,} tokens"
    facts["budget"] = updates_each if steps in plan.budget else f"{plan.budget}: {updates_each}"
    if request.settings.budget is None:
        facts["budget"] += ", by default (change it with --steps, --tokens, --flops or --minutes)"
    if task.tokenizer is not None and plan.recipes[0].config.tokenizer is not None:
        facts["tokenizer"] = f"{plan.recipes[0].config.tokenizer.kind}, {task.tokenizer.size:,} tokens"
    kinds = {
        f"{to_table(each.config.train.optimizer)['kind']}, {to_table(each.config.train.schedule)['kind']}"
        for each in plan.recipes
    }
    facts["optimizer"] = " or ".join(sorted(kinds)) + (" for all" if len(kinds) == 1 else "")
    seeds = ", ".join(map(str, range(request.seeds)))
    at_once = "in this process" if plan.jobs == 0 else f"{plan.jobs} at a time"
    threads = f", {train.threads} thread{'s' if train.threads > 1 else ''} each" if train.threads else ""
    facts["runs"] = f"seeds {seeds}; {at_once} on {request.settings.device}{threads}"
    return facts | {"folder": str(request.folder)}


def _notes(request: CompareRequest, plan: ComparePlan | None, records: Sequence[RunRecord]) -> Iterator[str]:
    """Yield what a reader must know to read the table."""
    if plan is not None:
        rule = "Each run is measured with the weights of its best validation, on the rows that chose them"
        yield f"{rule}: a little better than on new data, for all models alike."
        if plan.jobs > 1 and request.settings.device == "cpu":
            yield f"Speeds are those of {plan.jobs} runs at a time."
    given = [record.model for record in records if record.seed is None]
    if given and plan is not None:
        yield f"Not trained here, with a budget of their own: {', '.join(given)}."
