"""The guides: each has a goal, mistakes and where to read on; their Python runs, with the models in the package."""

import re
from pathlib import Path

import pytest

import regard

GUIDES = Path(__file__).parent.parent / "docs" / "guides"
PAGES = sorted(path for path in GUIDES.glob("*.md") if path.name != "index.md")
BLOCK = re.compile(r"```python\n(.*?)```", re.DOTALL)
RUN_ELSEWHERE = "your-own-parts"  # tests/test_extending.py: it needs files of the reader


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_a_guide_is_complete(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert all(part in text for part in ("**Goal:**", "```bash", "```text", "## What can go wrong", "**Read on:**"))
    assert len(text.split()) < 1000


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_the_python_of_a_guide_runs(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = BLOCK.findall(path.read_text(encoding="utf-8"))
    if blocks and path.stem != RUN_ELSEWHERE:
        exec(compile("\n".join(blocks), path.name, "exec"), {"__name__": "guide"})
        assert capsys.readouterr().out


@pytest.mark.slow
def test_the_guide_shows_what_switching_heads_off_does_to_the_translator_of_the_package() -> None:
    """Compare the most important head, the clear one and the losses, as far as rounding leaves them."""
    text = (GUIDES / "look-and-change.md").read_text(encoding="utf-8")
    rows = re.findall(r"^(\w+ L\d\.H\d) +(\S+) +(\S+) ", text, re.MULTILINE)
    shown = {name: (float(loss), float(rise)) for name, loss, rise in rows}
    found = regard.load("en-fr").ablate()
    losses = {one.name: (one.loss, one.rise) for one in found.heads}
    (whole,) = re.findall(r"loss of the whole model: (\S+)", text)
    assert found.loss == pytest.approx(float(whole), abs=2e-4)
    assert next(iter(shown)) == next(iter(losses))
    for name, values in shown.items():
        assert losses[name] == pytest.approx(values, abs=2e-4), name


def test_the_contents_name_all_guides() -> None:
    text = (GUIDES / "index.md").read_text(encoding="utf-8")
    assert sorted(re.findall(r"\]\(([a-z-]+\.md)\)", text)) == [path.name for path in PAGES]
