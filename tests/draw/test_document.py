"""The code in docs/pictures.md works, and its pictures exist."""

import re
from pathlib import Path

import matplotlib.image

DOCS = Path(__file__).parents[2] / "docs"
TEXT = (DOCS / "pictures.md").read_text(encoding="utf-8")


def test_the_python_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    [block] = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    exec(block, {})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["attention.pdf", "heads.png"]
    assert matplotlib.image.imread(tmp_path / "heads.png").ndim == 3


def test_the_pictures_exist_and_are_made_by_the_script():
    script = (DOCS / "attention.py").read_text(encoding="utf-8")
    shown = re.findall(r"!\[.*?\]\((.*?)\)", TEXT)
    assert len(shown) == 3
    for name in shown:
        assert (DOCS / name).read_text(encoding="utf-8").startswith("<?xml")
        assert f'"{name}"' in script
