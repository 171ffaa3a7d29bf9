"""`regard compare`: train several architectures with an equal budget, and say which differences are more than noise.

comparison.json      what all runs share; a folder with other settings is refused
recipes/NAME.toml    the complete recipe of each model
runs/NAME-SEED/      the runs, as `regard train` writes them
logs/NAME-SEED.txt   what their processes printed
evaluations/         what runs that were given measure on this data
table.csv, runs.jsonl, curves.jsonl, curves-*.png, curves-*.svg, index.html
.lock                held by the process that compares
"""

import json
import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from hashlib import sha256 as hash_text
from itertools import count
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from regard.atomic import explain_write_errors, lock, make_folder, sha256, write_text
from regard.config import from_table, to_table, to_toml
from regard.data.device import choose_device
from regard.errors import ConfigError, InputError, RegardError
from regard.extend import IMPORTED
from regard.lab.compare_page import curve_rows, draw_comparison, write_comparison_page
from regard.lab.compare_plan import (
    ComparePlan,
    CompareSettings,
    Contender,
    check_changes,
    count_parameters,
    differing_key,
    find_contenders,
    find_task,
    plan_recipes,
    read_amount,
    read_budget,
)
from regard.lab.compare_runs import ComparedRun, say, train_runs
from regard.lab.compare_table import (
    Comparison,
    RunRecord,
    choose_metric,
    compare_records,
    short_count,
    title_of,
    write_tables,
)
from regard.lab.runner import draw_pictures
from regard.models.scale import SIZES
from regard.models.store import WEIGHTS
from regard.recipe_files import read_recipe, split_changes
from regard.runs.layout import LOCK
from regard.runs.records import read_metrics
from regard.tasks.kinds import TASKS
from regard.tasks.task import Task
from regard.tasks.translation import Translation
from regard.training.config import RunConfig
from regard.training.ranks import Ranks
from regard.training.result import RunResult, read_result, write_result
from regard.training.run import Run, open_run
from regard.untrusted import JsonError, read_json
from regard.use.evaluate import Evaluation

COMPARISONS = Path("comparisons")  # where comparisons are that the user gives no folder
SHARED, RECIPES_OF, RUNS_OF, LOGS_OF, EVALUATIONS = "comparison.json", "recipes", "runs", "logs", "evaluations"
REMEDY = "choose another folder with --out"

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
    console: Console | None = None,
) -> Comparison:
    """Train recipes with an equal budget, `seeds` runs each, and compare them: `compare("gpt2", "lstm", on="a.txt")`.

    `models` are recipes by name or file, and folders of finished runs, which are measured and not trained again;
    changes such as "train.tokens=1024" hold for all recipes. `on` names the files to train on, `valid` those to measure
    on; by default a part is held out. The `task` follows from the models where that is certain.

    The budget is one of `steps`, `tokens`, `flops` and `minutes`; numbers may be texts such as "3M". Recipes of the
    package are scaled to suit the data, or to a `size` ("own" keeps their own), or to about `parameters` each. All get
    the optimizer that the task suggests; with `own_optimizer`, that of their file.

    `jobs` processes train at a time, by default as many as there is room for; 0 trains in this process, which is needed
    for parts that were registered in a notebook. Finished runs in the folder `out` are kept, stopped ones are resumed.
    """
    console = console or Console()
    names, changes = _split(models)
    files, held = _names(on), _names(valid)
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
    elif budget or wanted or held:
        rule = "only runs are compared, which are not trained again"
        raise ConfigError(f"{rule}; leave the budget, parameters=... and valid=... out, or add a recipe")
    settings = CompareSettings(table, budget, size, wanted, tuple(changes), own_optimizer, ranks.device.type)
    found = find_folder(settings, kind, None if out is None else Path(out))
    stored = _stored_recipes(found)
    plan = None
    if recipes:
        quiet: Any = lambda text: None  # noqa: E731
        plan = plan_recipes(recipes, settings, stored, ranks, seeds, jobs, quiet)
        _check_stored(found, plan, stored)
    with _hold_comparison(found, settings, kind, plan) as folder:
        request = CompareRequest(contenders, files, held, seeds, changes, device, folder, settings)
        if plan is not None:
            _print_plan(console, request, plan)
        return _compare(request, plan, ranks, console)


