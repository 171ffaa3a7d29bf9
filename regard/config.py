"""Architecture as data: frozen dataclasses <-> TOML and JSON.

Strict in both senses: an unknown key, a wrong type, a missing key or an unknown `kind` is an error that gives the
dotted path, the value, the rule and the nearest valid name; and all mistakes of a file are reported at once.

- `kind = "rope"` in a table chooses its class from a literal dict; a field says so with `Kinds(dict)`.
- `like = "local"` in a table starts from a copy of its sibling table; at the top of a file, of a sibling recipe.
- `model.depth=6` overrides one value; `model.position=none` removes a table, and so the feature. In a file that
  derives from another, `position = "none"` does the same.
- A table that names another `kind` replaces the one it derives from, instead of mixing the keys of both.
"""

from __future__ import annotations

import dataclasses
import json
import tomllib
from collections.abc import Callable, Iterable, Mapping
from importlib.resources import files
from math import isfinite
from numbers import Integral, Real
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin, get_type_hints

import cattrs
from cattrs.cols import homogenous_tuple_structure_factory, mapping_structure_factory
from cattrs.errors import ClassValidationError, ForbiddenExtraKeysError, IterableValidationError
from cattrs.gen import make_dict_structure_fn

from regard.errors import ConfigError, at, choices

Table = dict[str, Any]
C = TypeVar("C")

_KIND_OF: dict[type, str] = {}


class Kinds:
    """Annotation of a field whose table says by `kind` which class it is: `Annotated[A | B, Kinds({...})]`."""

    def __init__(self, classes: Mapping[str, type]) -> None:
        self.classes = classes
        _KIND_OF.update({cls: kind for kind, cls in classes.items()})


@dataclasses.dataclass(frozen=True)
class Range:
    """Annotation of a number with limits: `low` included, or `above` left out; `high` included."""

    low: int | None = None
    above: int | None = None
    high: int | None = None

    def __contains__(self, number: int | float) -> bool:
        low = self.low is None or number >= self.low
        above = self.above is None or number > self.above
        return low and above and (self.high is None or number <= self.high) and isfinite(number)

    def __str__(self) -> str:
        low = f"at least {self.low}" if self.above is None else f"above {self.above}"
        if self.high in (None, MOST):
            return low
        return f"between {self.low} and {self.high}" if self.above is None else f"{low} and at most {self.high}"

    def rule(self, number: int | float) -> str:
        """Say what a number that is outside must be."""
        if self.high == MOST and number > MOST:
            return f"at most {MOST}"
        return str(self) if isfinite(number) else "a finite number"


MOST = 2**31 - 1  # more than anybody has of anything, which nobody needs to be told of
Count = Annotated[int, Range(low=1, high=MOST)]
Rate = Annotated[float, Range(low=0, high=1)]
Positive = Annotated[float, Range(above=0)]
NotNegative = Annotated[float, Range(low=0)]


# --- tables -> dataclasses -----------------------------------------------------------------------------------------


def from_table(table: Mapping[str, Any], cls: type[C]) -> C:
    """Structure a table as `cls`, or raise one `ConfigError` that lists every mistake in it."""
    try:
        return _converter.structure(_resolve_likes(dict(table)), cls)
    except (ClassValidationError, IterableValidationError) as group:
        found = list(_mistakes(group, ""))
        if len(found) == 1:
            raise ConfigError(found[0][1], found[0][0]) from None
        raise ConfigError("\n".join(str(ConfigError(rule, path)) for path, rule in found)) from None


def _mistakes(group: ClassValidationError | IterableValidationError, path: str) -> Iterable[tuple[str, str]]:
    """Flatten the errors that cattrs collected into (dotted path, rule) pairs."""
    pairs, rest = group.group_exceptions()
    for error, note in pairs:
        name = str(note.name if hasattr(note, "name") else note.index)
        here = f"{path}.{name}" if path else name
        if isinstance(error, ClassValidationError | IterableValidationError):
            yield from _mistakes(error, here)
        elif isinstance(error, KeyError):
            yield here, f"missing; must be {_describe(note.type)}"
        elif isinstance(error, ConfigError):
            yield (f"{here}.{error.path}" if error.path else here), error.rule
        else:
            raise error
    for error in rest:
        if isinstance(error, ForbiddenExtraKeysError):
            known = [field.name for field in dataclasses.fields(error.cl)]
            for key in sorted(error.extra_fields):
                yield f"{path}.{key}" if path else key, f"unknown key; {choices(key, known)}"
        elif isinstance(error, ConfigError):  # a rule of the table itself
            yield ".".join(filter(None, (path, error.path))), error.rule
        else:
            raise error


