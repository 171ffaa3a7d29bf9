"""Deciding a run: what the user wrote, laid over what the data and the device suggest, before anything is trained."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, replace
from pathlib import Path
from typing import Any

from regard.config import Table, field_types, from_table, to_table
from regard.data.tokenizer import LEAST, TokenizerConfig
from regard.data.tokenizer_folder import has_tokenizer
from regard.errors import ConfigError, at, choices
from regard.models.count import cost
from regard.models.recipe import MODELS, build_empty
from regard.recipe_files import merge, override, read_own, read_recipe
from regard.tasks.kinds import TASKS, TaskConfig
from regard.tasks.task import Task
from regard.tasks.text import attends
from regard.training.architecture import decide_model, find_base, positions
from regard.training.config import RunConfig, TrainConfig
from regard.training.origin import Origin
from regard.training.plan import Amount, Said, plan_task, plan_tokenizer, plan_train, plan_vocabulary
from regard.training.ranks import Ranks

Say = Callable[[str], None]
FILES = ("train", "valid", "source", "target", "valid_source", "valid_target", "path")
TABLES = ("task", "tokenizer", "model", "train")
EXAMPLE = '{"kind": "language", "train": ["corpus.txt"]}'
NEEDED = {field.name for field in fields(TrainConfig) if field.default is MISSING}
KEYS = {  # what may be below each table
    "task": {name for config in TASKS.values() for name in field_types(config)},
    "tokenizer": {field.name for field in fields(TokenizerConfig)},
    "model": {name for config in MODELS.values() for name in field_types(config)},
    "train": {field.name for field in fields(TrainConfig)},
}
BY_KIND = ("optimizer", "schedule")  # tables of training whose kind decides what else is in them


@dataclass(frozen=True)
class Planned:
    """A run that is decided but not begun."""

    config: RunConfig
    task: Task
    size: str | None  # None: a recipe's own
    origin: Origin | None  # whose weights it begins with


def plan(
    what: str | Path | Mapping[str, Any],
    *overrides: str,
    size: str = "auto",
    recipe: str | Path | None = None,
    init_from: str | Path | None = None,
    allow_pickle: bool = False,
    ranks: Ranks,
    say: Say = lambda text: None,
) -> Planned:
    """Read the data and decide everything that nobody decided."""
    if not isinstance(what, str | Path | Mapping):
        raise ConfigError(f"{what!r} is no task: give its table, such as {EXAMPLE}, or the path of a recipe")
    given = read_recipe(what) if isinstance(what, str | Path) else {"task": _plain(what)}
    said = read_own(what) if isinstance(what, str | Path) else given  # and not inherited by `like`
    if "task" not in given:
        raise ConfigError(f"{what} says nothing about the task; add a [task] table; for its kind {choices('', TASKS)}")
    _check_tables(given)
    changes = _by_table(overrides)
    device = ranks.device.type
    task_table = override({"task": given["task"]}, changes["task"])["task"]
    from_table(task_table, TaskConfig, "task")  # what is wrong in it is found before anything follows from it
    if recipe is not None and init_from is not None:
        raise ConfigError("--recipe and --init-from each decide the model; give one of them")
    kind, model_given = task_table["kind"], given.get("model", {})
    origin = None if init_from is None else Origin(Path(init_from), allow_pickle)
    base = find_base(kind, model_given, recipe, None if origin is None else origin.config(kind), size)
    longest = positions(kind, base, model_given, changes["model"])
    task_table = plan_task(task_table, device, longest)
    task_config: Any = from_table(task_table, TaskConfig, "task")
    tokenizer = _tokenizer(task_table, given.get("tokenizer"), changes["tokenizer"], origin)
    train_said = _said(given.get("train", {}), changes["train"])
    with ranks.first_first():
        task: Task = task_config.prepare(tokenizer, train_said.seed, say)
    amount = _amount(task)
    has_own = tokenizer is not None and tokenizer.path is not None
    tables = base, model_given, said.get("model", {}), changes["model"]
    model, chosen = decide_model(task, *tables, size, amount, device, has_own)
    empty = build_empty(model)
    flops = float(cost(empty, _width(task.config)).flops_per_token)
    begins = origin is not None
    planned = plan_train(task.name, model.dim, attends(empty), amount, flops, device, begins, train_said)
    train_table = _train(given.get("train", {}), changes["train"], train_said, planned)
    table: Table = {key: given[key] for key in ("about", "paper") if key in given}
    table |= {"task": _absolute(to_table(task.config)), "model": to_table(model), "train": train_table}
    if tokenizer is not None:
        table["tokenizer"] = _absolute(to_table(tokenizer))
    return Planned(from_table(table, RunConfig), task, chosen, origin)


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


def _by_table(overrides: Sequence[object]) -> dict[str, list[str]]:
    """Sort overrides by the table they change, since some are needed before others can be known."""
    sorted_: dict[str, list[str]] = {name: [] for name in TABLES}
    for change in overrides:
        if not isinstance(change, str):
            raise ConfigError(f"override {change!r} must be text of the form table.key=value")
        path, equals, _ = change.partition("=")
        table, dot, _ = path.strip().partition(".")
        if table not in sorted_ or not (equals and dot):
            homes = [name for name, known in KEYS.items() if table in known and table not in TABLES]
            hint = f"did you mean {homes[0]}.{change}?" if homes else f"tables: {', '.join(TABLES)}"
            raise ConfigError(f"override {change!r} must have the form table.key=value; {hint}")
        sorted_[table].append(change)
    return sorted_


def _written(table: Mapping[str, Any], changes: list[str], *names: str) -> Table:
    """Lay some of the changes over a table, by their names: those that must be known before the others."""
    own = [change for change in changes if change.partition("=")[0].strip() in names]
    return override(table, [change for change in own if change.partition("=")[2].strip() != "none"])


def _said(train: Mapping[str, Any], changes: list[str]) -> Said:
    """Find what must be known of training before the rest can be planned."""
    numbers = ("seed", "steps", "tokens")
    names = [f"train.{key}" for key in numbers] + [f"train.{key}.kind" for key in BY_KIND]
    table = _written({"train": train}, changes, *names)["train"]
    with at("train"):
        found = {key: table[key] for key in numbers if key in table}
        return from_table(found | {key: _kind(table, key) for key in BY_KIND}, Said)


def _kind(table: Mapping[str, Any], key: str) -> str:
    """The kind that a table names below a key; "" if it names none, or something that is found to be wrong later."""
    below = table.get(key)
    kind = below.get("kind") if isinstance(below, Mapping) else None
    return kind if isinstance(kind, str) else ""


def _train(given: Mapping[str, Any], changes: list[str], said: Said, planned: Table) -> Table:
    """Lay what the recipe says, and then the changes, over the plan.

    Where a change asks for another optimizer or schedule than the recipe has, the recipe says nothing about it.
    """
    own = {
        key: value
        for key, value in given.items()
        if key not in BY_KIND or _kind(given, key) in ("", getattr(said, key))
    }
    if given.keys() >= NEEDED:  # a table that says everything is a run's; what it leaves out was left out
        planned = {key: planned[key] for key in given.keys() - own.keys()}
    return override({"train": merge(planned, own)}, changes)["train"]


def _tokenizer(
    task: Mapping[str, Any], given: Mapping[str, Any] | None, changes: list[str], origin: Origin | None
) -> TokenizerConfig | None:
    said = _written({"tokenizer": given or {}}, changes, "tokenizer.kind", "tokenizer.vocabulary")["tokenizer"]
    chosen = plan_tokenizer(task, pieces="vocabulary" in said and "kind" not in said)
    if chosen is None:
        return None
    if origin is not None and has_tokenizer(origin.folder):
        chosen = {"path": str(origin.folder)}
    table = override({"tokenizer": merge(chosen, given or {})}, changes)["tokenizer"]
    tokenizer = from_table(table, TokenizerConfig, "tokenizer")
    if tokenizer.path is not None:
        return tokenizer
    if tokenizer.kind in LEAST:
        return replace(tokenizer, vocabulary=tokenizer.vocabulary or plan_vocabulary(task))
    if tokenizer.vocabulary is not None:
        rule = f"{tokenizer.vocabulary} is not for kind {tokenizer.kind!r}, whose size the text decides"
        remedy = f"leave it out, or let tokenizer.kind be one of {', '.join(LEAST)}"
        raise ConfigError(f"{rule}; {remedy}", "tokenizer.vocabulary")
    return tokenizer


def _width(task: Any) -> int | None:
    """For rows of how many tokens computation is estimated; images have as many patches as they have."""
    return getattr(task, "window", None) or (min(64, task.longest) if hasattr(task, "longest") else None)


def _amount(task: Task) -> Amount:
    facts = list(task.facts().items())
    by_name = dict(facts)
    rows = facts[0][1]
    return Amount(rows, by_name.get("tokens", by_name.get("target tokens", rows * 64)))
