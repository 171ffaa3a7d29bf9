"""The code in docs/pictures.md works."""

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
