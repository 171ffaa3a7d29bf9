"""Work on the table of a model: fit it to the data, find sizes in it, fill in what an override leaves open."""

from collections.abc import Mapping
from typing import Any

from regard.config import Table
from regard.errors import ConfigError
from regard.models.recipe import MODELS
from regard.recipe_files import merge, override, override_path, read_recipe, recipe_names
from regard.tasks.kinds import TASKS


def check_kind(task: str, kind: object) -> None:
    """Check that the task or the model declares that this kind of model can learn the task."""
    kinds = (*TASKS[task].models, *(name for name, config in MODELS.items() if task in config.tasks))
    if kind not in kinds:
        fitting = [name for name in recipe_names() if read_recipe(name)["model"]["kind"] in kinds]
        rule = f"a model of the kind {kind!r} cannot be trained for {task}"
        raise ConfigError(f"{rule}; recipes that can: {', '.join(fitting)}", "model.kind")


def fit_to_data(
    model: Mapping[str, Any],
    needs: Mapping[str, Any],
    strict: bool,
    remedy: str = "leave it out",
    path: str = "model",
) -> Table:
    """Set in a model's table what the data needs; if `strict`, reject a table with other values.

    If not `strict`, they are replaced; a head of another kind is replaced as a whole.
    """
    if not strict:
        return merge(model, needs)
    table = dict(model)
    for key, value in needs.items():
        if isinstance(value, Mapping):
            if not isinstance(table.get(key, {}), Mapping):
                raise ConfigError(f"{table[key]!r} must be a table", f"{path}.{key}")
            table[key] = fit_to_data(table.get(key, {}), value, strict, remedy, f"{path}.{key}")
        elif key in table and table[key] != value:
            raise ConfigError(f"{table[key]} differs from the data, which has {value}; {remedy}", f"{path}.{key}")
        else:
            table[key] = value
    return table


def changed_values(before: Mapping[str, Any], after: Mapping[str, Any]) -> Table:
    """Return the values of a table that have changed."""
    changed: Table = {}
    for key, value in after.items():
        old = before.get(key)
        if isinstance(value, Mapping) and isinstance(old, Mapping):
            if below := changed_values(old, value):
                changed[key] = below
        elif value != old:
            changed[key] = value
    return changed


def find_size(model: Mapping[str, Any], changes: list[str], place: str, key: str) -> int | None:
    """Return a size from the table at `place` after the overrides below it; None if there is no valid one."""
    table = override({"model": model}, [change for change in changes if override_path(change).startswith(place)])
    size = table_below(table, place.split(".")).get(key)
    return size if type(size) is int and size > 0 else None


def check_complete(task: str, before: str, table: Table) -> None:
    """Check that a model is of a kind that can learn the task, and was not emptied by an override of its kind."""
    kind = table.get("kind")
    check_kind(task, kind)
    if kind != before and "dim" not in table:
        recipes = [name for name in recipe_names() if read_recipe(name)["model"]["kind"] == kind]
        rule = f"{kind!r} is another architecture than {before!r}, and every part of it would have to be given"
        raise ConfigError(f"{rule}; choose one with --recipe: {', '.join(recipes)}", "model.kind")


def table_below(table: Mapping[str, Any], keys: list[str]) -> Mapping[str, Any]:
    """Return the table below some keys; an empty one if there is none."""
    for key in keys:
        below = table.get(key)
        table = below if isinstance(below, Mapping) else {}
    return table


def fill_missing(table: Table, keys: list[str], sizes: Table) -> Table:
    """Add sizes that are missing in the table below some keys."""
    if not keys:
        return {**sizes, **table}
    if keys[0] not in table:  # another override removed it
        return table
    return {**table, keys[0]: fill_missing(table[keys[0]], keys[1:], sizes)}
