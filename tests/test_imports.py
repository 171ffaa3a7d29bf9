"""The packages and the direction of imports between them, read from the source.

    kernel -> {errors, escape, machine, quantity} -> {arguments, atomic, html_table, terminal, untrusted}
    -> {limits, recipe_files} -> {config, draw} -> parts -> models -> {data, decode, hub} -> tasks -> runs -> use
    -> training -> extend -> viewer -> lab -> cli

A package may import packages to its left; packages in braces are independent of each other. `formal` imports nothing of
ours, and only `lab` imports it, to show it beside the fast code. `regard/__init__.py` may import anything.
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
LEVELS = [
    ["kernel"],
    ["errors", "escape", "machine", "quantity"],
    ["arguments", "atomic", "html_table", "terminal", "untrusted"],
    ["limits", "recipe_files"],
    ["config", "draw"],
    ["parts"],
    ["models"],
    ["data", "decode", "hub"],
]
LEVELS += [["tasks"], ["runs"], ["use"], ["training"], ["extend"], ["viewer"], ["lab"], ["cli"]]
LEVEL = {package: level for level, packages in enumerate(LEVELS) for package in packages}
USERS = {"__init__", "__main__", "extend"}  # `extend` finds the tables of all packages by name
OPEN_TO_ALL = {"__version__"}  # what every package may import from `regard` itself


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
            named = node.args[0].values[0] if isinstance(node.args[0], ast.JoinedStr) else node.args[0]
            names = [str(named.value) if isinstance(named, ast.Constant) else "regard.?"]
        else:
            continue
        yield from ((node.lineno, name) for name in names if name.split(".")[0] == "regard")


def violations(source: str, package: str, name: str = "regard") -> list[str]:
    """List the imports that a file of `package` must not have; `name` is the full name of its package."""
    if package in USERS:
        return []
    found = []
    for line, imported in imports(source, name):
        other = imported.split(".")[1] if "." in imported else "the whole package"
        if other in regard._HOMES:  # `from regard import build` is an import of models
            other = regard._HOMES[other].split(".")[1]
        allowed = (
            other in OPEN_TO_ALL
            or (package, other) == ("lab", "formal")
            or other == package
            or LEVEL.get(other, 99) < LEVEL.get(package, -1)
        )
        if not allowed:
            found.append(f"line {line}: {package} must not import {imported}")
    return found


def place(path: Path) -> tuple[str, str]:
    """Return the package directly below `regard`, and the full name of the package that holds the file."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return parts[0], ".".join(("regard", *parts[:-1]))


def test_imports_go_in_one_direction() -> None:
    found = []
    for path in FILES:
        package, name = place(path)
        assert package in {*LEVEL, *USERS, "formal"}, f"{path}: add {package} to LEVELS"
        found += [f"{path}: {problem}" for problem in violations(path.read_text(encoding="utf-8"), package, name)]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("package", "source"),
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
        ("parts", "import importlib\nimportlib.import_module(f'regard.models.{name}')"),
        ("parts", "import importlib\nimportlib.import_module(f'{name}')"),
        ("parts", "from regard.formal import attention"),
        ("models", "from regard.data.text import read"),
        ("data", "from regard.tasks.copy import Copy"),
        ("decode", "from regard.hub.gpt2 import load"),
        ("training", "from regard.viewer.show import show"),
        ("use", "from regard.training.run import open_run"),
        ("lab", "from regard.cli.main import main"),
        ("formal", "from regard.errors import RegardError"),
    ],
)
def test_a_forbidden_import_is_found(package: str, source: str) -> None:
    [found] = violations(source, package, f"regard.{package}")
    assert f"line {source.count(chr(10)) + 1}: {package} must not import regard" in found


@pytest.mark.parametrize(
    ("package", "source"),
    [
        ("config", "from regard.errors import ConfigError"),
        ("draw", "from regard.draw.style import LIGHT\nfrom regard.errors import RegardError\nimport numpy as np"),
        ("training", "from regard.draw import LIGHT"),
        ("parts", "from regard.config import Kinds\nfrom regard.parts.norm import NormConfig\nimport torch"),
        ("parts", "from .norm import NormConfig\nfrom . import norm\nfrom ..errors import at"),
        ("models", "from regard.parts.norm import NormConfig\nfrom regard import ConfigError"),
        ("lab", "from regard.training.loop import train\nfrom regard import draw, formal"),
        ("cli", "from regard import __version__, build\nfrom regard.lab.report import report"),
        ("formal", "import numpy as np"),
        ("__init__", "import regard\nfrom regard.cli.main import main"),
        ("parts", "import regards_to_all\nfrom regardless import x"),
    ],
)
def test_allowed_imports_pass(package: str, source: str) -> None:
    assert violations(source, package, f"regard.{package}") == []


@pytest.mark.parametrize(
    "module", ["regard", "regard.cli.main", "regard.config", "regard.draw", "regard.formal", "regard.lab.experiments"]
)
def test_torch_is_not_imported_before_it_is_needed(module: str) -> None:
    program = f"import {module}, sys; print('torch' in sys.modules, 'regard' in sys.modules)"
    command = [sys.executable, "-c", program]
    run = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE)
    assert (run.stdout.strip(), run.stderr) == ("False True", "")


def test_the_help_of_the_command_imports_no_verb_and_that_of_a_verb_no_other() -> None:
    show = "[name.rpartition('.')[2] for name in sys.modules if name.startswith('regard.cli.')]"
    for words, expected in (["--help"], set()), (["recipes", "--help"], {"recipes"}):
        program = f"import sys; from regard.cli.main import app; app({words}, standalone_mode=False); print(*{show})"
        command = [sys.executable, "-c", program]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=PATIENCE)
        assert set(done.stdout.splitlines()[-1].split()) == {"console", "help", "main", *expected}


def test_a_model_is_built_saved_and_loaded_without_importing_the_compiler(tmp_path: Path) -> None:
    """Importing it takes longer than everything else before the first token of a small model."""
    build = "regard.build('gpt2', 'model.depth=1', 'model.vocabulary=9', 'model.layers.block.mixer.position.kind=rope')"
    save = f"regard.save_model({build}, {str(tmp_path)!r})"
    load = f"regard.load_model({str(tmp_path)!r})"
    program = f"import regard, sys; {save}; {load}; print('torch._dynamo' in sys.modules, 'sympy' in sys.modules)"
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE)
    assert (done.stdout.strip(), done.stderr) == ("False False", "")


def test_every_public_name_is_where_the_package_says() -> None:
    """Read from the source, so that nothing is imported."""
    for name, module in regard._HOMES.items():
        source = (ROOT / Path(*module.split(".")[1:])).with_suffix(".py").read_text(encoding="utf-8")
        defined = {node.name for node in ast.parse(source).body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
        assert name in defined, f"{name} is not in {module}"
    assert sorted(regard.__all__) == sorted(regard._HOMES)
    with pytest.raises(AttributeError, match="module 'regard' has no attribute 'biuld'"):
        _ = regard.biuld
