"""One name, one thing: no two public classes or functions of the package share a name."""

import ast
from collections import defaultdict
from pathlib import Path

import regard

ROOT = Path(regard.__file__).parent
FORBIDDEN = {"utils", "util", "common", "helpers", "helper", "misc"}  # names of files that say nothing


def public_definitions() -> dict[str, set[str]]:
    """Find the files in which each public name is defined at module level; importing a name does not define it."""
    found = defaultdict(set)
    for path in sorted(ROOT.rglob("*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and not node.name.startswith(
                "_"
            ):
                found[node.name].add(str(path.relative_to(ROOT)))
    return found


def test_no_two_public_classes_or_functions_share_a_name():
    shared = {name: sorted(files) for name, files in public_definitions().items() if len(files) > 1}
    found = [f"{name}: {', '.join(files)}" for name, files in shared.items()]
    assert not found, "\n".join(found)


def test_no_file_has_a_name_that_says_nothing():
    assert [str(path) for path in ROOT.rglob("*.py") if path.stem in FORBIDDEN] == []
