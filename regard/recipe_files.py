"""Recipes as tables: TOML files, what they inherit, and overrides. What the tables mean is in `config.py`.

- `like = "gpt2"` at the top of a file starts from a copy of that recipe; inside a file, `like = "local"` in a table
  starts from a copy of its sibling table.
- `model.depth=6` overrides one value; `model.position=none` removes a table, and with it the feature. In a file that
  inherits from another, `position = "none"` does the same.
- A table with another `kind` replaces the one that it inherits from, instead of mixing the keys of both. A recipe
  with a `pattern` of its own keeps only the inherited layers that the pattern names, and so does an override of it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from typing import Any

from regard.errors import ConfigError, at, choices
from regard.untrusted import DEEPEST, parse_toml

Table = dict[str, Any]

RESULTS = "results"  # the folder of recipes with proven scores, and the first part of their names: results/NAME
BOX = "box"  # likewise of those that train the models in the box: box/NAME
EMPTY_NAME = "the name of a file is empty; is a variable of the shell not set?"
ABOUT_ONE_RECIPE = ("about", "paper", "result", "box")  # keys that describe one recipe, and therefore are not inherited


# --- merging and overriding ------------------------------------------------------------------------------------------


def merge(base: Mapping[str, Any], change: Mapping[str, Any]) -> Table:
    """Merge `change` into `base`, table by table; another `kind` replaces a table, and "none" removes a key."""
    merged = {} if "kind" in change and change["kind"] != base.get("kind") else dict(base)
    for key, value in change.items():
        old = merged.get(key)
        merged[key] = merge(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
    return {key: value for key, value in merged.items() if value != "none"}


def override(table: Mapping[str, Any], changes: Iterable[str], optional: Collection[str] = ()) -> Table:
    """Apply overrides such as `model.depth=6`; `key=none` removes the key, which must be there unless it is `optional`.

    Kinds are set first, outer tables before inner ones, because another kind empties its table.
    """
    result, own, changes = dict(table), Table(), list(changes)
    for change in changes:
        if not isinstance(change, str):
            raise ConfigError(f"override {change!r} must be text of the form path.to.key=value")
    for change in sorted(changes, key=_kinds_first):
        _, equals, text = change.partition("=")
        path = override_path(change)
        keys = path.split(".")
        if not equals or not all(keys) or len(keys) > DEEPEST:
            raise ConfigError(f"override {change!r} must have the form path.to.key=value")
        if text.strip() != "none" or path not in optional or _has(result, keys):
            result = _set(result, keys, text.strip(), path)
        own = merge(own, _nested(keys, _value(text.strip())))
    return _drop_unused_layers(result, own)


def override_path(change: str) -> str:
    """Return the path of an override, without the blanks that may be in it: model.depth for `model.depth = 6`."""
    return ".".join(key.strip() for key in change.partition("=")[0].split("."))


def _has(table: Any, keys: list[str]) -> bool:
    """Return whether there is a value at this path."""
    return not keys or (isinstance(table, Mapping) and keys[0] in table and _has(table[keys[0]], keys[1:]))


def _nested(keys: list[str], value: Any) -> Table:
    """Return the table that has only this value at this path."""
    return {keys[0]: value if len(keys) == 1 else _nested(keys[1:], value)}


def split_changes(arguments: Iterable[str]) -> tuple[list[str], list[str]]:
    """Separate the names of files from the overrides after them."""
    arguments = list(arguments)
    if "" in arguments:
        raise ConfigError(EMPTY_NAME)
    changes = [text for text in arguments if "=" in text and not os.path.exists(text)]  # which may be too long a name
    return [text for text in arguments if text not in changes], changes


def _kinds_first(change: str) -> tuple[bool, int]:
    path = override_path(change)
    is_kind = path.endswith(".kind")
    return not is_kind, path.count(".") if is_kind else 0


def _set(table: Mapping[str, Any], keys: list[str], text: str, path: str) -> Table:
    key, *rest = keys
    if rest:
        inner = table.get(key, {})
        if not isinstance(inner, Mapping):
            raise ConfigError(f"{key!r} is a value, not a table, so nothing below it can be set", path)
        return {**table, key: _set(inner, rest, text, path)}
    if text == "none":
        if "like" in table:  # the inherited value is removed when the table is laid over its sibling
            return {**table, key: "none"}
        if key not in table:
            raise ConfigError(f"there is no {key!r} to remove; {choices(key, table)}", path)
        return {name: value for name, value in table.items() if name != key}
    return merge(table, {key: _value(text)})


def _value(text: str) -> Any:
    """Read a value as TOML; a bare word is text."""
    try:
        return parse_toml(f"value = {text}", "")["value"]
    except ConfigError:
        return text


def resolve_likes(table: Table) -> Table:
    """Replace `like = "sibling"` by a copy of that sibling with the table's own keys laid over it."""

    def expand(name: str, seen: tuple[str, ...]) -> Any:
        value = table[name]
        if not (isinstance(value, Mapping) and "like" in value):
            return value
        base = value["like"]
        if not (isinstance(base, str) and isinstance(table.get(base), Mapping)):
            tables = [key for key, item in table.items() if isinstance(item, Mapping) and key != name]
            raise ConfigError(f"{base!r} is not a table beside this one; {choices(base, tables)}", f"{name}.like")
        if base in seen:
            raise ConfigError(f"inherits from itself: {' -> '.join((*seen, base))}", f"{name}.like")
        own = {key: item for key, item in value.items() if key != "like"}
        return merge(expand(base, (*seen, base)), own)

    result = {}
    for name in table:
        value = expand(name, (name,))
        with at(name):
            result[name] = resolve_likes(value) if isinstance(value, dict) else value
    return result