@dataclass(frozen=True)
class CompareRequest:
    """What is compared, and where."""

    contenders: Sequence[Contender]
    files: Sequence[str]
    valid: Sequence[str]
    seeds: int
    changes: Sequence[str]
    device: str
    folder: Path
    settings: CompareSettings

    def command(self) -> str:
        """Return the command that continues the comparison."""
        words = ["regard", "compare", *(str(each.recipe or each.run) for each in self.contenders)]
        for option, names in (("--on", self.files), ("--valid", self.valid)):
            words += [word for name in names for word in (option, name)]
        words += ["--task", self.settings.task["kind"]]
        if budget := self.settings.budget:
            words += [f"--{budget.unit}", f"{budget.amount:.15g}"]
        words += ["--seeds", str(self.seeds)]
        words += ["--size", self.settings.size] if self.settings.size != "auto" else []
        words += ["--parameters", f"{self.settings.parameters:.15g}"] if self.settings.parameters else []
        words += ["--own-optimizer"] if self.settings.own_optimizer else []
        words += ["--device", self.device] if self.device != "auto" else []
        return shlex.join([*words, "--out", str(self.folder), *self.changes])


def _split(models: Sequence[object]) -> tuple[list[Any], list[str]]:
    """Separate the models from the changes KEY=VALUE."""
    _, changes = split_changes([model for model in models if isinstance(model, str)])
    return [model for model in models if model not in changes], changes


def _names(given: Names) -> list[str]:
    names = [given] if isinstance(given, str | os.PathLike) else list(given)
    return [os.fspath(name) for name in names]


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


# --- the folder ------------------------------------------------------------------------------------------------------


def find_folder(settings: CompareSettings, kind: str, out: Path | None) -> Path | None:
    """Return the folder `out`, or the one that has a comparison with these settings; None if there is none yet."""
    if out is None:
        for path in sorted(COMPARISONS.glob(f"{kind}-*/{SHARED}")) if COMPARISONS.is_dir() else []:
            with suppress(RegardError):  # another comparison may be damaged
                if _shared(path).get("settings") == settings.table():
                    return path.parent
        return None
    if out.exists() and not out.is_dir():
        raise RegardError(f"{out}: is a file; {REMEDY}")
    path = out / SHARED
    if not path.exists():
        if out.is_dir() and any(not item.name.startswith(".") for item in out.iterdir()):
            raise RegardError(f"{out}: holds something else; {REMEDY}")
        return out
    there, here = _shared(path).get("settings", {}), settings.table()
    for name, value in here.items():
        if there.get(name) != value:
            rule = f"{name} is {there.get(name)!r} there and {value!r} here"
            raise RegardError(f"{out}: holds a comparison with other settings: {rule}; {REMEDY}")
    return out


def _shared(path: Path) -> dict[str, Any]:
    try:
        return read_json(path)
    except JsonError as error:
        raise RegardError(f"{path}: {error.reason}; {REMEDY}, or remove this one") from None


def _stored_recipes(folder: Path | None) -> dict[str, RunConfig]:
    """Return the complete recipes of a comparison that is continued, by model."""
    if folder is None:
        return {}
    return {
        path.stem: from_table(read_recipe(path), RunConfig) for path in sorted((folder / RECIPES_OF).glob("*.toml"))
    }


def _check_stored(folder: Path | None, plan: ComparePlan, stored: Mapping[str, RunConfig]) -> None:
    """Check that what was trained before is what would be trained now."""
    if folder is None or not (folder / SHARED).exists():
        return
    if _shared(folder / SHARED).get("data") != plan.task.fingerprint():
        raise RegardError(f"{folder}: the data has changed since this comparison began; restore it, or {REMEDY}")
    for recipe in plan.recipes:
        name = recipe.contender.name
        key = differing_key(stored[name], recipe.config) if name in stored else None
        if key is not None:
            rule = f"{name} has changed since this comparison began: {key}"
            raise RegardError(f"{folder}: {rule}; give it another name, or {REMEDY}")


