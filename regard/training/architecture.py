"""Deciding the architecture of a run: one that was named, or the task's own; fitted to the data, and then changed."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from regard.config import Table, from_table, to_table
from regard.errors import ConfigError
from regard.models.recipe import ModelConfig, load_recipe
from regard.recipe_files import merge, override, read_recipe, recipe_names
from regard.tasks.task import Task, fit
from regard.training.plan import RECIPES, Amount, check_kind, choose_size, fit_patches, plan_model, plan_part

HEADS = 4  # where there were none before


def find_base(
    task: str, given: Mapping[str, Any], recipe: str | Path | None, begun: ModelConfig | None, size: str
) -> Table | None:
    """Find the architecture that was named; None leaves it to the task and the size.

    `given` is what the recipe of the run says of its model, which may be a whole one or a change of another.
    """
    own = "kind" in given
    sources = [name for name, is_given in (("--recipe", recipe), ("--init-from", begun)) if is_given]
    if own:
        sources.append("the recipe's [model]")
    if (len(sources) > 1 and not (own and recipe is None)) or (sources and size != "auto"):
        clash = [*sources, *(["--size"] if size != "auto" else [])]
        raise ConfigError(f"{' and '.join(clash)} each decide the model; give one of them")
    if recipe is None and begun is None and not own:
        return None
    named = load_recipe(recipe).model if recipe is not None else begun
    base = dict(given) if own and recipe is None else merge(to_table(named), given)
    check_kind(task, base["kind"])
    return base


def positions(task: str, base: Table | None, given: Mapping[str, Any], changes: list[str]) -> int | None:
    """How many positions the model's table will have, before anything else is known of it; None: it has no table."""
    table = merge(read_recipe(RECIPES[task])["model"], given) if base is None else base
    return _size(table, changes, "model.embed.position", "length")


def decide_model(
    task: Task,
    base: Table | None,
    given: Mapping[str, Any],
    said: Mapping[str, Any],
    changes: list[str],
    size: str,
    amount: Amount,
    device: str,
    has_own: bool,
) -> tuple[ModelConfig, str | None]:
    """Decide the architecture: the base that was found, or the task's own in some size, which is then named, too.

    `given` is the recipe's table, and `said` what of it is not inherited: what is inherited gives way to the data.
    `has_own`: the tokenizer was not learned from the data, so the model may have tokens to spare.
    """
    chosen = choose_size(size, amount, device) if base is None else None
    if chosen is not None:
        dim = _size(given, [change for change in changes if change.startswith("model.dim=")], "model", "dim")
        base = merge(plan_model(task.name, chosen, amount, dim), given)
    assert base is not None
    needs = task.needs()
    if has_own and isinstance(base.get("vocabulary"), int) and base["vocabulary"] > needs["vocabulary"]:
        needs = needs | {"vocabulary": base["vocabulary"]}
    if task.name == "vision" and "kind" not in said:
        base = merge(fit_patches(base, needs["patches"]["height"], needs["patches"]["width"]), said)
    fit(said, needs, given=True)  # also what changes only a part may not contradict the data
    base = fit(base, needs, given="kind" in said)
    table = override({"model": base}, changes)["model"]
    _check_whole(task.name, base["kind"], table)
    fit(table, needs, given=True)  # an override may not contradict the data either
    longest = getattr(task.config, "window", getattr(task.config, "longest", 0))
    table = _with_sizes(table, base, changes, longest)
    return from_table(table, ModelConfig, "model"), chosen


def _size(model: Mapping[str, Any], changes: list[str], place: str, key: str) -> int | None:
    """Find a size at a place in a model with those changes that concern it; None if there is none that is right."""
    table = override({"model": model}, [change for change in changes if change.startswith(place)])
    size = _below(table, place.split(".")).get(key)
    return size if type(size) is int and size > 0 else None


def _check_whole(task: str, before: str, table: Table) -> None:
    """See that a model is of a kind that can learn the task; and not emptied by a change to another such kind."""
    kind = table.get("kind")
    check_kind(task, kind)
    if kind != before and "dim" not in table:
        recipes = [name for name in recipe_names() if read_recipe(name)["model"]["kind"] == kind]
        rule = f"{kind!r} is another architecture than {before!r}, all of which would have to be said"
        raise ConfigError(f"{rule}; choose one with --recipe: {', '.join(recipes)}", "model.kind")


def _with_sizes(table: Table, base: Table, changes: list[str], longest: int) -> Table:
    """Give parts that a change asks for by their kind the sizes that it does not say."""
    for change in changes:
        *place, last = change.partition("=")[0].strip().split(".")[1:]
        if place and last == "kind" and isinstance(table.get("dim"), int):
            heads = _below(base, place).get("heads")
            kind = _below(table, place).get("kind")
            sizes = plan_part(kind, table["dim"], heads if isinstance(heads, int) else HEADS, longest)
            table = _fill(table, place, sizes)
    return table


def _below(table: Mapping[str, Any], keys: list[str]) -> Mapping[str, Any]:
    """Go down into a table; to an empty one where there is none."""
    for key in keys:
        below = table.get(key)
        table = below if isinstance(below, Mapping) else {}
    return table


def _fill(table: Table, keys: list[str], sizes: Table) -> Table:
    """Add what is missing in a table below a table."""
    if not keys:
        return {**sizes, **table}
    return {**table, keys[0]: _fill(table[keys[0]], keys[1:], sizes)}