# --- files -----------------------------------------------------------------------------------------------------------


def recipe_names() -> list[str]:
    """Return the names of the recipes that come with the package."""
    return sorted(item.name.removesuffix(".toml") for item in _shipped().iterdir() if item.name.endswith(".toml"))


def result_names() -> list[str]:
    """Return the names of the recipes with proven scores; `read_recipe` finds them as results/NAME."""
    return _names_below(RESULTS)


def box_recipe_names() -> list[str]:
    """Return the names of the recipes that train the models in the box; `read_recipe` finds them as box/NAME."""
    return _names_below(BOX)


def _names_below(folder: str) -> list[str]:
    found = (_shipped() / folder).iterdir()
    return sorted(item.name.removesuffix(".toml") for item in found if item.name.endswith(".toml"))


def is_shipped(name: str) -> bool:
    """Return whether a recipe of this name comes with the package."""
    folder, _, last = name.rpartition("/")
    return last in _names_below(folder) if folder in (RESULTS, BOX) else name in recipe_names()


def shipped_file(name: str) -> Any:
    """Return a file of the folder of recipes, which may not exist."""
    return _shipped() / name


def _shipped() -> Any:
    return files("regard") / "recipes"


def read_recipe(recipe: str | Path) -> Table:
    """Read a recipe as a table: a path to a TOML file, or the name of a recipe that comes with the package."""
    return _read(recipe, ())


def read_own(recipe: str | Path) -> Table:
    """Read only the recipe's own keys, without those it inherits by `like`."""
    return _parse(recipe)[0]


def _read(recipe: str | Path, derived: tuple[str, ...]) -> Table:
    """Read a recipe, with what it inherits; `derived` are the recipes that led here by their `like`."""
    name = str(recipe)
    inheriting = f"{derived[-1]}: like" if derived else ""
    if name in derived:
        raise ConfigError(f"inherits from itself: {' -> '.join((*derived, name))}", inheriting)
    table, folder = _parse(recipe, inheriting)
    base = _read_base(recipe, table, folder, derived)
    return table if base is None else _inherit(base, {key: value for key, value in table.items() if key != "like"})


def _read_base(recipe: str | Path, table: Table, folder: Path | None, derived: tuple[str, ...] = ()) -> Table | None:
    """Read the recipe that a recipe inherits from, without what describes only that one; None if there is none."""
    if "like" not in table:
        return None
    base: str | Path = str(table["like"])
    if folder is not None:
        beside = folder / f"{str(base).removesuffix('.toml')}.toml"
        # gpt2.toml may inherit the shipped gpt2
        if os.path.exists(beside) and not (base in recipe_names() and beside.samefile(recipe)):
            base = beside
    found = _read(base, (*derived, str(recipe)))
    return {key: value for key, value in found.items() if key not in ABOUT_ONE_RECIPE}


