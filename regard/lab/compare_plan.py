"""Plan a comparison: the models, the task, an equal budget, and one complete recipe for each model.

Everything that is not the architecture is decided once for all: the data and the rows that are held out, the tokenizer,
the length of rows, the tokens of an update, the rule of the optimizer. The planner of `regard.train` does the rest.
"""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from math import ceil, isfinite
from pathlib import Path
from typing import Any

from regard.config import Table, kind_of, to_table
from regard.data.tables import is_table
from regard.errors import ConfigError, InputError, choices
from regard.machine import available_memory, suggest_threads
from regard.models.count import forward_flops, parameters
from regard.models.recipe import MODELS, ModelConfig, build_empty
from regard.models.store import WEIGHTS
from regard.recipe_files import read_recipe, recipe_names
from regard.runs.folder import is_run, not_a_run, read_run
from regard.tasks.kinds import TASKS
from regard.tasks.task import Task
from regard.training.config import RunConfig
from regard.training.memory import bytes_of_token
from regard.training.model_table import check_kind
from regard.training.planning import (
    STAGES,
    Draft,
    Say,
    choose_length,
    choose_model,
    choose_size,
    choose_training,
    count_affordable,
    plan_run,
    prepare_data,
    suggest_steps,
)
from regard.training.ranks import Ranks
from regard.training.request import RunRequest, with_absolute_paths

UNITS = {"steps": "updates", "tokens": "tokens", "flops": "FLOPs", "minutes": "minutes"}
SUFFIXES = {"k": 1e3, "M": 1e6, "G": 1e9, "B": 1e9, "T": 1e12, "P": 1e15}
DECIDED = ("train.seed", "train.steps", "train.minutes", "train.patience")  # by the comparison, the same for all
DEFAULT_SECONDS = 120.0  # about how long the run of the largest model takes if no budget is given
WIDTH_STEP = 8  # widths that are tried for a number of parameters are multiples of it
PROCESS_BYTES = 600_000_000  # of a process that trains, besides what its model needs
NAMES_OF_RUNS = "give the name of a recipe, a recipe file (.toml) or the folder of a run"


# --- the models ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Contender:
    """A model to compare: an architecture that is trained (`recipe`), or a run that is trained already (`run`)."""

    name: str
    recipe: str | Path | None = None
    run: Path | None = None

    @property
    def is_shipped(self) -> bool:
        """Whether it is a recipe of the package, which is scaled to suit the data."""
        return self.recipe is not None and str(self.recipe) in recipe_names()


def find_contenders(models: Iterable[object]) -> list[Contender]:
    """Find what is compared: names of recipes, recipe files, run folders."""
    found = [_find_contender(model) for model in models]
    if not found:
        raise ConfigError(f"nothing to compare; {NAMES_OF_RUNS}")
    for place, one in enumerate(found):
        for other in found[:place]:
            if one.name == other.name:
                given = sorted({str(each.recipe or each.run) for each in (one, other)})
                rule = f"{given[0]} is given twice" if len(given) == 1 else f"{' and '.join(given)} have the same name"
                raise ConfigError(f"{rule} ({one.name!r}); leave one of them out, or rename it")
    return found


def _find_contender(model: object) -> Contender:
    if not isinstance(model, str | os.PathLike):
        raise ConfigError(f"{model!r} cannot be compared; {NAMES_OF_RUNS}")
    text, path = str(os.fspath(model)), Path(model)
    named = text in recipe_names()
    if is_run(path):
        if named:
            raise ConfigError(f"{text!r} is both a recipe and a run; write ./{text} for the run")
        if not (path / WEIGHTS).is_file():
            remedy = f"finish it with: regard train --resume {text}"
            raise InputError(f"{text}: this run has no weights yet; {remedy}")
        return Contender(text, run=path)
    if named:
        return Contender(text, recipe=text)
    if text.endswith(".toml"):
        return Contender(path.stem, recipe=path)
    if path.exists():
        raise InputError(not_a_run(path, NAMES_OF_RUNS) if path.is_dir() else f"{text}: is a file; {NAMES_OF_RUNS}")
    raise ConfigError(f"{text!r} is neither a recipe nor a run; {choices(text, recipe_names())}")


