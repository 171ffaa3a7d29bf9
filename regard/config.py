"""Configuration: frozen dataclasses <-> tables (TOML, JSON), equally strict from a file and from Python.

An unknown key, a wrong type, a number outside its limits, a missing key or an unknown `kind` is a `ConfigError` that
gives the dotted path, the value, the rule and the nearest valid name; all mistakes of a table are reported at once.

    class ScoreConfig(Config):                                        # a field of this type is a table with a `kind`
        def build(self, query_dim: int, key_dim: int) -> Score: ...

    @dataclass(frozen=True)
    class DotConfig(ScoreConfig):
        scale: Positive | None = None

    SCORES = Kinds("score", ScoreConfig, {"dot": DotConfig})          # to which users add with `regard.register`

    from_table({"kind": "dot", "scale": 0.5}, ScoreConfig)            # DotConfig(0.5)

`DotConfig(-1)` fails with the same rule as `scale = -1` in a file. How files become tables is in `recipe_files.py`.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping
from functools import cache
from numbers import Integral, Real
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    ClassVar,
    Literal,
    TypeVar,
    Union,
    final,
    get_args,
    get_origin,
    get_type_hints,
)

from regard.errors import ConfigError, RegardError, at, choices
from regard.limits import ColumnName as ColumnName
from regard.limits import Count as Count
from regard.limits import Depth as Depth
from regard.limits import NotNegative as NotNegative
from regard.limits import NumberAsText, note_of
from regard.limits import Positive as Positive
from regard.limits import Range as Range
from regard.limits import Rate as Rate
from regard.limits import Registry as Registry
from regard.limits import Seed as Seed
from regard.limits import Times as Times
from regard.recipe_files import Table as Table
from regard.recipe_files import resolve_likes

T = TypeVar("T")
C = TypeVar("C", bound="Config")

LONGEST_SHOWN = 100  # characters of a value in a message


class Kinds(Registry[type[C]]):
    """The config classes from which a table chooses by its `kind`: those that inherit from one base class."""

    def __init__(
        self, sort: str, base: type[C], items: Mapping[str, type[C]], included: Kinds[Any] | None = None
    ) -> None:
        self.base = base
        super().__init__(sort, items, included)
        base.kinds = self  # a field whose type is the base class is read by `kind`

    def add(self, name: str, item: type[C]) -> None:
        """Register a config class, which then knows its `kind`."""
        if not (isinstance(item, type) and dataclasses.is_dataclass(item) and issubclass(item, self.base)):
            given = getattr(item, "__name__", repr(item))
            raise RegardError(f"{given} must be a frozen dataclass that inherits from {self.base.__name__}")
        if kind_of(item) not in (None, name):
            raise RegardError(
                f"{item.__name__} is already registered as {kind_of(item)!r}; define a class for {name!r}"
            )
        super().add(name, item)
        item.registered_kind = name


def kind_of(config: Any) -> str | None:
    """Return the `kind` under which a config class is registered; that of a base class does not count."""
    kind: str | None = vars(config).get("registered_kind") if isinstance(config, type) else None
    return kind


def kinds_of(type_: Any) -> Kinds[Any] | None:
    """Return the kinds of a base class, such as the scores of `ScoreConfig`; None for any other type."""
    kinds: Kinds[Any] | None = vars(type_).get("kinds") if isinstance(type_, type) else None
    return kinds


class Config:
    """Base of all config dataclasses: checks every value on construction; `validate` checks rules between values."""

    kinds: ClassVar[Kinds[Any] | None] = None  # of a base class: the classes to choose from
    registered_kind: ClassVar[str | None] = None

    @final
    def __post_init__(self) -> None:
        mistakes = Mistakes()
        config: Any = type(self)
        for name, type_ in field_types(config).items():
            given = getattr(self, name)
            value = _structure(given, type_, name, mistakes)
            if value is not given:  # NumPy's numbers and whole floats become plain ones, lists become tuples
                object.__setattr__(self, name, value)
        if mistakes:
            lines = [f"{mistake.path}={mistake.rule}" for mistake in mistakes]
            raise ConfigError("; ".join(lines), type(self).__name__)
        self.validate()

    def validate(self) -> None:
        """Raise a `ConfigError` if values do not fit each other."""


def field_types(config: Any) -> dict[str, Any]:
    """Return the fields of a config class with their types and annotations."""
    return _field_types(config)


@cache
def _field_types(config: Any) -> dict[str, Any]:
    hints = get_type_hints(config, include_extras=True)
    return {field.name: hints[field.name] for field in dataclasses.fields(config)}


# --- tables -> dataclasses -------------------------------------------------------------------------------------------


class Mistakes(list[ConfigError]):
    """The mistakes found so far in a table."""

    def add(self, rule: str, path: str) -> None:
        """Note a mistake."""
        self.append(ConfigError(rule, path))

    def throw(self) -> None:
        """Raise all mistakes as one error, if there are any."""
        if len(self) == 1:
            raise self[0]
        if self:
            raise ConfigError("\n".join(map(str, self)))


def from_table(table: Mapping[str, Any], config: type[T], path: str = "") -> T:
    """Read a table as a config class, or as one of the kinds of a base class; list every mistake in one `ConfigError`.

    `path` is the place of the table in its file, for messages.
    """
    mistakes = Mistakes()
    if isinstance(table, Mapping):
        with at(path):
            table = resolve_likes(dict(table))
    found: T = _structure(table, config, path, mistakes)
    mistakes.throw()
    return found


def check_keys(table: Mapping[str, Any], config: type[Config]) -> None:
    """Reject unknown keys and wrong values in a table that may lack keys; list every mistake in one `ConfigError`."""
    mistakes = Mistakes()
    _check_keys(resolve_likes(dict(table)), config, "", mistakes)
    mistakes.throw()


def _check_keys(value: Any, type_: Any, path: str, mistakes: Mistakes) -> None:
    if get_origin(type_) in (Union, UnionType):
        [type_] = [arg for arg in get_args(type_) if arg is not NoneType]
    kinds = kinds_of(type_)
    known = isinstance(value, Mapping) and (kinds is None or value.get("kind") in (None, *kinds))
    if not known or not (kinds or dataclasses.is_dataclass(type_)):
        _structure(value, type_, path, mistakes)
        return
    named = [] if kinds is None else [kinds[value["kind"]]] if "kind" in value else kinds.values()
    types = {name: each for one in named or [type_] for name, each in field_types(one).items()}
    for name, each in types.items():
        if name in value:
            _check_keys(value[name], each, _join(path, name), mistakes)
    _add_unknown(value.keys() - types.keys() - {"kind"}, value, types, path, mistakes)


def optional_keys(config: type[Config], path: str) -> set[str]:
    """Return the keys of a config class that may be absent, below a path: "train.ema"."""
    return {_join(path, field.name) for field in dataclasses.fields(config) if field.default is None}  # type: ignore[arg-type]


def _structure(value: Any, type_: Any, path: str, mistakes: Mistakes) -> Any:
    """Return the value as `type_`, or add to the mistakes. A config was checked when it was built, and is kept."""
    origin, args = get_origin(type_), get_args(type_)
    if origin in (Union, UnionType):
        [wanted] = [arg for arg in args if arg is not NoneType]
        return None if value is None else _structure(value, wanted, path, mistakes)
    if (kinds := kinds_of(type_)) is not None:
        return _structure_kind(value, kinds, path, mistakes)
    if (names := note_of(type_, Registry)) is not None:
        if not (isinstance(value, str) and value in names):
            mistakes.add(names.unknown(value), path)
        return value
    if origin is Literal:
        if value not in args or isinstance(value, bool):
            mistakes.add(f"{_show(value)} is unknown; {choices(value, map(str, args))}", path)
        return value
    if isinstance(type_, type) and dataclasses.is_dataclass(type_):
        return value if isinstance(value, type_) else _structure_dataclass(value, type_, path, mistakes)
    assert not (isinstance(type_, type) and issubclass(type_, Config)), f"import the kinds of {type_.__name__} first"
    if origin is dict and isinstance(value, Mapping):
        return {key: _structure(item, args[1], _join(path, key), mistakes) for key, item in value.items()}
    if origin is tuple and isinstance(value, list | tuple):
        items = [_structure(item, args[0], _join(path, number), mistakes) for number, item in enumerate(value)]
        return value if isinstance(value, tuple) and items == list(value) else tuple(items)
    if note_of(type_, NumberAsText) is not None and isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if origin in (dict, tuple) or not _is_plain(value, type_):
        mistakes.add(f"{_show(value)} must be {describe_type(type_)}", path)
        return value
    if isinstance(value, str):
        if not is_unicode(value):
            mistakes.add(f"{value!a} is not valid Unicode text; if it is the name of a file, rename the file", path)
        return value
    try:
        return _limited(args[0](value) if origin is Annotated else type_(value), type_, path, mistakes)
    except OverflowError:
        mistakes.add(f"{_show(value)} is too large", path)
        return value


def _is_plain(value: Any, type_: Any) -> bool:
    """Return whether a value has the type itself, not one that converts to it: `true` and `"3"` are not numbers."""
    wanted = get_args(type_)[0] if get_origin(type_) is Annotated else type_
    if wanted is int:
        whole = isinstance(value, Integral) or (isinstance(value, float) and value.is_integer())  # 1e3 is whole
        return whole and not isinstance(value, bool)
    if wanted is float:
        return isinstance(value, Real) and not isinstance(value, bool)
    return isinstance(value, wanted)


def _limited(number: Any, type_: Any, path: str, mistakes: Mistakes) -> Any:
    limits = note_of(type_, Range)
    if limits is not None and number not in limits:
        mistakes.add(f"{number} must be {limits.rule(number)}", path)
    return number


def _structure_kind(value: Any, kinds: Kinds[Any], path: str, mistakes: Mistakes) -> Any:
    """Return the config of the class that the table names by its `kind`."""
    if type(value) in kinds.values():
        return value
    if isinstance(value, Config):
        remedy = f"""register it with @regard.register("{kinds.sort}", NAME)"""
        mistakes.add(f"{type(value).__name__} is not a registered {kinds.sort}; {remedy}", path)
    elif not isinstance(value, Mapping):
        hint = f"; write .kind={value} instead of ={value}" if value in list(kinds) else _quoting(value)
        mistakes.add(f"{_show(value)} must be a table{hint}", path)
    elif "kind" not in value:
        mistakes.add(f"missing; {choices('', kinds)}", _join(path, "kind"))
    elif value["kind"] not in list(kinds):  # a list, because a wrong value may be unhashable
        mistakes.add(kinds.unknown(value["kind"]), _join(path, "kind"))
    else:
        return _structure_dataclass(value, kinds[value["kind"]], path, mistakes)
    return value


def _quoting(value: Any) -> str:
    """Return a remedy for what a shell makes of KEY={A=1,B=2} without quotes: KEY=A=1 and KEY=B=2."""
    return "; on the command line, quote a table: 'KEY={...}'" if isinstance(value, str) and "=" in value else ""


def _structure_dataclass(value: Any, config: Any, path: str, mistakes: Mistakes) -> Any:
    """Return a table as this config class. It may name its `kind` even if there is only one."""
    if not isinstance(value, Mapping):
        mistakes.add(f"{_show(value)} must be a table{_quoting(value)}", path)
        return value
    before = len(mistakes)
    types = field_types(config)
    found = {name: _structure(value[name], types[name], _join(path, name), mistakes) for name in types if name in value}
    for field in dataclasses.fields(config):
        if field.name not in found and field.default is field.default_factory is dataclasses.MISSING:
            mistakes.add(f"missing; must be {describe_type(types[field.name])}", _join(path, field.name))
    named = {"kind"} if value.get("kind") == kind_of(config) else set()
    _add_unknown(value.keys() - types.keys() - named, value, types, path, mistakes)
    if len(mistakes) > before:
        return value
    try:
        return config(**found)
    except ConfigError as error:
        mistakes.add(error.rule, _join(path, error.path))
        return value


def _add_unknown(
    keys: Iterable[Any], table: Mapping[str, Any], types: Mapping[str, Any], path: str, mistakes: Mistakes
) -> None:
    """Add unknown keys of a table to the mistakes, each with the nearest key that is known."""
    for key in sorted(map(str, keys)):
        below = [f"{name}.{key}" for name, item in table.items() if isinstance(item, Mapping) and key in item]
        nearest = f"did you mean {below[0]!r}?" if below else choices(key, types)
        mistakes.add(f"unknown key; {nearest}", _join(path, key))


def describe_type(type_: Any) -> str:
    """Describe a type in words: `Count` is "a whole number, at least 1"."""
    plain = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}
    if type_ in plain:
        return plain[type_]
    origin, args = get_origin(type_), get_args(type_)
    if origin is Literal:
        return "one of " + ", ".join(map(str, args))
    if origin is tuple:
        return f"a list, each {describe_type(args[0])}"
    if (limits := note_of(type_, Range)) is not None:
        return f"{describe_type(args[0])}, {limits}"
    if (names := note_of(type_, Registry)) is not None:
        return "one of " + ", ".join(names)
    if note_of(type_, NumberAsText) is not None:
        return "a name or a number"
    if origin in (Union, UnionType):
        return " or ".join(describe_type(arg) for arg in args if arg is not NoneType)
    return "a table"


def is_unicode(text: str) -> bool:
    """Return whether a text can be saved: file names may hold bytes that are not UTF-8, and JSON half characters."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _show(value: object) -> str:
    if isinstance(value, Mapping):
        return "a table"
    if dataclasses.is_dataclass(value):
        return type(value).__name__
    shown = json.dumps(value, default=str)
    return shown if len(shown) <= LONGEST_SHOWN else f"{shown[:LONGEST_SHOWN]}..."


def _join(*path: object) -> str:
    return ".".join(str(part) for part in path if part != "")


# --- dataclasses -> tables, TOML, JSON -------------------------------------------------------------------------------


def to_table(config: Any) -> Any:
    """Return a config as plain tables. None is left out: a missing table means an absent feature."""
    if dataclasses.is_dataclass(config):
        kind = kind_of(type(config))
        table: Table = {} if kind is None else {"kind": kind}
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
    """Return a config as the text of a recipe."""
    import tomli_w

    return tomli_w.dumps(to_table(config))


def to_json(config: Any) -> str:
    """Return a config as JSON, as `save_model` writes it."""
    return json.dumps(to_table(config), indent=2)
