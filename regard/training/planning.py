"""Planning a run: `STAGES`, one after the other, fill in one `Draft` until nothing is left to decide.

What the task suggests (tasks/defaults.py and the task's own file) overrides the recipe, and what the user wrote
overrides both. The source of each value is recorded, with the name of the function that suggested it; `regard train ...
--dry-run` prints them.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields, replace
from math import ceil
from pathlib import Path
from typing import Any

import torch
from torch import nn

from regard.config import Table, from_table, to_table
from regard.data.tokenizer import LEAST, TokenizerConfig
from regard.data.tokenizer_folder import has_tokenizer
from regard.errors import ConfigError, choices
from regard.machine import THREADS, suggest_threads
from regard.models.count import flops_per_token
from regard.models.recipe import ModelConfig, build_empty, load_recipe
from regard.models.scale import HEADS, SIZES, Size, part_sizes, scale_model
from regard.recipe_files import merge, override, read_own, read_recipe
from regard.tasks.defaults import Amount, TaskConfig, suggest_schedule
from regard.tasks.kinds import TASKS
from regard.tasks.task import Task
from regard.training.config import RunConfig, TrainConfig
from regard.training.memory import split_to_fit
from regard.training.model_table import (
    changed_values,
    check_complete,
    check_kind,
    fill_missing,
    find_size,
    fit_to_data,
    table_below,
)
from regard.training.pretrained import Pretrained
from regard.training.ranks import Ranks
from regard.training.request import (
    BY_KIND,
    RunRequest,
    UserChoices,
    apply_named,
    check_tables,
    kind_below,
    read_user_choices,
    sort_overrides,
    with_absolute_paths,
    with_plain_paths,
)
from regard.training.trial import time_updates
from regard.use.box import find_model

Say = Callable[[str], None]

SECONDS = 1200.0  # about how long a run takes if the user does not say: twenty minutes
SPEED = {"cpu": 8e10, "cuda": 1e14}  # FLOPs per second that are assumed for it
UPDATE_SHARE = 0.8  # of the time that `train.minutes` asks for; the rest is for validations
LEAST_STEPS = 100  # updates of a run, however little data there is
FEW_STEPS = 500  # updates in which a model hardly begins to learn
PRETRAINED_PASSES = 3  # passes over the data for a model that starts from trained weights
ACCELERATED = 4  # factor for the tokens of an update on an accelerator
PATIENCE = 0.4  # the share of a run without a better validation after which it stops
PASS_UPDATES = 40  # updates of a pass over the data that an accelerator leaves at least
LEAST_PATIENCE = 5  # validations without a better one, however few there are
LEAST_PATIENT_STEPS = 50  # and updates, however often they are validated
VALIDATIONS = 20  # of a run; fewer if that would be more often than every tenth update
AUTO_SIZES = {
    "tiny": 200_000,
    "small": 20_000_000,
    "base": 1_000_000_000,
    "big": None,
}  # the size for fewer tokens than this
AUTO_SIZES_CPU = {"tiny": 10_000_000, "small": None}  # larger ones would take days

EXAMPLE = '{"kind": "language", "train": ["corpus.txt"]}'
NEEDED = {field.name for field in fields(TrainConfig) if field.default is MISSING}
COMMAND_LINE = "command line"


@dataclass(frozen=True)
class RunPlan:
    """A run that is decided but not started."""

    config: RunConfig
    task: Task
    size: str | None  # None: the recipe's own
    pretrained: Pretrained | None  # the model whose weights it starts from
    sources: Mapping[str, str]  # where each value comes from, by its dotted path
    module: nn.Module | None = None  # the module to train, if the user gave one
    warnings: tuple[str, ...] = ()


@dataclass
class Draft:
    """A run while it is planned; each stage reads what the stages before it have set."""

    request: RunRequest
    ranks: Ranks
    say: Say
    sources: dict[str, str] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    # read_request
    given: Table = field(init=False)  # the tables of the recipe file, with what it inherits by `like`
    own: Table = field(init=False)  # the keys of the file itself
    origin: str = field(init=False)  # the source of values from the file, for `--dry-run`
    changes: dict[str, list[str]] = field(init=False)  # the overrides, by table
    choices: UserChoices = field(init=False)
    # choose_task, choose_length, choose_settings
    kind: str = field(init=False)
    task_table: Table = field(init=False)
    task_config: TaskConfig = field(init=False)
    # choose_architecture
    pretrained: Pretrained | None = field(init=False)
    named: bool = field(init=False)  # whether the user named an architecture; otherwise it is the task's own
    base: Table = field(init=False)  # the architecture before any change
    # choose_tokenizer, prepare_data
    tokenizer: TokenizerConfig | None = field(init=False)
    task: Task = field(init=False)
    # choose_model, choose_training
    size: str | None = field(init=False)
    model: ModelConfig | None = field(init=False)  # None: a module of one's own
    train_table: Table = field(init=False)

    @property
    def device(self) -> str:
        """Return the kind of device: "cpu" or that of an accelerator."""
        return self.ranks.device.type

    def note(self, place: str, value: Any, source: str) -> None:
        """Record the source of a value, or of every value of a table."""
        if isinstance(value, Mapping):
            for key, item in value.items():
                self.note(f"{place}.{key}", item, source)
        else:
            self.sources[place] = source

    def note_changes(self, table: str) -> None:
        """Record which values of a table come from overrides."""
        self.sources |= {change.partition("=")[0].strip(): COMMAND_LINE for change in self.changes[table]}


def plan_run(request: RunRequest, ranks: Ranks, say: Say = lambda text: None) -> RunPlan:
    """Read the data and decide everything that the user left open."""
    draft = Draft(request, ranks, say)
    for stage in STAGES:
        stage(draft)
    config, warnings = _run_config(draft), tuple(draft.warnings)
    return RunPlan(config, draft.task, draft.size, draft.pretrained, draft.sources, request.model, warnings)


# --- the stages, in their order --------------------------------------------------------------------------------------


def read_request(draft: Draft) -> None:
    """Read the recipe file or the task's table, and sort the overrides by table."""
    what = draft.request.what
    if not isinstance(what, str | Path | Mapping):
        raise ConfigError(f"{what!r} is not a task: give its table, such as {EXAMPLE}, or the path of a recipe")
    from_file = isinstance(what, str | Path)
    draft.given = read_recipe(what) if isinstance(what, str | Path) else {"task": with_plain_paths(what)}
    draft.own = read_own(what) if isinstance(what, str | Path) else draft.given
    draft.origin = f"recipe {what}" if from_file else COMMAND_LINE
    if "task" not in draft.given:
        kinds = choices("", TASKS)
        raise ConfigError(f"{what} says nothing about the task; add a [task] table; for its kind {kinds}")
    check_tables(draft.given)
    draft.changes = sort_overrides(draft.request.overrides)
    draft.choices, draft.given["train"] = read_user_choices(draft.given.get("train", {}), draft.changes["train"])