def _describe(type_: Any) -> str:
    """Name a type as a person would."""
    plain = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}
    if type_ in plain:
        return plain[type_]
    origin, args = get_origin(type_), get_args(type_)
    if origin is Literal:
        return "one of " + ", ".join(map(str, args))
    if origin is tuple:
        return f"a list, each {_describe(args[0])}"
    if _note(type_, Range) is not None:
        return f"{_describe(type_.__origin__)}, {_note(type_, Range)}"
    if origin is Annotated or dataclasses.is_dataclass(type_) or origin is dict:
        return "a table"
    return " or ".join(_describe(arg) for arg in args if arg is not NoneType)


def _refuse(value: object, type_: Any) -> ConfigError:
    shown = "a table" if isinstance(value, Mapping) else json.dumps(value, default=str)
    return ConfigError(f"{shown} must be {_describe(type_)}")


def _exactly(*accepted: type) -> Callable[[Any, Any], Any]:
    """Accept these types and nothing that merely converts to them: `true` is no number, `"3"` is none either."""

    def check(value: Any, wanted: Any) -> Any:
        if type(value) not in accepted:
            raise _refuse(value, wanted)
        return wanted(value)

    return check


def _literal(value: Any, type_: Any) -> Any:
    if value not in get_args(type_) or isinstance(value, bool):
        raise ConfigError(f"{json.dumps(value, default=str)} is unknown; {choices(value, map(str, get_args(type_)))}")
    return value


def _note(type_: Any, kind: type[C]) -> C | None:
    """Find the annotation of this kind on a type, if there is one."""
    if get_origin(type_) is not Annotated:
        return None
    return next((note for note in type_.__metadata__ if isinstance(note, kind)), None)


def _within(value: Any, type_: Any) -> Any:
    limits = _note(type_, Range)
    assert limits is not None
    number = _converter.structure(value, type_.__origin__)
    if number not in limits:
        raise ConfigError(f"{number} must be {limits.rule(number)}")
    return number


def check_numbers(config: Any) -> None:
    """Refuse a number that is outside its limits in a config that was not read from a table."""
    for name, type_ in get_type_hints(type(config), include_extras=True).items():
        value, parts = getattr(config, name), get_args(type_)
        for part in (type_, *parts):  # of `Count | None`, the first of its parts
            limits = _note(part, Range)
            if limits is None or (value is None and NoneType in parts):
                continue
            right = Integral if part.__origin__ is int else Real  # NumPy's are right as well
            if isinstance(value, bool) or not isinstance(value, right):
                raise ConfigError(f"{name}={value!r} must be {_describe(part)}")
            number = part.__origin__(value)
            if number not in limits:
                raise ConfigError(f"{name}={number} must be {limits.rule(number)}")


def _choose(value: Any, type_: Any) -> Any:
    kinds = _note(type_, Kinds)
    assert kinds is not None
    if not isinstance(value, Mapping):
        hint = f"; say its kind: .kind={value} instead of ={value}" if value in list(kinds.classes) else ""
        raise ConfigError(f"{_refuse(value, type_)}{hint}")
    if "kind" not in value:
        raise ConfigError(f"missing; {choices('', kinds.classes)}", "kind")
    if value["kind"] not in list(kinds.classes):  # a list, since what was written there may be unhashable
        raise ConfigError(f"{value['kind']!r} is unknown; {choices(value['kind'], kinds.classes)}", "kind")
    rest = {key: item for key, item in value.items() if key != "kind"}
    return _converter.structure(rest, kinds.classes[value["kind"]])