def find_task(contenders: Sequence[Contender], files: Sequence[str], asked: str | None) -> str:
    """Return the kind of the task: as asked for, or the only one that all models and the files allow."""
    if asked is not None:
        if asked not in TASKS:
            raise ConfigError(f"unknown task {asked!r}; {choices(asked, TASKS)}")
        for contender in contenders:
            _check_task(contender, asked)
        return asked
    able = {contender.name: _tasks_of(contender) for contender in contenders}
    common = [task for task in TASKS if all(task in tasks for tasks in able.values())]
    if len(common) > 1 and not any(is_table(Path(name)) for name in files):
        common = [task for task in common if task != "classification"]  # which needs tables
    if len(common) == 1:
        return common[0]
    if not common:
        listed = "; ".join(f"{name}: {', '.join(tasks)}" for name, tasks in able.items())
        raise ConfigError(f"these models learn different tasks, so they cannot be compared ({listed})")
    raise ConfigError(f"the models can learn several tasks on this data; choose one with task={' or '.join(common)}")


def _tasks_of(contender: Contender) -> list[str]:
    """Return the kinds of tasks that a model can learn, or was trained for."""
    if contender.run is not None:
        return [kind_of(type(read_run(contender.run).task_config)) or ""]
    kind = str(_model_table(contender).get("kind"))
    return [task for task in TASKS if kind in TASKS[task].models or task in getattr(MODELS.get(kind), "tasks", ())]


def _check_task(contender: Contender, task: str) -> None:
    """Check that a model can learn the task, or that a run was trained for it."""
    if contender.run is not None:
        [trained] = _tasks_of(contender)
        if trained != task:
            raise InputError(f"{contender.name}: was trained for {trained}, not for {task}; leave it out")
        return
    with _naming(contender):
        check_kind(task, _model_table(contender).get("kind"))


def _model_table(contender: Contender) -> Mapping[str, Any]:
    assert contender.recipe is not None
    model = read_recipe(contender.recipe).get("model")
    if not isinstance(model, Mapping):
        raise ConfigError(f"{contender.recipe}: has no [model] table; add one, or give another recipe")
    return model


@contextmanager
def _naming(contender: Contender) -> Iterator[None]:
    """Put the name of the recipe in front of mistakes of its model."""
    try:
        yield
    except ConfigError as error:
        if not error.path.startswith("model"):
            raise
        raise ConfigError(error.rule, f"{contender.name}: {error.path}") from None


# --- the settings ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Budget:
    """What every model may spend: a number of steps, tokens, flops or minutes."""

    unit: str
    amount: float

    def __str__(self) -> str:
        return f"{self.amount:,.6g} {UNITS[self.unit]}"


def read_budget(given: Mapping[str, object]) -> Budget | None:
    """Return the budget, of which the user gives one at most; None if there is none."""
    found = {unit: amount for unit, amount in given.items() if amount is not None}
    if len(found) > 1:
        raise ConfigError(f"{' and '.join(f'{unit}={amount}' for unit, amount in found.items())}: give one of them")
    for unit, amount in found.items():
        return Budget(unit, read_amount(unit, amount))
    return None


def read_amount(name: str, given: object) -> float:
    """Read a positive number, which may have a suffix: 500, 2e15, 3M, 1.5k."""
    number: float | None = None
    if isinstance(given, int | float) and not isinstance(given, bool):
        number = float(given)
    elif isinstance(given, str):
        factor = SUFFIXES.get(given.strip()[-1:], 1.0)
        digits = given.strip()[:-1] if factor != 1.0 else given.strip()
        try:
            number = float(digits.replace(",", "")) * factor
        except ValueError:
            number = None
    least = 0 if name == "minutes" else 1
    if number is None or not isfinite(number) or number <= 0 or number < least:
        raise ConfigError(
            f"{name}={given} must be a number of {'more than 0' if least == 0 else 'at least 1'}, as in 3M"
        )
    return number if name == "minutes" else float(round(number))


