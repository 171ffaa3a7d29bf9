"""The reference of recipe keys, generated from the config classes: `regard show --keys` and docs/recipes.md.

A key's type, default and limits are those of its field; its meaning is the docstring below the field.
"""

import ast
import dataclasses
import inspect
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from textwrap import dedent
from types import NoneType
from typing import Any, get_args, get_origin

from regard.cli.console import make_console
from regard.config import Config, Registry, describe_type, field_types, kind_of, kinds_of, to_table
from regard.errors import ConfigError, choices
from regard.limits import note_of

INTRODUCTION = """# Recipe keys

Generated from the config classes; `regard show --keys PART` prints one part of it. A recipe is a TOML file of tables:
`regard show gpt2 --toml` prints one. A key is written by its path, in a file or as an override: `model.depth=6`.

- *required*: must be given. In a recipe to train, keys that are left out are chosen from the data and the device:
  `regard train ... --dry-run` shows the choices.
- *absent*: the feature is off unless its key or table is given; `KEY=none` turns it off again.
- A table with a `kind` is one of several classes, each with keys of its own. What you register
  (see [extending.md](extending.md)) is listed as well: `regard show --keys PART --import FILE`.
- `like = "NAME"` starts a table from a copy of the table NAME beside it, and a whole file from another recipe.
- A table with another `kind` replaces the inherited one and loses its other keys, also those that both kinds have: give
  `bidirectional = true` again where an LSTM replaces a GRU.
"""


@dataclass(frozen=True)
class Section:
    """A part of a recipe: the classes that its table can be, by `kind`, or the names that its text can be."""

    name: str
    path: str  # the first place in a recipe where it is found
    classes: dict[str, type[Config]]  # by kind; "" where there is one class only
    names: tuple[str, ...] = ()
    included: str = ""  # another section, whose kinds are valid here, too


@dataclass(frozen=True)
class Key:
    """A key of a table."""

    name: str
    type: str
    default: str
    meaning: str


def find_sections() -> dict[str, Section]:
    """Return all parts of a recipe by name, found by walking through the fields of the config classes."""
    from regard.training.config import RunConfig

    found: dict[str, Section] = {}
    waiting: list[tuple[Any, str]] = [(RunConfig, "")]
    while waiting:
        type_, path = waiting.pop(0)
        name = _section_of(type_)
        if name is None or name in found:
            continue
        if (names := note_of(type_, Registry)) is not None:
            found[name] = Section(name, path, {}, tuple(names))
            continue
        kinds = kinds_of(type_)
        if kinds is None:
            found[name] = Section(name, path, {"": type_})
        else:
            included: Mapping[str, Any] = kinds.included or {}
            own = {kind: config for kind, config in kinds.items() if kind not in included}
            found[name] = Section(name, path, own, included=getattr(included, "sort", ""))
        for config in found[name].classes.values():
            for key, inner in field_types(config).items():
                below = ".".join(filter(None, (path, key)))
                if kind_of(_inner(inner)) is None:  # a class with a kind is described in the section of its kinds
                    waiting.append((_inner(inner), f"{below}.NAME" if get_origin(inner) is dict else below))
        if kinds is not None and kinds.included is not None:
            waiting.insert(0, (getattr(kinds.included, "base", None), path))
    return found


def _inner(type_: Any) -> Any:
    """Return the type inside an optional value, a list or a table of tables."""
    args = [arg for arg in get_args(type_) if arg not in (NoneType, str, ...)]
    if note_of(type_, Registry) is not None or not args or get_origin(type_) is None:
        return type_
    return _inner(args[-1]) if hasattr(type_, "__args__") and not hasattr(type_, "__metadata__") else type_


def _section_of(type_: Any) -> str | None:
    """Return the name of the section that describes a type; None for numbers and texts."""
    if (names := note_of(type_, Registry)) is not None:
        return names.sort
    for base in getattr(type_, "__mro__", ()):
        if (kinds := kinds_of(base)) is not None:
            return kinds.sort
    if isinstance(type_, type) and issubclass(type_, Config):
        name = type_.__name__.removesuffix("Config").lower()
        return "recipe" if name == "run" else name
    return None


def keys_of(config: type[Config]) -> list[Key]:
    """Return the keys of a config class."""
    docstrings, types = meanings(config), field_types(config)
    fields: Any = dataclasses.fields(config)  # type: ignore[arg-type]
    return [
        Key(field.name, _type(types[field.name]), _default(field), docstrings.get(field.name, "")) for field in fields
    ]


def meanings(config: type) -> dict[str, str]:
    """Return the docstrings below the fields of a class and its bases; a class without source code has none."""
    found: dict[str, str] = {}
    for each in reversed(config.__mro__):
        if each in (object, Config):
            continue
        try:
            [body] = ast.parse(dedent(inspect.getsource(each))).body
        except (OSError, TypeError, SyntaxError):
            continue
        assert isinstance(body, ast.ClassDef)
        for field, text in zip(body.body, body.body[1:], strict=False):
            if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant):
                found[ast.unparse(field.target)] = " ".join(str(text.value.value).split())
    return found