def choose_task(draft: Draft) -> None:
    """Read and check the settings of the task, from which the rest follows."""
    draft.task_table = override({"task": draft.given["task"]}, draft.changes["task"])["task"]
    draft.task_config = from_table(draft.task_table, TaskConfig, "task")
    draft.kind = draft.task_table["kind"]
    draft.note("task", draft.given["task"], draft.origin)
    draft.note_changes("task")


def choose_table_columns(draft: Draft) -> None:
    """Decide which columns of tables are read: those of the first table, which the others must have, too."""
    config = draft.task_config.with_columns()
    for role in config.roles:
        column = getattr(config, role.key)
        if column is not None and role.key not in draft.task_table:
            draft.task_table = {**draft.task_table, role.key: column}
            draft.note(f"task.{role.key}", column, _by("the first table", config.with_columns))
    draft.task_config = config


def choose_architecture(draft: Draft) -> None:
    """Find the architecture that the user named, by a recipe or trained weights, or take the task's own."""
    request, given = draft.request, draft.given.get("model", {})
    if request.model is not None:
        _take_module(draft, request.model)
        return
    if request.recipe is not None and request.init_from is not None:
        raise ConfigError("--recipe and --init-from each decide the model; give one of them")
    draft.pretrained = None
    if request.init_from is not None:
        draft.pretrained = Pretrained(find_model(request.init_from), request.allow_pickle)
    whole = "kind" in given  # a complete model, not only some of its values
    if whole and request.recipe is not None:
        raise ConfigError("--recipe and the recipe's [model] each decide the model; give one of them")
    if draft.pretrained is not None and request.size != "auto":
        raise ConfigError("--init-from and --size each decide the model; give one of them")
    draft.named = True
    if request.recipe is not None:
        draft.base, source = to_table(load_recipe(request.recipe).model), f"recipe {request.recipe}"
        said = read_recipe(request.recipe)["model"]  # without the defaults of its parts
    elif whole:
        draft.base, source = dict(given), draft.origin
    elif draft.pretrained is not None:
        draft.base = to_table(draft.pretrained.config(draft.task_config.hub_task))
        source = f"--init-from {request.init_from}"
    else:
        draft.named = False
        name = draft.task_config.recipe
        draft.base, source = read_recipe(name)["model"], f"recipe {name}, {type(draft.task_config).__name__}.recipe"
    check_kind(draft.kind, draft.base["kind"])
    draft.note("model", draft.base if request.recipe is None else said, source)