@dataclass(frozen=True)
class CompareSettings:
    """What all runs of a comparison share; with other settings it is another comparison."""

    task: Table  # with its files
    budget: Budget | None  # None: the default, which is chosen from the data and the models
    size: str
    parameters: float | None
    changes: tuple[str, ...]
    own_optimizer: bool
    device: str  # its kind: cpu, cuda

    def table(self) -> Table:
        """Return the settings as JSON values, with absolute paths."""
        task = with_absolute_paths(self.task, TASKS[self.task["kind"]].file_keys)
        budget = None if self.budget is None else {self.budget.unit: self.budget.amount}
        rest = {"size": self.size, "parameters": self.parameters, "changes": sorted(self.changes)}
        return {"task": task, "budget": budget, **rest, "own_optimizer": self.own_optimizer, "device": self.device}


def check_changes(changes: Sequence[str]) -> None:
    """Reject changes of what a comparison decides itself."""
    for change in changes:
        if change.partition("=")[0].strip() in DECIDED:
            rule = "a comparison decides this itself, the same for all"
            raise ConfigError(f"{change!r}: {rule}; give steps=N, tokens=N, flops=N or minutes=N, and seeds=N")


# --- one recipe for each model ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RecipePlan:
    """What is trained of one recipe: a complete config, in which only the seed differs between runs."""

    contender: Contender
    config: RunConfig
    parameters: int
    warnings: tuple[str, ...]


@dataclass(frozen=True)
class ComparePlan:
    """All recipes of a comparison, the data, and how many runs are trained at a time."""

    recipes: tuple[RecipePlan, ...]
    task: Task
    budget: str  # in words
    jobs: int
    notes: tuple[str, ...]


def plan_recipes(
    contenders: Sequence[Contender],
    settings: CompareSettings,
    stored: Mapping[str, RunConfig],
    ranks: Ranks,
    seeds: int,
    jobs: int | None,
    say: Say,
) -> ComparePlan:
    """Decide everything; `stored` are the configs of a comparison that is continued, whose choices are kept."""
    known = next(iter(stored.values()), None)
    notes = [] if settings.own_optimizer else [*_left_out(contenders)]
    requests = _with_one_length(contenders, settings, known, ranks, say)
    first = _draft(requests[0], ranks, say, prepare_data)
    requests = [
        _with_size(contender, request, settings, first) for contender, request in zip(contenders, requests, strict=True)
    ]
    drafts = []
    for contender, request in zip(contenders, requests, strict=True):
        with _naming(contender):
            draft = _draft(request, ranks, say, choose_training)
            if settings.parameters is not None:
                request = _with_parameters(request, draft, round(settings.parameters))
                draft = _draft(request, ranks, say, choose_training)
        drafts.append(draft)
    requests = [draft.request for draft in drafts]
    at_once = _count_jobs(drafts, seeds * len(drafts), settings, jobs)
    threads = _threads(known, settings, at_once, ranks)
    steps = {name: config.train.steps for name, config in stored.items()}
    default = _default_steps(drafts, known) if settings.budget is None else None
    plans = []
    for contender, request, draft in zip(contenders, requests, drafts, strict=True):
        request = replace(request, overrides=(*request.overrides, *threads))
        with _naming(contender):
            count = steps.get(contender.name) or default or _steps_for(settings.budget, request, draft, ranks, say)
            final = replace(request, overrides=(*request.overrides, f"train.steps={count}", "train.patience=none"))
            plan = plan_run(final, ranks, say)
        assert plan.config.model is not None
        plans.append(RecipePlan(contender, plan.config, count_parameters(plan.config.model), plan.warnings))
    words = f"{default:,} updates each" if default else f"{settings.budget} each"
    return ComparePlan(tuple(plans), first.task, words, at_once, tuple(notes))


def _draft(request: RunRequest, ranks: Ranks, say: Say, last: Any) -> Draft:
    """Plan a run up to a stage."""
    draft = Draft(request, ranks, say)
    for stage in STAGES[: STAGES.index(last) + 1]:
        stage(draft)
    return draft