def find_lost_keys(recipe: str | Path) -> Iterator[tuple[str, Any]]:
    """Yield the keys of the inherited recipe, with their values, that are lost because a table has another `kind`."""
    table, folder = _parse(recipe)
    base = _read_base(recipe, table, folder)
    if base is not None:
        yield from _lost_keys(base, table, "")


def _lost_keys(base: Mapping[str, Any], own: Mapping[str, Any], path: str) -> Iterator[tuple[str, Any]]:
    if "kind" in base and own.get("kind", base["kind"]) != base["kind"]:
        yield from ((f"{path}{key}", value) for key, value in base.items() if key not in own)
        return
    for key, value in own.items():
        if isinstance(value, Mapping) and isinstance(base.get(key), Mapping):
            yield from _lost_keys(base[key], value, f"{path}{key}.")


def _inherit(base: Table, own: Table) -> Table:
    """Lay a recipe over the one that it inherits from."""
    return _drop_unused_layers(merge(base, own), own)


def _drop_unused_layers(merged: Table, own: Mapping[str, Any]) -> Table:
    """Where a recipe has a pattern of its own, drop the inherited layers that the pattern does not name."""
    result = dict(merged)
    for key, change in own.items():
        if isinstance(change, Mapping) and isinstance(merged.get(key), dict):
            result[key] = _drop_unused_layers(merged[key], change)
    layers, pattern = merged.get("layers"), own.get("pattern")
    if isinstance(layers, dict) and isinstance(pattern, list):
        named = {str(item).rpartition("*")[2] for item in pattern} | set(own.get("layers", {}))
        if named <= set(layers):  # otherwise the pattern is wrong, and the error lists the layers
            with at("layers"):
                result["layers"] = {name: layer for name, layer in resolve_likes(layers).items() if name in named}
    return result


@contextmanager
def in_file(recipe: object, overrides: Iterable[object] = ()) -> Iterator[None]:
    """Name the file of a recipe in every mistake raised inside that is about one of its keys.

    A mistake in a key that an override sets has no file, and a recipe that comes with the package is not named.
    """
    try:
        yield
    except ConfigError as error:
        if not _is_path(recipe):
            raise
        changed = [override_path(str(change)).removesuffix(".kind") for change in overrides]

        def place(path: str) -> str:
            overridden = any(path == key or path.startswith(f"{key}.") for key in changed)
            is_key = re.fullmatch(r"[\w.-]+", path) and not path.endswith(".toml")  # which names the file itself
            return f"{recipe}: {path}" if is_key and not overridden else path

        if error.path:
            raise ConfigError(error.rule, place(error.path)) from None
        lines = (line.partition(": ") for line in error.rule.split("\n"))  # several mistakes, one a line
        raise ConfigError("\n".join(f"{place(path)}{colon}{rule}" for path, colon, rule in lines)) from None


def _is_path(recipe: object) -> bool:
    return isinstance(recipe, Path) or (isinstance(recipe, str) and recipe.endswith(".toml"))


def _parse(recipe: str | Path, inheriting: str = "") -> tuple[Table, Path | None]:
    """Return the table of a recipe, and its folder if it does not come with the package."""
    name = str(recipe)
    if _is_path(recipe):
        path, folder = Path(recipe), Path(recipe).parent
        try:
            text = path.read_text(encoding="utf-8")
        except OSError as error:
            raise ConfigError(f"cannot read the recipe: {error.strerror}", name) from None
        except ValueError as error:  # not UTF-8, or a NUL in its name
            raise ConfigError(f"cannot read the recipe: {error}", name) from None
    elif is_shipped(name):
        text, folder = (_shipped() / f"{name}.toml").read_text(encoding="utf-8"), None
    else:
        remedy = f"{choices(name, recipe_names())}; a file of your own needs its suffix .toml"
        raise ConfigError(f"no recipe has the name {name!r}; {remedy}", inheriting)
    return parse_toml(text, name), folder
