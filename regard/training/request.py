"""What the user asked for, in Python or on the command line: a recipe or a task, overrides, options."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from torch import nn

from regard.arguments import check_files
from regard.config import Config, Positive, Seed, Table, check_keys, field_types, from_table
from regard.data.tokenizer import TokenizerConfig
from regard.errors import ConfigError, choices
from regard.models.recipe import MODELS
from regard.recipe_files import ABOUT_ONE_RECIPE, in_file, override, override_path, read_recipe, split_changes
from regard.tasks.kinds import TASKS
from regard.training.config import RunConfig, TrainConfig

TABLES = ("task", "tokenizer", "model", "train")
BY_KIND = ("optimizer", "schedule")  # tables of training whose kind decides which other keys they have


@dataclass(frozen=True)
class RunRequest:
    """What the user asked for: the arguments of `regard.train`."""

    what: Any  # the table of a task, or the path of a recipe that has one; checked by `read_request`
    overrides: tuple[Any, ...] = ()
    size: str = "auto"
    recipe: str | Path | None = None
    init_from: str | Path | None = None
    allow_pickle: bool = False
    model: nn.Module | None = None  # to be trained as it is


@dataclass(frozen=True)
class UserChoices(Config):
    """The user's settings of training on which other values depend; 0, "" or None if not given."""

    seed: Seed = 0  # decides BPE-dropout
    steps: int = 0  # decides the schedule and the validations
    tokens: int = 0
    minutes: Positive | None = None
    optimizer: str = ""  # the kind, which decides the other keys of the table
    schedule: str = ""  # likewise


def name_task(
    what: Any, arguments: Sequence[Any], valid: str | Path | Sequence[str | Path] | None
) -> tuple[Any, tuple[Any, ...]]:
    """Return the table of a task that is given by its name and its files, and the overrides among the arguments.

    Anything else, a table or a recipe, is returned as it is.
    """
    held_out = check_files(valid, "valid")
    if not isinstance(what, str) or what not in TASKS:
        if held_out:
            raise ConfigError("--valid belongs to the files of a task; here, write them into the table of the task")
        return what, tuple(arguments)
    paths = [str(each) if isinstance(each, Path) else each for each in arguments]
    files, changes = split_changes(each for each in paths if isinstance(each, str))
    for each in arguments:
        if isinstance(each, list | tuple):
            remedy = f"put a star before a list of files: regard.train({what!r}, *files)"
            raise ConfigError(f"{each!r} must be one file; {remedy}")
    if not files:
        raise ConfigError(f"{what} needs files to train on: regard.train({what!r}, FILE, ...)")
    others = [each for each in paths if not isinstance(each, str)]  # which `sort_overrides` rejects
    return {"kind": what, **TASKS[what].from_files(files, held_out)}, (*changes, *others)


def not_a_task(name: str) -> str:
    """Return the message for a name that is neither a task nor a recipe."""
    near = get_close_matches(name, TASKS, n=1)
    listed = f"tasks: {', '.join(TASKS)}; `regard recipes` lists the recipes"
    return f"{name!r} is neither a task nor a recipe; {f'did you mean the task {near[0]!r}?' if near else listed}"


def check_tables(given: Mapping[str, Any]) -> None:
    """Check that a recipe has only known tables."""
    for key, value in given.items():
        if key not in (*TABLES, *ABOUT_ONE_RECIPE):
            raise ConfigError(f"unknown key; {choices(key, (*TABLES, *ABOUT_ONE_RECIPE))}", key)
        if key in TABLES and not isinstance(value, Mapping):
            raise ConfigError(f"{value!r} must be a table", key)


def check_training_tables(recipe: str | Path) -> None:
    """Check the keys of a recipe about the task and the training, which need not be complete."""
    given = read_recipe(recipe)
    with in_file(recipe):
        check_tables(given)
        check_keys({name: given[name] for name in TABLES if name in given and name != "model"}, RunConfig)


def with_plain_paths(task: Mapping[str, Any]) -> Table:
    """Return the table with paths as text, as in a recipe."""

    def as_text(value: Any) -> Any:
        if isinstance(value, list | tuple):
            return [as_text(item) for item in value]
        return str(value) if isinstance(value, Path) else value

    return {key: as_text(value) for key, value in task.items()}


def with_absolute_paths(table: Mapping[str, Any], keys: Sequence[str]) -> Table:
    """Return the table with absolute paths below some keys."""

    def absolute(value: Any) -> Any:
        if isinstance(value, str):
            return str(Path(value).absolute())
        return [absolute(item) for item in value] if isinstance(value, list) else value

    return {key: absolute(value) if key in keys else value for key, value in table.items()}


def sort_overrides(overrides: Sequence[object]) -> dict[str, list[str]]:
    """Group overrides by the table they change, since some tables must be known before others can be checked."""
    by_table: dict[str, list[str]] = {name: [] for name in TABLES}
    for change in overrides:
        if not isinstance(change, str):
            raise ConfigError(f"override {change!r} must be text of the form table.key=value")
        table, dot, _ = override_path(change).partition(".")
        if table not in by_table or not dot or "=" not in change:
            tables = [name for name, known in _known_keys().items() if table in known and table not in TABLES]
            hint = f"did you mean {tables[0]}.{change}?" if tables else f"tables: {', '.join(TABLES)}"
            raise ConfigError(f"override {change!r} must have the form table.key=value; {hint}")
        by_table[table].append(change)
    return by_table


def _known_keys() -> dict[str, set[str]]:
    """Return the keys of each table."""
    configs: dict[str, Sequence[Any]] = {
        "task": list(TASKS.values()),
        "tokenizer": [TokenizerConfig],
        "model": list(MODELS.values()),
        "train": [TrainConfig],
    }
    return {name: {key for config in found for key in field_types(config)} for name, found in configs.items()}


def apply_named(table: Mapping[str, Any], changes: list[str], *names: str) -> Table:
    """Apply only the overrides of these names: those that must be known before the others."""
    own = [change for change in changes if override_path(change) in names]
    return override(table, [change for change in own if change.partition("=")[2].strip() != "none"])


def changed_keys(changes: Iterable[str]) -> set[str]:
    """Return the keys of the table of training that overrides change."""
    return {override_path(change).removeprefix("train.") for change in changes}


def read_user_choices(train: Mapping[str, Any], changes: list[str]) -> tuple[UserChoices, Table]:
    """Return the settings that must be known before the rest is planned, and the recipe's table of training.

    The table comes without what overrides replace: a time replaces a number of updates, and the reverse.
    """
    changed = changed_keys(changes)
    if changed >= {"steps", "minutes"}:
        raise ConfigError("train.steps and train.minutes each decide the length of the run; give one of them")
    replaced = {"minutes": "steps", "steps": "minutes"}
    train = {key: value for key, value in train.items() if replaced.get(key) not in changed}
    numbers = ("seed", "steps", "tokens", "minutes")
    names = [f"train.{key}" for key in numbers] + [f"train.{key}.kind" for key in BY_KIND]
    table = apply_named({"train": train}, changes, *names)["train"]
    found = {key: table[key] for key in numbers if key in table}
    if "steps" in found:  # the recipe of a run says both: the time asked for, and the updates that were chosen
        found.pop("minutes", None)
    return from_table(found | {key: kind_below(table, key) for key in BY_KIND}, UserChoices, "train"), train


def kind_below(table: Mapping[str, Any], key: str) -> str:
    """Return the kind that a table names below a key; "" if it names none, or something that is rejected later."""
    below = table.get(key)
    kind = below.get("kind") if isinstance(below, Mapping) else None
    return kind if isinstance(kind, str) else ""