@contextmanager
def _hold_comparison(
    found: Path | None, settings: CompareSettings, kind: str, plan: ComparePlan | None
) -> Iterator[Path]:
    """Take the folder, write what all runs share, and hold its lock during the block."""
    folder = found or _next_folder(kind)
    make_folder(folder, REMEDY)
    with lock(folder / LOCK, f"wait until it ends, or {REMEDY}"):
        shared = {"settings": settings.table(), "data": None if plan is None else plan.task.fingerprint()}
        write_text(folder / SHARED, json.dumps(shared, indent=2, ensure_ascii=False) + "\n", REMEDY)
        for recipe in () if plan is None else plan.recipes:
            path = folder / RECIPES_OF / f"{recipe.contender.name}.toml"
            if not path.exists():
                make_folder(path.parent)
                write_text(path, to_toml(recipe.config))
        yield folder


def _next_folder(kind: str) -> Path:
    """Create the next folder of comparisons."""
    for number in count(1):
        folder = COMPARISONS / f"{kind}-{number}"
        with explain_write_errors(folder, REMEDY), suppress(FileExistsError):
            COMPARISONS.mkdir(exist_ok=True)
            folder.mkdir()
            return folder
    raise AssertionError


# --- training and measuring ------------------------------------------------------------------------------------------


def _compare(request: CompareRequest, plan: ComparePlan | None, ranks: Ranks, console: Console) -> Comparison:
    """Train what is not trained, measure, and write everything."""
    failures: dict[str, str] = {}
    records: list[RunRecord] = []
    own: set[Path] = set()  # runs whose curves are on the same validation data
    if plan is not None:
        runs = _runs(request, plan)
        failures = train_runs(runs, plan.jobs, _devices(request.device, ranks), list(map(str, IMPORTED)), console)
        trained = [run for run in runs if run.title not in failures]
        records += [_trained_record(run, plan, with_memory=plan.jobs > 0) for run in trained]
        own |= {run.folder for run in trained}
    for contender in request.contenders:
        if contender.run is not None:
            say(console, f"measuring {contender.name}")
            record, same_data = _given_record(contender, request, plan, ranks)
            records.append(record)
            own |= {contender.run} if same_data else set()
    if not records:
        raise RegardError("; ".join(f"{run}: {reason}" for run, reason in failures.items()))
    task = _open_data(request, ranks) if plan is None else plan.task
    metric = choose_metric(records, task.metric)
    rows, notes = compare_records(records, metric, _references(task))
    notes += _notes(request, plan, records)
    table = Comparison(
        task.name, metric, task.unit, rows, [each.row() for each in records], notes, failures, request.folder
    )
    curves = curve_rows({(each.model, each.seed): read_metrics(each.folder) for each in records if each.folder in own})
    write_tables(table, curves)
    method = "" if plan is None else task.method(plan.recipes[0].config.train.valid_rows)
    pictures = tuple(draw_pictures(lambda: draw_comparison(curves, metric, method), request.folder))
    recipes = (
        {} if plan is None else {each.contender.name: _recipe_path(request, each.contender) for each in plan.recipes}
    )
    write_comparison_page(table, pictures, _facts(request, plan, task), request.command(), recipes)
    return table


def _recipe_path(request: CompareRequest, contender: Contender) -> Path:
    return request.folder / RECIPES_OF / f"{contender.name}.toml"


def _runs(request: CompareRequest, plan: ComparePlan) -> list[ComparedRun]:
    """Return the runs of all recipes, seed by seed, so that every model has one early."""
    found = []
    for seed in range(request.seeds):
        for recipe in plan.recipes:
            name, steps = recipe.contender.name, recipe.config.train.steps
            folder, log = request.folder / RUNS_OF / f"{name}-{seed}", request.folder / LOGS_OF / f"{name}-{seed}.txt"
            path, metric = _recipe_path(request, recipe.contender), plan.task.metric
            found.append(ComparedRun(name, seed, steps, metric, path, folder, log))
    return found


def _devices(device: str, ranks: Ranks) -> list[str]:
    """Return the devices that runs are spread over: all GPUs, unless the user named one."""
    if ranks.device.type == "cuda" and ranks.device.index is None:
        return [f"cuda:{number}" for number in range(torch.cuda.device_count())]
    return [device if device != "auto" else str(ranks.device)]