def _left_out(contenders: Sequence[Contender]) -> Iterator[str]:
    """Yield a note for each recipe with training settings of its own, which are not used."""
    for contender in contenders:
        if contender.recipe is not None and "train" in read_recipe(contender.recipe):
            rule = "its [train] table is left out, so that all models get one rule"
            yield f"{contender.name}: {rule}; --own-optimizer uses its optimizer and schedule"


def _own_training(recipe: str | Path) -> list[str]:
    """Return the optimizer and the schedule of a recipe as overrides."""
    train = read_recipe(recipe).get("train", {})
    tables = {key: train[key] for key in ("optimizer", "schedule") if key in train}
    return list(_as_changes(tables, "train"))


def _as_changes(table: Mapping[str, Any], path: str) -> Iterator[str]:
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from _as_changes(value, f"{path}.{key}")
        else:
            yield f"{path}.{key}={str(value).lower() if isinstance(value, bool) else value}"


def _with_one_length(
    contenders: Sequence[Contender], settings: CompareSettings, known: RunConfig | None, ranks: Ranks, say: Say
) -> list[RunRequest]:
    """Return the request of each recipe with rows of one length: the least that a model allows."""
    requests, lengths = [], []
    key = TASKS[settings.task["kind"]].length_key
    for contender in contenders:
        assert contender.recipe is not None
        own = _own_training(contender.recipe) if settings.own_optimizer else []
        request = RunRequest(settings.task, (*settings.changes, *own), recipe=contender.recipe)
        with _naming(contender):
            draft = _draft(request, ranks, say, choose_length)
        requests.append(request)
        if key is not None:
            lengths.append(getattr(draft.task_config, key))
    if key is None:
        return requests
    length = min(lengths) if known is None else getattr(known.task, key)
    given = any(change.partition("=")[0].strip() == f"task.{key}" for change in settings.changes)
    change = () if given else (f"task.{key}={length}",)
    return [replace(request, overrides=(*request.overrides, *change)) for request in requests]


def _with_size(contender: Contender, request: RunRequest, settings: CompareSettings, first: Draft) -> RunRequest:
    """Return the request in the size that was asked for; a recipe of the package is scaled to suit the data."""
    size = settings.size
    if size == "own" or settings.parameters is not None:
        return request
    if size == "auto" and not contender.is_shipped:
        return request
    return replace(request, size=choose_size(size, first.task.amount(), first.device))


def _with_parameters(request: RunRequest, draft: Draft, wanted: int) -> RunRequest:
    """Return the request with the width at which the model has about that many parameters, by bisection."""
    own = draft.changes["model"]

    def count(width: int) -> int:
        draft.changes["model"] = [*own, f"model.dim={width * WIDTH_STEP}"]
        choose_model(draft)
        assert draft.model is not None
        return count_parameters(draft.model)

    low, high = 1, 2
    if count(low) > wanted:
        least = f"{count(low):,} at a width of {WIDTH_STEP}"
        raise ConfigError(f"{wanted:,} parameters are too few: it has {least}; raise parameters={wanted}", "model.dim")
    while count(high) < wanted:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if count(middle) < wanted else (low, middle)
    best = min((low, high), key=lambda width: abs(count(width) - wanted))
    return replace(request, overrides=(*request.overrides, f"model.dim={best * WIDTH_STEP}"))


def count_parameters(config: ModelConfig) -> int:
    """Count the parameters of a model without allocating them."""
    return parameters(build_empty(config))


# --- the budget ------------------------------------------------------------------------------------------------------


def _default_steps(drafts: Sequence[Draft], known: RunConfig | None) -> int:
    """Return the updates of each run if the user gives no budget: about two minutes for the largest model."""
    if known is not None:
        return known.train.steps
    return min(map(_affordable_steps, drafts))


def _affordable_steps(draft: Draft) -> int:
    update = _updates(draft)
    tokens, amount = draft.train_table["tokens"], draft.task.amount()
    wanted = draft.task_config.passes * amount.tokens / tokens
    if update.flops is None:
        return suggest_steps(wanted, wanted)
    return suggest_steps(wanted, count_affordable(DEFAULT_SECONDS, update.flops / 3 / tokens, tokens, draft.device))