def choose_length(draft: Draft) -> None:
    """Choose how many tokens a row has: at most as many as the model has positions."""
    key, given = draft.task_config.length_key, draft.given.get("model", {})
    positions = find_size(merge(draft.base, given), draft.changes["model"], "model.embed.position", "length")
    if key is None:
        return
    if key in draft.task_table:
        length = draft.task_table[key]
        if positions is not None and length > positions:
            remedy = "lower it, or raise model.embed.position.length"
            rule = f"{length} tokens are more than the {positions} positions of the model"
            raise ConfigError(f"{rule}; {remedy}", f"task.{key}")
        return
    length = draft.task_config.suggest_length(draft.device, positions)
    if length is not None:
        draft.task_table = {key: length, **draft.task_table}
        draft.task_config = from_table(draft.task_table, TaskConfig, "task")
        draft.note(f"task.{key}", length, _by("the data, the device and the model", draft.task_config.suggest_length))


def choose_settings(draft: Draft) -> None:
    """Choose settings of the task that suit its own recipe."""
    if draft.named or draft.pretrained is not None:
        return
    found = draft.task_config.suggest_settings(draft.device)
    suggested = {key: value for key, value in found.items() if key not in draft.task_table}
    draft.note("task", suggested, _by("the data and the device", draft.task_config.suggest_settings))
    draft.task_table = suggested | draft.task_table
    draft.task_config = from_table(draft.task_table, TaskConfig, "task")


def choose_tokenizer(draft: Draft) -> None:
    """Choose the tokenizer, if the task has one: the trained model's own, or one that is learned from the data."""
    config, given = draft.task_config, draft.given.get("tokenizer") or {}
    said = apply_named({"tokenizer": given}, draft.changes["tokenizer"], "tokenizer.kind", "tokenizer.vocabulary")
    pieces = "vocabulary" in said["tokenizer"] and "kind" not in said["tokenizer"]
    suggested = config.suggest_tokenizer(pieces)
    draft.tokenizer = None
    if suggested is None:
        return
    source = _by("the data", config.suggest_tokenizer)
    if draft.pretrained is not None and has_tokenizer(draft.pretrained.folder):
        suggested, source = {"path": str(draft.pretrained.folder)}, f"--init-from {draft.pretrained.folder}"
    table = override({"tokenizer": merge(suggested, given)}, draft.changes["tokenizer"])["tokenizer"]
    draft.note("tokenizer", suggested, source)
    draft.note("tokenizer", given, draft.origin)
    draft.note_changes("tokenizer")
    tokenizer = from_table(table, TokenizerConfig, "tokenizer")
    if tokenizer.path is None and tokenizer.kind in LEAST and tokenizer.vocabulary is None:
        tokenizer = replace(tokenizer, vocabulary=config.suggest_vocabulary())
        draft.note("tokenizer.vocabulary", tokenizer.vocabulary, _by("the data", config.suggest_vocabulary))
    elif tokenizer.path is None and tokenizer.kind not in LEAST and tokenizer.vocabulary is not None:
        rule = f"{tokenizer.vocabulary} is not for kind {tokenizer.kind!r}, whose size the text decides"
        remedy = f"leave it out, or use tokenizer.kind={' or '.join(LEAST)}"
        raise ConfigError(f"{rule}; {remedy}", "tokenizer.vocabulary")
    draft.tokenizer = tokenizer


