"""What `import regard` and `from regard.parts import ...` offer."""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import regard
from regard import parts

ROOT = Path(regard.__file__).parent
INTERNAL = {"edit", "attend", "cache", "state", "precision", "recurrence"}  # modules behind the parts


def test_type_checkers_see_the_names_of_the_table() -> None:
    tree = ast.parse((ROOT / "__init__.py").read_text(encoding="utf-8"))
    seen = {
        alias.asname: node.module
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.asname
    }
    assert seen == regard._HOMES
    assert sorted(seen) == sorted(regard.__all__)


def test_every_public_name_can_be_imported() -> None:
    for name in regard.__all__:
        assert getattr(regard, name).__name__ == name
    assert set(dir(regard)) == {*regard.__all__, "__version__"}


def test_parts_offers_every_public_class_of_its_modules() -> None:
    defined = {
        node.name
        for path in (ROOT / "parts").glob("*.py")
        if path.stem not in INTERNAL
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    }
    internal = {"BeamMask", "Both", "Constant", "Coordinate", "Fused", "Gated", "OneLayer", "Repackable", "Stem"}
    internal |= {
        "ChannelDecays",
        "HasModule",
        "HeadDecays",
        "RWKV7Parts",
        "RowDropout",
        "Signal",
        "Source",
        "Watchable",
    }
    assert defined - internal <= set(parts.__all__)
    for name in parts.__all__:
        assert hasattr(parts, name)


def test_the_citation_has_the_version_of_the_package() -> None:
    root = ROOT.parent
    version = re.search(r'^version = "(.+)"$', (root / "pyproject.toml").read_text(encoding="utf-8"), re.MULTILINE)
    assert version is not None
    assert f"\nversion: {version[1]}\n" in (root / "CITATION.cff").read_text(encoding="utf-8")


HUGE_PAGES = """
import re, sys
import regard, torch
tensor = torch.ones(32 * 2**20)
flags = ""
for line in open("/proc/self/smaps"):
    if found := re.match(r"([0-9a-f]+)-([0-9a-f]+) ", line):
        inside = int(found[1], 16) <= tensor.data_ptr() + 2**25 < int(found[2], 16)
    elif inside and line.startswith("VmFlags:"):
        flags = line
print("hg" in flags.split() if flags else "unknown")
"""


@pytest.mark.parametrize(("chosen", "expected"), [(None, "True"), ("0", "False")])
def test_large_tensors_are_in_huge_pages_unless_the_user_wants_none(chosen: str | None, expected: str) -> None:
    if not Path("/sys/kernel/mm/transparent_hugepage").is_dir():
        pytest.skip("the system has no huge pages")
    environment = {name: value for name, value in os.environ.items() if name != "THP_MEM_ALLOC_ENABLE"}
    environment |= {} if chosen is None else {"THP_MEM_ALLOC_ENABLE": chosen}
    command = [sys.executable, "-c", HUGE_PAGES]
    found = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    if found.stdout.strip() == "unknown":
        pytest.skip("the system does not say what a page is")
    assert found.stdout.strip() == expected