def _type(type_: Any) -> str:
    inner = _inner(type_)
    section = _section_of(inner)
    if section is None:
        return describe_type(type_)
    link = f"[{section}](#{anchor(section)})"
    if note_of(inner, Registry) is not None:
        return link
    if kind := kind_of(inner):
        return f"table: {link} of kind `{kind}`"
    return f"{'tables by name' if get_origin(type_) is dict else 'table'}: {link}"


def _default(field: Any) -> str:
    if field.default is field.default_factory is dataclasses.MISSING:
        return "*required*"
    value = field.default_factory() if field.default is dataclasses.MISSING else field.default
    if value is None:
        return "*absent*"
    table = to_table(value)
    if isinstance(table, dict):
        return f"`{table['kind']}`" if "kind" in table else "defaults"
    return f"`{table if isinstance(table, str) else json.dumps(table)}`" if table not in ("", []) else "empty"


def anchor(name: str) -> str:
    """Return the link target that Markdown gives a heading."""
    return name.replace(" ", "-")


def section_page(section: Section) -> str:
    """Return a section as Markdown."""
    parts = [f"## {section.name}"]
    if section.path:
        parts.append(f"`{section.path}`")
    if section.names:
        parts.append("One of " + ", ".join(f"`{name}`" for name in section.names) + ".")
    if section.included:
        parts.append(f"Also every [{section.included}](#{anchor(section.included)}).")
    for kind, config in section.classes.items():
        about = (inspect.getdoc(config) or "").strip()
        parts.append((f'### `kind = "{kind}"`\n\n' if kind else "") + about)
        if keys := keys_of(config):
            rows = [f"| `{key.name}` | {key.type} | {key.default} | {key.meaning} |" for key in keys]
            parts.append("\n".join(["| key | type | default | meaning |", "|---|---|---|---|", *rows]))
    return "\n\n".join(parts)


def page() -> str:
    """Return the whole reference as Markdown: docs/recipes.md."""
    sections = find_sections()
    listed = ", ".join(f"[{name}](#{anchor(name)})" for name in sections)
    return "\n\n".join([f"{INTRODUCTION}\nParts: {listed}.", *map(section_page, sections.values())]) + "\n"


def print_keys(part: str | None) -> None:
    """Print the keys of one part of a recipe; without a part, all parts with their kinds."""
    from rich.table import Table
    from rich.text import Text

    console = make_console()
    if part is None:
        table = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
        table.add_column(style="bold cyan", no_wrap=True)
        table.add_column(style="dim", no_wrap=True)
        table.add_column()
        for section in find_sections().values():
            table.add_row(section.name, section.path, ", ".join([*filter(None, section.classes), *section.names]))
        console.print(table)
        console.print("regard show --keys PART describes one of them, or one kind of it", style="dim")
        return
    section = find_section(part)
    console.print(Text.assemble((section.name, "bold cyan"), "  ", (section.path, "dim")))
    if section.names:
        console.print("one of " + ", ".join(section.names))
    if section.included:
        console.print(f"also every {section.included}", style="dim")
    for kind, config in section.classes.items():
        console.print()
        console.print((f'kind = "{kind}"  ' if kind else "") + (inspect.getdoc(config) or ""))
        table = Table(box=None, padding=(0, 2, 0, 2), show_header=False)
        for style in ("bold", "", "dim", ""):
            table.add_column(style=style, overflow="fold")
        for key in keys_of(config):
            table.add_row(key.name, _plain(key.type), _plain(key.default), key.meaning)
        console.print(table)


def _plain(text: str) -> str:
    """Remove links and emphasis from Markdown."""
    return re.sub(r"\[([^]]*)\]\([^)]*\)|[*`]", lambda found: found[1] or "", text)


def find_section(part: str) -> Section:
    """Find a section by its name, by a kind, or by the last word of a path."""
    sections = find_sections()
    last = part.rpartition(".")[2]
    for section in sections.values():
        if section.name in (part, last) or section.path == part:
            return section
    for section in sections.values():
        if last in section.classes:
            return Section(section.name, section.path, {last: section.classes[last]})
    holders = {
        section.name
        for section in sections.values()
        for config in section.classes.values()
        for key in keys_of(config)
        if key.name == last
    }
    if holders:
        raise ConfigError(f"{last!r} is a key, not a part; describe a part that has it: {', '.join(sorted(holders))}")
    names = [*sections, *(kind for section in sections.values() for kind in section.classes if kind)]
    raise ConfigError(f"no part of a recipe has the name {part!r}; {choices(part, set(names))}")