def prepare_data(draft: Draft) -> None:
    """Read and tokenise the data; the first process does so before the others, which find its result in the cache."""
    with draft.ranks.rank_zero_first():
        draft.task = draft.task_config.prepare(draft.tokenizer, draft.choices.seed, draft.say)


def choose_model(draft: Draft) -> None:
    """Scale the architecture, adapt it to the data, and apply the user's changes."""
    draft.size, draft.model = None, None
    if not draft.base:
        return
    given, own, changes = draft.given.get("model", {}), draft.own.get("model", {}), draft.changes["model"]
    # a model that is given completely must fit the data; any other is made to fit
    whole = "kind" in own or draft.request.model is not None
    base = merge(_scaled(draft), {} if "kind" in given else given)
    needs = draft.task.needs()
    if draft.tokenizer is not None and draft.tokenizer.path is not None and isinstance(base.get("vocabulary"), int):
        # a tokenizer that was not learned from this data may leave some of the model's tokens unused
        needs = needs | {"vocabulary": max(base["vocabulary"], needs["vocabulary"])}
    said = apply_named({"model": own}, changes, "model.patches.patch", "model.head.pool.kind")["model"]
    if not whole and (adapted := draft.task.adapt(base, said)) is not base:
        draft.note("model", changed_values(base, adapted), _by("the data", draft.task.adapt))
        base = merge(adapted, own)
    fit_to_data(own, needs, strict=True)  # a table with only some values must not contradict the data either
    base = fit_to_data(base, needs, strict=whole)
    table = override({"model": base}, changes)["model"]
    check_complete(draft.kind, base["kind"], table)
    table = fit_to_data(table, needs, strict=True)
    table = _with_part_sizes(draft, table, base)
    draft.model = from_table(table, ModelConfig, "model")
    draft.note("model", given, draft.origin)
    draft.note("model", needs, _by("the data", draft.task.needs))
    draft.note_changes("model")


def choose_training(draft: Draft) -> None:
    """Choose the number of updates, their size, the optimizer and the schedule; the user's settings override them."""
    config, chosen, amount = draft.task_config, draft.choices, draft.task.amount()
    pretrained = draft.pretrained is not None
    tokens = max(chosen.tokens, 0) or suggest_tokens(config, amount, draft.device)
    flops, dim = _cost_and_width(draft)
    seconds = SECONDS if chosen.minutes is None else 60 * chosen.minutes * UPDATE_SHARE
    affordable = count_affordable(seconds, flops, tokens, draft.device)
    passes = min(config.passes, PRETRAINED_PASSES) if pretrained else config.passes
    wanted = passes * amount.tokens / tokens if chosen.minutes is None else affordable
    steps = max(chosen.steps, 0) or suggest_steps(wanted, affordable)
    if not chosen.steps and affordable < wanted:
        _warn_of_few_steps(draft, steps)
    optimizer = chosen.optimizer or config.suggest_optimizer_kind(pretrained)
    schedule = chosen.schedule or config.suggest_schedule_kind(optimizer, pretrained)
    rates = config.suggest_optimizer(optimizer, dim, pretrained)
    task = f"task {draft.kind}"
    suggested: list[tuple[Table, str]] = [
        ({"steps": steps}, _by("the data, the device and the model", suggest_steps)),
        ({"tokens": tokens}, _by("the data and the device", suggest_tokens)),
        ({"clip": 1.0}, _by("all tasks", choose_training)),
        (suggest_intervals(steps), _by("train.steps", suggest_intervals)),
        ({"optimizer": rates}, _by(task, config.suggest_optimizer)),
        ({"schedule": suggest_schedule(schedule, steps, pretrained)}, _by(f"{task} and train.steps", suggest_schedule)),
        (config.suggest_training(), _by(task, config.suggest_training)),
    ]
    for table, source in suggested:
        draft.note("train", table, source)
    plan = {key: value for table, _ in suggested for key, value in table.items()}
    every = plan["validate_every"]
    for _ in range(2):  # the user may choose how often to validate
        plan["patience"] = suggest_patience(steps, every)
        draft.note("train.patience", plan["patience"], _by("train.steps, train.validate_every", suggest_patience))
        draft.train_table = _with_user_training(draft, plan)
        chosen_every = draft.train_table.get("validate_every")  # checked later, as all values of the user
        every = chosen_every if type(chosen_every) is int and chosen_every > 0 else every