def _trained_record(run: ComparedRun, plan: ComparePlan, with_memory: bool) -> RunRecord:
    result = read_result(run.folder)
    assert result is not None
    [parameters] = [each.parameters for each in plan.recipes if each.contender.name == run.name]
    spent = _spent(run.folder, with_memory)
    return RunRecord(run.name, run.seed, run.folder, result.evaluation, parameters, spent, _checksum(plan.task))


def _checksum(task: Task) -> str | None:
    return None if task.tokenizer is None else task.tokenizer.fingerprint()


def _spent(folder: Path, with_memory: bool) -> dict[str, int | float]:
    """Return what a run cost, from the last line of its log: steps, tokens, seconds, flops; and the peak of memory."""
    train = [record for record in read_metrics(folder) if record.get("kind") == "train"]
    if not train:
        return {}
    last = train[-1]
    spent = {key: last[key] for key in ("tokens", "seconds", "flops") if isinstance(last.get(key), int | float)}
    peak = max(int(record.get("memory") or 0) for record in train)
    return {"steps": last["step"], **spent, **({"memory": peak} if with_memory and peak else {})}


def _given_record(
    contender: Contender, request: CompareRequest, plan: ComparePlan | None, ranks: Ranks
) -> tuple[RunRecord, bool]:
    """Measure a run that was given; return it, and whether its own validation data is that of the comparison."""
    assert contender.run is not None
    run = open_run(contender.run)
    files = request.valid if plan is not None else request.files
    tokenizer = run.tokenizer()
    parameters = count_parameters(run.model_config)
    same = False
    if files:
        evaluation = _measured(run, files, request, ranks)
    else:
        assert plan is not None
        same = run.task().fingerprint() == plan.task.fingerprint()
        if not same:
            rule = "may have learned from the rows that are held out of this data, as it was trained on other data"
            raise InputError(f"{contender.name}: {rule}; give files to measure all models on: --valid FILE")
        kept = read_result(contender.run)
        evaluation = run.evaluate(device=str(ranks.device)) if kept is None else kept.evaluation
    checksum = None if tokenizer is None else tokenizer.fingerprint()
    spent = _spent(contender.run, with_memory=True)
    return RunRecord(contender.name, None, contender.run, evaluation, parameters, spent, checksum), same


def _measured(run: Run, files: Sequence[str], request: CompareRequest, ranks: Ranks) -> Evaluation:
    """Measure a run on files, unless the same weights were measured on them before."""
    key = hash_text("\n".join((str(run.folder.resolve()), *request.files, *files)).encode()).hexdigest()[:16]
    folder, weights = request.folder / EVALUATIONS / key, sha256(run.folder / WEIGHTS)
    kept = read_result(folder)
    if kept is not None and kept.weights == weights:
        return kept.evaluation
    evaluation = run.load(str(ranks.device)).evaluate(*files, *(request.changes if not request.valid else ()))
    make_folder(folder)
    write_result(folder, RunResult(0, weights, evaluation))
    return evaluation


def _open_data(request: CompareRequest, ranks: Ranks) -> Task:
    """Open the data of a comparison of runs alone, as the first one reads it."""
    assert request.contenders[0].run is not None
    return open_run(request.contenders[0].run).files.open_task(request.files, columns=request.changes)


def _references(task: Task) -> list[str]:
    return [target for _, target in task.valid_texts] if isinstance(task, Translation) else []


# --- what is said ----------------------------------------------------------------------------------------------------


def _print_plan(console: Console, request: CompareRequest, plan: ComparePlan) -> None:
    for name, text in _facts(request, plan, plan.task).items():
        say(console, f"{name:10} {text}")
    for note in plan.notes:
        say(console, note, "yellow")
    for recipe in plan.recipes:
        for warning in recipe.warnings:
            say(console, f"{recipe.contender.name}: {warning}", "yellow")


def _facts(request: CompareRequest, plan: ComparePlan | None, task: Task) -> dict[str, str]:
    """Return how a comparison is run, by name."""
    counts = ", ".join(f"{number:,} {name if number != 1 else name[:-1]}" for name, number in task.facts().items())
    facts = {"task": f"{task.name}, {title_of(task.metric)}", "data": f"{', '.join(request.files)} ({counts})"}
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
