"""Deciding a run: what the user wrote, laid over what the data and the device suggest, before anything is trained."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Any

from regard.config import Table, from_table, merge, override, read_own, read_recipe, to_table
from regard.data.tokenizer import LEAST, TokenizerConfig
from regard.data.tokenizer_folder import has_tokenizer
from regard.errors import ConfigError, at, choices
from regard.models.count import cost
from regard.models.recipe import ModelConfig, build_empty, load_recipe
from regard.tasks.kinds import TASKS, TaskConfig
from regard.tasks.task import Task, fit
from regard.tasks.text import attends
from regard.train.config import RunConfig, Times, TrainConfig
from regard.train.origin import read_config
from regard.train.plan import (
    Amount,
    check_kind,
    choose_size,
    fit_patches,
    plan_model,
    plan_task,
    plan_tokenizer,
    plan_train,
)
from regard.train.ranks import Ranks

Say = Callable[[str], None]
FILES = ("train", "valid", "source", "target", "valid_source", "valid_target", "path")
TABLES = ("task", "tokenizer", "model", "train")
NEEDED = {field.name for field in fields(TrainConfig) if field.default is MISSING}


@dataclass(frozen=True)
class _TaskTable:
    task: TaskConfig


@dataclass(frozen=True)
class _ModelTable:
    model: ModelConfig


@dataclass(frozen=True)
class _TokenizerTable:
    tokenizer: TokenizerConfig


@dataclass(frozen=True)
class _Early:
    """What must be known before the rest of its table can be; nobody said what is 0."""

    seed: Times  # decides what is held out
    steps: int  # decide the schedule
    tokens: int


EARLY = tuple(field.name for field in fields(_Early))


@dataclass(frozen=True)
class Planned:
    """A run that is decided but not begun."""

    config: RunConfig
    task: Task
    size: str | None  # None: a recipe's own


def plan(
    what: str | Path | Mapping[str, Any],
    *overrides: str,
    size: str = "auto",
    recipe: str | Path | None = None,
    init_from: str | Path | None = None,
    ranks: Ranks,
    say: Say = lambda text: None,
) -> Planned:
    """Read the data and decide everything that nobody decided."""
    given = read_recipe(what) if isinstance(what, str | Path) else {"task": _plain(what)}
    said = read_own(what) if isinstance(what, str | Path) else given  # and not inherited by `like`
    if "task" not in given:
        raise ConfigError(f"{what} says nothing about the task; add a [task] table with kind = {choices('', TASKS)}")
    _check_tables(given)
    changes = _by_table(overrides)
    device = ranks.device.type
    task_table = override({"task": given["task"]}, changes["task"])["task"]
    from_table({"task": task_table}, _TaskTable)  # what is wrong in it is found before anything follows from it
    if recipe is not None and init_from is not None:
        raise ConfigError("--recipe and --init-from each decide the model; give one of them")
    begun = None if init_from is None else read_config(init_from, task_table["kind"])
    task_table = plan_task(task_table, device, None if begun is None else build_empty(begun).longest())
    task_config: Any = from_table({"task": task_table}, _TaskTable).task
    tokenizer = _tokenizer(task_table, given.get("tokenizer"), changes["tokenizer"], init_from)
    early = _early(given.get("train", {}), changes["train"])
    with ranks.first_first():
        task: Task = task_config.prepare(tokenizer, early.seed, say)
    amount = _amount(task)
    has_own = tokenizer is not None and tokenizer.path is not None
    tables = given.get("model"), said.get("model", {}), changes["model"]
    model, chosen = _model(task, *tables, size, recipe, begun, amount, device, has_own)
    width = None if task.name == "vision" else getattr(task.config, "window", 64)
    empty = build_empty(model)
    flops = float(cost(empty, width).flops_per_token)
    train_table = given.get("train", {})
    if not train_table.keys() >= NEEDED:  # a table that says everything is a run's; what it leaves out was left out
        begins = init_from is not None
        wanted = max(early.steps, 0), max(early.tokens, 0)
        planned = plan_train(task.name, model.dim, attends(empty), amount, flops, device, begins, *wanted)
        train_table = merge(planned, train_table)
    train_table = override({"train": train_table}, changes["train"])["train"]
    table: Table = {key: given[key] for key in ("about", "paper") if key in given}
    table |= {"task": _absolute(to_table(task.config)), "model": to_table(model), "train": train_table}
    if tokenizer is not None:
        table["tokenizer"] = _absolute(to_table(tokenizer))
    return Planned(from_table(table, RunConfig), task, chosen)


def _check_tables(given: Mapping[str, Any]) -> None:
    """See that a recipe has only tables that are known."""
    for key, value in given.items():
        if key not in (*TABLES, "about", "paper"):
            raise ConfigError(f"unknown key; {choices(key, (*TABLES, 'about', 'paper'))}", key)
        if key in TABLES and not isinstance(value, Mapping):
            raise ConfigError(f"{value!r} must be a table", key)


def _plain(task: Mapping[str, Any]) -> Table:
    """Write paths as a recipe does: as text."""

    def write(value: Any) -> Any:
        if isinstance(value, list | tuple):
            return [write(item) for item in value]
        return str(value) if isinstance(value, Path) else value

    return {key: write(value) for key, value in task.items()}


def _absolute(table: Mapping[str, Any]) -> Table:
    """Name files from the root, so that a run can be resumed from any folder."""

    def place(value: Any) -> Any:
        if isinstance(value, str):
            return str(Path(value).absolute())
        return [place(item) for item in value] if isinstance(value, list) else value

    return {key: place(value) if key in FILES else value for key, value in table.items()}


def _by_table(overrides: Sequence[str]) -> dict[str, list[str]]:
    """Sort overrides by the table they change, since some are needed before others can be known."""
    sorted_: dict[str, list[str]] = {name: [] for name in TABLES}
    for change in overrides:
        path, equals, _ = change.partition("=")
        table, dot, _ = path.strip().partition(".")
        if table not in sorted_ or not (equals and dot):
            raise ConfigError(f"override {change!r} must have the form table.key=value; tables: {', '.join(TABLES)}")
        sorted_[table].append(change)
    return sorted_


def _early(train: Mapping[str, Any], changes: list[str]) -> _Early:
    own = [change for change in changes if change.partition("=")[0].strip() in [f"train.{key}" for key in EARLY]]
    table = override({"train": {**dict.fromkeys(EARLY, 0), **train}}, own)["train"]
    with at("train"):
        return from_table({key: table.get(key, 0) for key in EARLY}, _Early)


def _tokenizer(
    task: Mapping[str, Any], given: Mapping[str, Any] | None, changes: list[str], init_from: str | Path | None
) -> TokenizerConfig | None:
    chosen = plan_tokenizer(task)
    if chosen is None:
        return None
    if init_from is not None and has_tokenizer(Path(init_from)):
        chosen = {"path": str(init_from)}
    table = override({"tokenizer": merge(chosen, given or {})}, changes)["tokenizer"]
    tokenizer = from_table({"tokenizer": table}, _TokenizerTable).tokenizer
    if tokenizer.path is None and tokenizer.vocabulary is not None and tokenizer.kind not in LEAST:
        rule = f"{tokenizer.vocabulary} is not for kind {tokenizer.kind!r}, whose size the text decides"
        raise ConfigError(f"{rule}; say tokenizer.kind too: {', '.join(LEAST)}", "tokenizer.vocabulary")
    return tokenizer


def _amount(task: Task) -> Amount:
    facts = list(task.facts().items())
    by_name = dict(facts)
    rows = facts[0][1]
    return Amount(rows, by_name.get("tokens", by_name.get("target tokens", rows * 64)))


def _model(
    task: Task,
    given: Mapping[str, Any] | None,
    said: Mapping[str, Any],
    changes: list[str],
    size: str,
    recipe: str | Path | None,
    begun: ModelConfig | None,
    amount: Amount,
    device: str,
    has_own: bool,
) -> tuple[ModelConfig, str | None]:
    """Decide the architecture: what the recipe says, or what it is begun from, or the task's own in some size.

    `given` is the recipe's table, and `said` what of it is not inherited: what is inherited gives way to the data.
    `has_own`: the tokenizer was not learned from the data, so the model may have tokens to spare.
    """
    chosen: str | None = choose_size(size, amount, device)
    own = given is not None and "kind" in given  # a whole model, and not a change of the task's own
    sources = [name for name, is_given in (("--recipe", recipe), ("--init-from", begun)) if is_given]
    if own:
        sources.append("the recipe's [model]")
    if (len(sources) > 1 and not (own and recipe is None)) or (sources and size != "auto"):
        clash = [*sources, *(["--size"] if size != "auto" else [])]
        raise ConfigError(f"{' and '.join(clash)} each decide the model; give one of them")
    if recipe is not None:
        base, chosen = merge(to_table(load_recipe(recipe).model), given or {}), None
    elif own and given is not None:
        base, chosen = dict(given), None
    elif begun is not None:
        base, chosen = merge(to_table(begun), given or {}), None
    else:
        assert chosen is not None
        base = merge(plan_model(task.name, chosen, amount), given or {})
    check_kind(task.name, base["kind"])
    needs = task.needs()
    if has_own and isinstance(base.get("vocabulary"), int) and base["vocabulary"] > needs["vocabulary"]:
        needs = needs | {"vocabulary": base["vocabulary"]}
    if task.name == "vision" and "kind" not in said:
        base = merge(fit_patches(base, needs["patches"]["height"], needs["patches"]["width"]), said)
    fit(said, needs, given=True)  # also what changes only a part may not contradict the data
    table = fit(base, needs, given="kind" in said)
    table = override({"model": table}, changes)["model"]
    check_kind(task.name, table.get("kind"))
    fit(table, needs, given=True)  # an override may not contradict the data either
    return from_table({"model": table}, _ModelTable).model, chosen