def fit_to_minutes(draft: Draft) -> None:
    """If the user asked for a time, choose the number of updates from the speed of a few trial updates."""
    if draft.choices.minutes is None:
        return
    draft.say("trying a few updates")
    trial = time_updates(_run_config(draft), draft.task, draft.ranks, draft.request.model)
    slowest = draft.ranks.largest(ceil(trial.seconds * 1e6)) / 1e6  # all processes must agree
    seconds = 60 * draft.choices.minutes * UPDATE_SHARE - draft.ranks.largest(ceil(trial.compiling))
    steps = max(1, int(seconds / slowest))
    draft.choices = replace(draft.choices, steps=steps)
    draft.warnings.clear()
    for stage in (choose_training, choose_threads, fit_to_memory):
        stage(draft)
    draft.note("train.steps", steps, _by("train.minutes and the speed of a few updates", fit_to_minutes))
    if steps < FEW_STEPS:
        _warn_of_few_steps(draft, steps)


def choose_threads(draft: Draft) -> None:
    """Choose how many threads compute on a CPU: the cores that the process may use and that other programs leave."""
    if draft.device != "cpu" or "threads" in draft.train_table or draft.given["train"].keys() >= NEEDED:
        return
    chosen = THREADS in os.environ  # by the user, or by `regard --threads`
    threads = torch.get_num_threads() if chosen else min(torch.get_num_threads(), suggest_threads())
    draft.train_table = {**draft.train_table, "threads": threads}
    draft.note("train.threads", threads, THREADS if chosen else _by("the free cores of the machine", choose_threads))


def fit_to_memory(draft: Draft) -> None:
    """Compare the memory that the run needs with what is available, and split updates that are too large for it."""
    if draft.model is None:
        return
    config = from_table(draft.train_table, TrainConfig, "train")
    remedy = "use a smaller --size or model.dim, or free some memory"
    parts, warning = split_to_fit(draft.model, config, draft.task, draft.ranks, remedy)
    if warning:
        draft.train_table = {**draft.train_table, "accumulate": parts}
        draft.warnings.append(warning)
        draft.note("train.accumulate", parts, _by("the memory of the machine", fit_to_memory))


STAGES: tuple[Callable[[Draft], None], ...] = (
    read_request,
    choose_task,
    choose_table_columns,
    choose_architecture,
    choose_length,
    choose_settings,
    choose_tokenizer,
    prepare_data,
    choose_model,
    choose_training,
    choose_threads,
    fit_to_memory,
    fit_to_minutes,
)


# --- functions that suggest values ------------------------------------------------------------------------------------


def choose_size(size: str, amount: Amount, device: str) -> str:
    """Return the name of a size: the user's choice, or one that suits the amount of data and the device."""
    if size not in ("auto", *SIZES):
        raise ConfigError(f"{size!r} is unknown; {choices(size, ('auto', *SIZES))}", "size")
    if size != "auto":
        return size
    limits = AUTO_SIZES_CPU if device == "cpu" else AUTO_SIZES
    return next(name for name, limit in limits.items() if limit is None or amount.tokens < limit)


