"""Plan a comparison: the models, the task, an equal budget, and one complete recipe for each model.

Everything that is not the architecture is decided once for all: the data and the rows that are held out, the tokenizer,
the length of rows, the tokens of an update, the rule of the optimizer. The planner of `regard.train` does the rest.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from regard.config import Table, to_table
from regard.errors import ConfigError
from regard.lab.comparison.budget import Budget, default_steps, steps_for
from regard.lab.comparison.models import Contender, naming_recipe
from regard.machine import THREADS, available_memory, suggest_threads
from regard.models.count import parameters
from regard.models.recipe import ModelConfig, build_empty
from regard.recipe_files import override_path, read_recipe
from regard.tasks.kinds import TASKS
from regard.tasks.task import Task
from regard.training.config import RunConfig
from regard.training.draft import Draft, Say
from regard.training.memory import memory_of_update
from regard.training.model_choice import choose_model
from regard.training.planning import STAGES, choose_length, choose_training, plan_run, prepare_data
from regard.training.ranks import Ranks
from regard.training.request import RunRequest, with_absolute_paths
from regard.training.suggestions import choose_size

DECIDED = ("train.seed", "train.steps", "train.minutes", "train.patience")  # by the comparison, the same for all
WIDTH_STEP = 8  # widths that are tried for a number of parameters are multiples of it
PROCESS_BYTES = 600_000_000  # of a process that trains, besides what its model needs


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
        if override_path(change) in DECIDED:
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
        with naming_recipe(contender):
            draft = _draft(request, ranks, say, choose_training)
            if settings.parameters is not None:
                request = _with_parameters(request, draft, round(settings.parameters))
                draft = _draft(request, ranks, say, choose_training)
        drafts.append(draft)
    requests = [draft.request for draft in drafts]
    at_once = _count_jobs(drafts, seeds * len(drafts), settings, jobs)
    threads = _threads(known, settings, at_once, ranks)
    steps = {name: config.train.steps for name, config in stored.items()}
    default = default_steps(drafts, known) if settings.budget is None else None
    plans = []
    for contender, request, draft in zip(contenders, requests, drafts, strict=True):
        request = replace(request, overrides=(*request.overrides, *threads))
        with naming_recipe(contender):
            count = steps.get(contender.name) or default or steps_for(settings.budget, request, draft, ranks, say)
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
        with naming_recipe(contender):
            draft = _draft(request, ranks, say, choose_length)
        requests.append(request)
        if key is not None:
            lengths.append(getattr(draft.task_config, key))
    if key is None:
        return requests
    length = min(lengths) if known is None else getattr(known.task, key)
    given = any(override_path(change) == f"task.{key}" for change in settings.changes)
    change = () if given else (f"task.{key}={length}",)
    return [replace(request, overrides=(*request.overrides, *change)) for request in requests]


def _with_size(contender: Contender, request: RunRequest, settings: CompareSettings, first: Draft) -> RunRequest:
    """Return the request in the size that was asked for; a recipe of the package is scaled to suit the data."""
    size = settings.size
    if size == "own" or settings.parameters is not None:
        return request
    if size == "auto" and not contender.is_shipped:
        return request
    return replace(request, size=choose_size(size, first.task_config, first.task.amount(), first.device))


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
    return min(runs, _free_cores(), room)


def _free_cores() -> int:
    """Return how many cores the runs may use together: as many as the user said, or as are free."""
    chosen = os.environ.get(THREADS, "")
    return int(chosen) if chosen.isdigit() and int(chosen) > 0 else suggest_threads()


def _count_devices(ranks: Ranks) -> int:
    import torch

    return 1 if ranks.device.index is not None else torch.cuda.device_count()


def _bytes_of_run(draft: Draft) -> int:
    """Return about how many bytes a process needs that trains this model."""
    assert draft.model is not None
    model = build_empty(draft.model)
    weights = sum(weight.numel() * weight.element_size() for weight in model.parameters())
    update = memory_of_update(model, draft.task)
    copies = 4 * weights  # weights, gradients and the moments of AdamW
    return PROCESS_BYTES + copies + (0 if update is None else update.of(int(draft.train_table["tokens"])))


def _threads(known: RunConfig | None, settings: CompareSettings, jobs: int, ranks: Ranks) -> tuple[str, ...]:
    """Return the change that gives all runs the same number of threads on a CPU."""
    given = any(override_path(change) == "train.threads" for change in settings.changes)
    if ranks.device.type != "cpu" or given:
        return ()
    count = known.train.threads if known is not None else max(1, _free_cores() // max(jobs, 1))
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
