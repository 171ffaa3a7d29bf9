"""The manifest's types in Python and in TypeScript are the same."""

import re
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, get_args, get_origin, get_type_hints, is_typeddict

from regard.viewer import manifest

TYPES = Path(__file__).parent.parent.parent / "web" / "src" / "types.ts"
NAMES = {str: "string", int: "number", float: "number", bool: "boolean", NoneType: "null"}


def typescript(type_: Any) -> str:
    """Write a Python type as TypeScript."""
    origin, arguments = get_origin(type_), get_args(type_)
    if type_ in NAMES:
        return NAMES[type_]
    if origin is UnionType:
        return " | ".join(map(typescript, arguments))
    if origin is Literal:
        return " | ".join(f'"{value}"' for value in arguments)
    if origin is list:
        inner = typescript(arguments[0])
        return f"({inner})[]" if " | " in inner and not inner.endswith("]") else f"{inner}[]"
    if origin is dict:
        return f"Record<{', '.join(map(typescript, arguments))}>"
    return type_.__name__


def declared() -> tuple[dict[str, str], dict[str, dict[str, str]]]:
    """Read the aliases and the interfaces of types.ts."""
    text = re.sub(r"/\*.*?\*/|//[^\n]*", "", TYPES.read_text(encoding="utf-8"), flags=re.DOTALL)
    aliases = {
        name: " ".join(union.split()).removeprefix("| ")
        for name, union in re.findall(r'export type (\w+) =([\s"\w|-]+);', text)
        if '"' in union
    }
    interfaces = {}
    for name, body in re.findall(r"export interface (\w+) \{(.*?)\n\}", text, re.DOTALL):
        fields = dict(re.findall(r"(\w+): ([^;]+);", body))
        interfaces[name] = {
            field: re.sub(r"\w+", lambda word: aliases.get(word[0], word[0]), type_) for field, type_ in fields.items()
        }
    return aliases, interfaces


def test_the_page_declares_the_types_that_python_writes():
    _, interfaces = declared()
    known = {name: one for name, one in vars(manifest).items() if is_typeddict(one) and name != "AttentionShape"}
    assert len(known) > 10
    assert {
        name: {field: typescript(type_) for field, type_ in get_type_hints(one).items()} for name, one in known.items()
    } == interfaces


def test_the_page_declares_the_same_kinds():
    aliases, _ = declared()
    known = {name: one for name, one in vars(manifest).items() if get_origin(one) is Literal}
    assert {name: typescript(one) for name, one in known.items()} == aliases
