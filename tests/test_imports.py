"""The rooms of the package and the direction in which they may know each other, read from the source.

    errors -> atomic -> {config, draw} -> parts -> models -> {data, decode, hub} -> tasks -> runs -> {training, use}
    -> viewer -> lab -> cli

A room may import rooms to its left; brothers in braces do not import each other. `formal` stands alone. The package
itself and the demo are its users and may import anything.
"""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import regard

from .processes import PATIENCE

ROOT = Path(regard.__file__).parent
FILES = sorted(ROOT.rglob("*.py"))
LEVELS = [["errors"], ["atomic"], ["config", "draw"], ["parts"], ["models"], ["data", "decode", "hub"], ["tasks"]]
LEVELS += [["runs"], ["training", "use"], ["viewer"], ["lab"], ["cli"]]
LEVEL = {room: level for level, rooms in enumerate(LEVELS) for room in rooms}
USERS = {"__init__", "__main__", "demo"}
OPEN_TO_ALL = {"__version__"}  # what every room may take from the package itself


def imports(source: str, package: str) -> Iterator[tuple[int, str]]:
    """Yield (line, dotted name) of everything of ours that a file of `package` imports, wherever it does so."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) + 1 - node.level] if node.level else []
            home = ".".join([*above, *filter(None, [node.module])])
            names = [f"{home}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("import_module", "__import__")):
            names = [ast.literal_eval(node.args[0]) if isinstance(node.args[0], ast.Constant) else "regard.?"]
        else:
            continue
        yield from ((node.lineno, name) for name in names if name.split(".")[0] == "regard")


def trespasses(source: str, room: str, package: str = "regard") -> list[str]:
    """List the imports that a file in `room` must not have."""
    if room in USERS:
        return []
    found = []
    for line, name in imports(source, package):
        other = name.split(".")[1] if "." in name else "the whole package"
        if other in regard._HOMES:  # `from regard import build` is an import of models
            other = regard._HOMES[other].split(".")[1]
        allowed = other in OPEN_TO_ALL or other == room or LEVEL.get(other, 99) < LEVEL.get(room, -1)
        if not allowed:
            found.append(f"line {line}: {room} must not import {name}")
    return found


def place(path: Path) -> tuple[str, str]:
    """Give room and package of a file."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return parts[0], ".".join(("regard", *parts[:-1]))


@pytest.mark.parametrize("path", FILES, ids=[str(path.relative_to(ROOT)) for path in FILES])
def test_imports_go_in_one_direction(path: Path) -> None:
    room, package = place(path)
    assert room in {*LEVEL, *USERS, "formal"}, f"{room} has no place in the order of rooms"
    assert trespasses(path.read_text(encoding="utf-8"), room, package) == []


@pytest.mark.parametrize("path", FILES, ids=[str(path.relative_to(ROOT)) for path in FILES])
def test_a_file_is_named_for_what_it_holds(path: Path) -> None:
    assert path.stem not in {"utils", "util", "common", "helpers", "helper", "misc"}


@pytest.mark.parametrize(
    ("room", "source"),
    [
        ("errors", "from regard.config import Table"),
        ("config", "from regard.parts.norm import NormConfig"),
        ("config", "from regard.draw.style import LIGHT"),
        ("draw", "from regard.config import Count"),
        ("parts", "from regard.models.stack import Stack"),
        ("parts", "import regard.models.stack as stack"),
        ("parts", "from regard import models"),
        ("parts", "from regard import build"),
        ("parts", "import regard"),
        ("parts", "import torch, regard.cli"),
        ("parts", "def f():\n    from regard.models.stack import Stack"),
        ("parts", "if TYPE_CHECKING:\n    from regard.models.stack import Stack"),
        ("parts", "from ..models import stack"),
        ("parts", "from .. import models"),
        ("parts", "from importlib import import_module\nimport_module('regard.models')"),
        ("parts", "import importlib\nimportlib.import_module(name)"),
        ("parts", "from regard.formal import attention"),
        ("models", "from regard.data.text import read"),
        ("data", "from regard.tasks.copy import Copy"),
        ("decode", "from regard.hub.gpt2 import load"),
        ("training", "from regard.viewer.show import show"),
        ("use", "from regard.training.run import open_run"),
        ("lab", "from regard.cli.main import main"),
        ("cli", "from regard.demo import demo"),
        ("formal", "from regard.errors import RegardError"),
    ],
)
def test_a_trespass_is_seen(room: str, source: str) -> None:
    [found] = trespasses(source, room, f"regard.{room}")
    assert f"line {source.count(chr(10)) + 1}: {room} must not import regard" in found


@pytest.mark.parametrize(
    ("room", "source"),
    [
        ("config", "from regard.errors import ConfigError"),
        ("draw", "from regard.draw.style import LIGHT\nfrom regard.errors import RegardError\nimport numpy as np"),
        ("training", "from regard.draw import LIGHT"),
        ("parts", "from regard.config import Kinds\nfrom regard.parts.norm import NormConfig\nimport torch"),
        ("parts", "from .norm import NormConfig\nfrom . import norm\nfrom ..errors import at"),
        ("models", "from regard.parts.norm import NormConfig\nfrom regard import ConfigError"),
        ("lab", "from regard.training.loop import train\nfrom regard.data.text import read"),
        ("cli", "from regard import __version__, build\nfrom regard.lab.report import report"),
        ("formal", "import numpy as np"),
        ("demo", "import regard\nfrom regard.cli.main import main"),
        ("parts", "import regards_to_all\nfrom regardless import x"),
    ],
)
def test_what_is_allowed_is_not_taken_for_a_trespass(room: str, source: str) -> None:
    assert trespasses(source, room, f"regard.{room}") == []


@pytest.mark.parametrize("module", ["regard", "regard.cli.main", "regard.config", "regard.draw", "regard.formal"])
def test_torch_is_not_imported_before_it_is_needed(module: str) -> None:
    program = f"import {module}, sys; print('torch' in sys.modules, 'regard' in sys.modules)"
    command = [sys.executable, "-c", program]
    run = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE)
    assert (run.stdout.strip(), run.stderr) == ("False True", "")


def test_every_public_name_is_where_the_package_says() -> None:
    """Without importing the rooms: the name is defined or imported at the top of its file."""
    for name, module in regard._HOMES.items():
        source = (ROOT / Path(*module.split(".")[1:])).with_suffix(".py").read_text(encoding="utf-8")
        defined = {node.name for node in ast.parse(source).body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
        assert name in defined, f"{name} is not in {module}"
    assert sorted(regard.__all__) == sorted(regard._HOMES)
    with pytest.raises(AttributeError, match="module 'regard' has no attribute 'biuld'"):
        _ = regard.biuld
