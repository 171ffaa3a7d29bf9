"""What `import regard` and `from regard.parts import ...` offer."""

import ast
import re
from pathlib import Path

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