def _steps_for(budget: Budget | None, request: RunRequest, draft: Draft, ranks: Ranks, say: Say) -> int:
    """Return how many updates of a model the budget allows."""
    assert budget is not None
    if budget.unit == "steps":
        return int(budget.amount)
    if budget.unit == "minutes":
        timed = replace(request, overrides=(*request.overrides, f"train.minutes={budget.amount}"))
        return plan_run(timed, ranks, say).config.train.steps
    update = _updates(draft)
    spent = update.tokens if budget.unit == "tokens" else update.flops
    if spent is None:
        raise ConfigError("a part of it does not count its FLOPs, so they cannot be equal; give steps=N", "model")
    return max(1, ceil(budget.amount / spent))


@dataclass(frozen=True)
class MeanUpdate:
    """What an update costs on average: tokens of the data without padding, and FLOPs as they are padded, if known."""

    tokens: float
    flops: float | None


def _updates(draft: Draft) -> MeanUpdate:
    """Count the updates of one pass over the data."""
    assert draft.model is not None
    model, rows_of_shape, count = build_empty(draft.model), dict[tuple[int, ...], int](), 0
    for draw in draft.task.feed(model, draft.train_table["tokens"], 0).order.epoch(0):
        count += 1
        rows_of_shape[draw.shape] = rows_of_shape.get(draw.shape, 0) + len(draw.rows)
    costs = [(forward_flops(model, max(shape, default=1)), rows) for shape, rows in rows_of_shape.items()]
    flops = sum(3 * (row or 0) * rows for row, rows in costs) * draft.task.passes() / count
    known = all(row is not None for row, _ in costs)
    return MeanUpdate(draft.task.amount().tokens / count, flops if known else None)


# --- how many at a time ----------------------------------------------------------------------------------------------


def _count_jobs(drafts: Sequence[Draft], runs: int, settings: CompareSettings, asked: int | None) -> int:
    """Return how many runs are trained at a time: as many as there are free cores or GPUs, and memory for them.

    Where time is the budget, runs on a CPU would slow each other down, so there is one at a time.
    """
    if asked is not None:
        return min(asked, runs)
    if drafts[0].device == "cuda":
        return min(runs, _count_devices(drafts[0].ranks))
    if drafts[0].device != "cpu" or (settings.budget is not None and settings.budget.unit == "minutes"):
        return 1
    free = available_memory()
    room = runs if free is None else max(1, free // max(map(_bytes_of_run, drafts)))
    return min(runs, suggest_threads(), room)


def _count_devices(ranks: Ranks) -> int:
    import torch

    return 1 if ranks.device.index is not None else torch.cuda.device_count()


def _bytes_of_run(draft: Draft) -> int:
    """Return about how many bytes a process needs that trains this model."""
    assert draft.model is not None
    model = build_empty(draft.model)
    weights = sum(weight.numel() * weight.element_size() for weight in model.parameters())
    each = bytes_of_token(model, draft.task) or 0
    copies = 4 * weights  # weights, gradients and the moments of AdamW
    return PROCESS_BYTES + copies + each * int(draft.train_table["tokens"])


def _threads(known: RunConfig | None, settings: CompareSettings, jobs: int, ranks: Ranks) -> tuple[str, ...]:
    """Return the change that gives all runs the same number of threads on a CPU."""
    given = any(change.partition("=")[0].strip() == "train.threads" for change in settings.changes)
    if ranks.device.type != "cpu" or given:
        return ()
    count = known.train.threads if known is not None else max(1, suggest_threads() // max(jobs, 1))
    return () if count is None else (f"train.threads={count}",)


def differing_key(before: RunConfig, now: RunConfig) -> str | None:
    """Return the first key in which two configs of a recipe differ; how updates are split does not count."""

    def table(config: RunConfig) -> Table:
        return to_table(replace(config, train=replace(config.train, accumulate=1)))

    return next(_differences(table(before), table(now), ""), None)


def _differences(before: Any, now: Any, path: str) -> Iterator[str]:
    if isinstance(before, Mapping) and isinstance(now, Mapping):
        for key in dict.fromkeys((*before, *now)):
            yield from _differences(before.get(key), now.get(key), f"{path}.{key}" if path else key)
    elif before != now:
        yield path