def suggest_tokens(config: TaskConfig, amount: Amount, device: str) -> int:
    """Return the tokens of an update: what the task suggests, but at most an eighth of the data.

    An accelerator gets more, unless a pass over little data would then be too few updates to learn from.
    """
    least = min(config.update_tokens, max(64, amount.tokens // 8))
    return least if device == "cpu" else min(ACCELERATED * least, max(least, amount.tokens // PASS_UPDATES))


def count_affordable(seconds: float, flops: float, tokens: int, device: str) -> float:
    """Return how many updates the time allows; `flops` are those of a forward pass for one token."""
    return seconds * SPEED["cpu" if device == "cpu" else "cuda"] / (3 * flops * tokens)


def suggest_steps(wanted: float, affordable: float) -> int:
    """Return the number of updates: those that the data is worth, limited by the time."""
    steps = ceil(max(LEAST_STEPS, min(wanted, affordable)))
    return round(steps, -2) if steps > 1000 else steps


def suggest_intervals(steps: int) -> Table:
    """Return the number of updates between validations and between checkpoints."""
    every = max(10, ceil(steps / VALIDATIONS))
    return {"validate_every": every, "checkpoint_every": every}


def suggest_patience(steps: int, every: int) -> int:
    """Return after how many validations without a better one a run stops: a share of all, but not too few.

    A run must not stop before the rate has fallen, which is when the loss falls most.
    """
    if type(every) is not int or every < 1:  # a mistake, which is reported later
        return LEAST_PATIENCE
    return max(LEAST_PATIENCE, ceil(max(PATIENCE * steps, LEAST_PATIENT_STEPS) / every))


def _by(reason: str, function: Callable[..., Any]) -> str:
    """Return the source of a value: what it follows from, and the function that chose it."""
    return f"{reason} ({function.__qualname__})"


def _run_config(draft: Draft) -> RunConfig:
    """Return the config of the run; its paths are absolute, so that it can be resumed from any folder."""
    table: Table = {key: draft.given[key] for key in ("about", "paper") if key in draft.given}
    table["task"] = with_absolute_paths(to_table(draft.task.config), draft.task_config.file_keys)
    table["train"] = draft.train_table
    if draft.model is not None:
        table["model"] = to_table(draft.model)
    if draft.tokenizer is not None:
        table["tokenizer"] = with_absolute_paths(to_table(draft.tokenizer), ("path",))
    return from_table(table, RunConfig)


# --- the model -------------------------------------------------------------------------------------------------------


def _take_module(draft: Draft, module: nn.Module) -> None:
    """Take the module that the user gave; one that `regard.build` made has a config, which is saved with the run."""
    request = draft.request
    options = {"recipe": request.recipe, "init_from": request.init_from, "size": request.size.removeprefix("auto")}
    clash = [f"{name}=..." for name, value in options.items() if value]
    clash += draft.changes["model"] + ["the recipe's [model]"] * ("model" in draft.given)
    if clash:
        raise ConfigError(f"model=... is trained as it is; leave {clash[0]} out")
    needed = draft.task_config.module_methods
    missing = [name for name in needed if not callable(getattr(module, name, None))]
    if missing:
        rule = f"{type(module).__name__} has no {' and no '.join(missing)}"
        raise ConfigError(f"{rule}; {draft.kind} needs a module with {', '.join(needed)}", "model")
    config = getattr(module, "config", None)
    draft.pretrained, draft.named, draft.base = None, True, {}
    if isinstance(config, ModelConfig):
        draft.base = to_table(config)
        check_kind(draft.kind, draft.base["kind"])
        draft.note("model", draft.base, "model=...")


def _cost_and_width(draft: Draft) -> tuple[float, int]:
    """Return the FLOPs of a forward pass for one token, and the width of the model, which decides the rates."""
    if draft.model is not None:
        length = draft.task.usual_length()
        return float(flops_per_token(build_empty(draft.model), length)), draft.model.dim
    module = draft.request.model
    assert module is not None
    dim = getattr(module, "dim", None)
    parameters = sum(parameter.numel() for parameter in module.parameters())
    return 2.0 * max(parameters, 1), dim if type(dim) is int and dim > 0 else SIZES["small"].dim


def _scaled(draft: Draft) -> Table:
    """Return the architecture in the size that the user asked for, or that suits the data.

    An architecture that the user named keeps its own size if no size was asked for.
    """
    request, given = draft.request, draft.given.get("model", {})
    if not draft.named or request.size != "auto":
        draft.size = choose_size(request.size, draft.task.amount(), draft.device)
    changes = [change for change in draft.changes["model"] if change.startswith("model.dim=")]
    dim = find_size({} if "kind" in given else given, changes, "model", "dim")
    fixed = draft.pretrained is not None or request.model is not None
    if fixed or (draft.size is None and dim is None):
        return draft.base
    size = Size(dim or 0) if draft.size is None else SIZES[draft.size]
    scaled = scale_model(draft.base, replace(size, dim=dim or size.dim))
    reason = "model.dim" if draft.size is None else f"size {draft.size}"
    draft.note("model", changed_values(draft.base, scaled), _by(reason, scale_model))
    if draft.named:
        return scaled
    suggested = draft.task_config.suggest_model(draft.size or "", draft.task.amount())
    draft.note("model", suggested, _by(f"task {draft.kind} and the data", draft.task_config.suggest_model))
    return merge(scaled, suggested)


def _with_part_sizes(draft: Draft, table: Table, base: Table) -> Table:
    """Fill in the sizes of parts for which an override gives only the kind."""
    for change in draft.changes["model"]:
        *place, last = change.partition("=")[0].strip().split(".")[1:]
        if place and last == "kind" and isinstance(table.get("dim"), int):
            heads = table_below(base, place).get("heads")
            kind = str(table_below(table, place).get("kind"))  # one that is not text is found when the table is read
            count = heads if isinstance(heads, int) else HEADS
            sizes = part_sizes(kind, table["dim"], count, draft.task.longest() or 0)
            table = fill_missing(table, place, sizes)
            draft.note(".".join(("model", *place)), sizes, _by("model.dim", part_sizes))
    return table


# --- training --------------------------------------------------------------------------------------------------------


def _with_user_training(draft: Draft, plan: Table) -> Table:
    """Return the plan with the values of the recipe, and then the overrides, in place of its own.

    If an override names another kind of optimizer or schedule than the recipe, the recipe's table is dropped.
    """
    given = draft.given["train"]
    own = {
        key: value
        for key, value in given.items()
        if key not in BY_KIND or kind_below(given, key) in ("", getattr(draft.choices, key))
    }
    replaced = {"steps"} if draft.choices.minutes is not None else set()
    if given.keys() | replaced >= NEEDED:  # a complete table comes from a run: a missing key is meant to be absent
        plan = {key: plan[key] for key in (given.keys() - own.keys()) | replaced}
    draft.note("train", own, draft.origin)
    draft.note_changes("train")
    return override({"train": merge(plan, own)}, draft.changes["train"])["train"]


def _warn_of_few_steps(draft: Draft, steps: int) -> None:
    """Warn of a run that is too short for its model to learn."""
    if steps >= FEW_STEPS:
        return
    smaller = [name for name, size in SIZES.items() if draft.model is not None and size.dim < draft.model.dim]
    fixed = draft.pretrained is not None or draft.request.model is not None
    remedies = [f"use --size {smaller[-1]}"] if smaller and not fixed else []
    remedies.append("ask for more with train.steps or train.minutes")
    minutes = SECONDS / 60 if draft.choices.minutes is None else draft.choices.minutes
    rule = f"{steps} updates are all that {minutes:g} minutes allow, and too few for this model to learn"
    draft.warnings.append(f"{rule}; {', or '.join(remedies)}")