def _container(accepted: type, structure: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Check what a container is before its items are looked at: text is no list of letters."""

    def check(value: Any, wanted: Any) -> Any:
        if not isinstance(value, accepted):
            raise _refuse(value, wanted)
        return structure(value, wanted)

    return check


def _made_from(origin: Any) -> Callable[[Any], bool]:
    return lambda type_: get_origin(type_) is origin


def _make_converter() -> cattrs.Converter:
    converter = cattrs.Converter(detailed_validation=True)
    converter.register_structure_hook(int, _exactly(int))
    converter.register_structure_hook(float, _exactly(int, float))
    converter.register_structure_hook(bool, _exactly(bool))
    converter.register_structure_hook(str, _exactly(str))
    converter.register_structure_hook_func(_made_from(Literal), _literal)
    converter.register_structure_hook_func(lambda t: _note(t, Kinds) is not None, _choose)
    converter.register_structure_hook_func(lambda t: _note(t, Range) is not None, _within)

    @converter.register_structure_hook_factory(dataclasses.is_dataclass)
    def _(cls: Any, converter: cattrs.Converter) -> Any:
        structure = make_dict_structure_fn(cls, converter, _cattrs_forbid_extra_keys=True)

        def own(value: Any, wanted: Any) -> Any:
            """Where only one class is possible, its `kind` may be written as well."""
            named = "kind" in value and value["kind"] == _KIND_OF.get(cls)
            return structure({key: item for key, item in value.items() if key != "kind"} if named else value, wanted)

        return _container(Mapping, own)

    @converter.register_structure_hook_factory(_made_from(tuple))
    def _(type_: Any, converter: cattrs.Converter) -> Any:
        return _container(list, homogenous_tuple_structure_factory(type_, converter))

    @converter.register_structure_hook_factory(_made_from(dict))
    def _(type_: Any, converter: cattrs.Converter) -> Any:
        return _container(Mapping, mapping_structure_factory(type_, converter))

    return converter


_converter = _make_converter()


# --- dataclasses -> tables, TOML, JSON -----------------------------------------------------------------------------


def to_table(config: Any) -> Any:
    """Turn a config into plain tables; what is absent (None) stays out, since a missing table means just that."""
    if dataclasses.is_dataclass(config):
        table: Table = {"kind": _KIND_OF[type(config)]} if type(config) in _KIND_OF else {}
        for field in dataclasses.fields(config):
            value = getattr(config, field.name)
            if value is not None:
                table[field.name] = to_table(value)
        return table
    if isinstance(config, Mapping):
        return {key: to_table(value) for key, value in config.items()}
    if isinstance(config, tuple):
        return [to_table(item) for item in config]
    return config


def to_toml(config: Any) -> str:
    """Write a config as people write it."""
    import tomli_w

    return tomli_w.dumps(to_table(config))


def to_json(config: Any) -> str:
    """Write a config as it is kept inside a checkpoint."""
    return json.dumps(to_table(config), indent=2)


# --- overrides and derivation ----------------------------------------------------------------------------------------


def merge(base: Mapping[str, Any], change: Mapping[str, Any]) -> Table:
    """Lay `change` over `base`, table by table; another `kind` replaces instead of mixing, and "none" removes."""
    merged = {} if "kind" in change and change["kind"] != base.get("kind") else dict(base)
    for key, value in change.items():
        old = merged.get(key)
        merged[key] = merge(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
    return {key: value for key, value in merged.items() if value != "none"}


def override(table: Mapping[str, Any], changes: Iterable[str]) -> Table:
    """Apply overrides such as `model.depth=6`; `key=none` removes the key.

    Kinds are chosen first, the outer before the inner, since another kind empties its table.
    """
    result = dict(table)
    for change in sorted(changes, key=_kinds_first):
        path, equals, text = change.partition("=")
        keys = [key.strip() for key in path.split(".")]
        if not equals or not all(keys):
            raise ConfigError(f"override {change!r} must have the form path.to.key=value")
        result = _set(result, keys, text.strip(), path)
    return result


def _kinds_first(change: str) -> tuple[bool, int]:
    path = change.partition("=")[0].strip()
    chooses = path.endswith(".kind")
    return not chooses, path.count(".") if chooses else 0


def _set(table: Mapping[str, Any], keys: list[str], text: str, path: str) -> Table:
    key, *rest = keys
    if rest:
        inner = table.get(key, {})
        if not isinstance(inner, Mapping):
            raise ConfigError(f"{key!r} is a value, not a table, so nothing below it can be set", path)
        return {**table, key: _set(inner, rest, text, path)}
    if text == "none":
        if "like" in table:  # what is inherited is removed when the table is laid over its sibling
            return {**table, key: "none"}
        if key not in table:
            raise ConfigError(f"there is no {key!r} to remove; {choices(key, table)}", path)
        return {name: value for name, value in table.items() if name != key}
    return merge(table, {key: _value(text)})


def _value(text: str) -> Any:
    """Read a value as TOML does, and a bare word as text."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _resolve_likes(table: Table) -> Table:
    """Replace `like = "sibling"` by a copy of that sibling with the table's own keys laid over it."""

    def expand(name: str, seen: tuple[str, ...]) -> Any:
        value = table[name]
        if not (isinstance(value, Mapping) and "like" in value):
            return value
        base = value["like"]
        if not (isinstance(base, str) and isinstance(table.get(base), Mapping)):
            tables = [key for key, item in table.items() if isinstance(item, Mapping) and key != name]
            raise ConfigError(f"{base!r} is no table beside it; {choices(base, tables)}", f"{name}.like")
        if base in seen:
            raise ConfigError(f"goes in a circle: {' -> '.join((*seen, base))}", f"{name}.like")
        own = {key: item for key, item in value.items() if key != "like"}
        return merge(expand(base, (*seen, base)), own)

    result = {}
    for name in table:
        value = expand(name, (name,))
        with at(name):
            result[name] = _resolve_likes(value) if isinstance(value, dict) else value
    return result


# --- recipes ---------------------------------------------------------------------------------------------------------


def recipe_names() -> list[str]:
    """Name the recipes that come with the package."""
    return sorted(item.name.removesuffix(".toml") for item in _shipped().iterdir() if item.name.endswith(".toml"))


def _shipped() -> Any:
    return files("regard") / "recipes"


def read_recipe(recipe: str | Path) -> Table:
    """Read a recipe as a table: a path to a TOML file, or the name of one that comes with the package."""
    return _read(recipe, ())


def read_own(recipe: str | Path) -> Table:
    """Read what a recipe itself says, without what it builds on by its `like`."""
    return _parse(recipe)[0]


def _read(recipe: str | Path, derived: tuple[str, ...]) -> Table:
    """Read a recipe on which the recipes `derived` build by their `like`."""
    name = str(recipe)
    asker = f"{derived[-1]}: like" if derived else ""
    if name in derived:
        raise ConfigError(f"goes in a circle: {' -> '.join((*derived, name))}", asker)
    table, sibling = _parse(recipe, asker)
    if "like" in table:
        base: str | Path = str(table.pop("like"))
        if sibling is not None:
            beside = sibling / f"{str(base).removesuffix('.toml')}.toml"
            itself = beside.resolve() == Path(name).resolve()
            if beside.exists() and not (itself and base in recipe_names()):  # a gpt2.toml may build on the shipped one
                base = beside
        table = merge(_read(base, (*derived, name)), table)
    return table


def _parse(recipe: str | Path, asker: str = "") -> tuple[Table, Path | None]:
    """Give the table of a recipe, and the folder that it is in if it does not come with the package."""
    name = str(recipe)
    if name.endswith(".toml") or isinstance(recipe, Path):
        path, sibling = Path(recipe), Path(recipe).parent
        try:
            text = path.read_text(encoding="utf-8")
        except OSError as error:
            raise ConfigError(f"cannot read the recipe: {error.strerror}", name) from None
        except UnicodeDecodeError as error:
            raise ConfigError(f"cannot read the recipe: {error}", name) from None
    elif name in recipe_names():
        text, sibling = (_shipped() / f"{name}.toml").read_text(encoding="utf-8"), None
    else:
        remedy = f"{choices(name, recipe_names())}; a file of your own is named with its .toml"
        raise ConfigError(f"no recipe has the name {name!r}; {remedy}", asker)
    try:
        return tomllib.loads(text), sibling
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"is not valid TOML: {error}", name) from None
