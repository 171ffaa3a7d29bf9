"""The walk-throughs of docs/extending.md and of its guide, run as a reader would: files, commands and Python.

Only the number of updates is smaller than on the page.
"""

import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from regard.extend import REGISTRIES, open_registry

from .cli.command import Command

DOCS = Path(__file__).parents[1] / "docs"
PAGE, GUIDE = DOCS / "extending.md", DOCS / "guides" / "your-own-parts.md"
STEPS = "train.steps=2"
BLOCK = r"```(python|bash|toml)\n(.*?)```"  # other blocks show what is printed
WORDS = ["apple", "bread", "cable", "dance", "eagle", "fable", "grape", "house", "igloo", "jolly"]


class Block(NamedTuple):
    """A block of code of the page."""

    language: str
    code: str

    @property
    def file(self) -> str | None:
        """Return the name of the file that the block is, by its first line."""
        found = re.match(r"# (\S+\.(?:py|toml))\n", self.code)
        return found[1] if found else None


def walk_throughs() -> dict[str, list[Block]]:
    sections = re.split(r"^## (.+)$", PAGE.read_text(encoding="utf-8"), flags=re.M)[1:]
    pairs = zip(sections[::2], sections[1::2], strict=True)
    texts = {**dict(pairs), "The guide": GUIDE.read_text(encoding="utf-8")}
    return {title: [Block(*found) for found in re.findall(BLOCK, text, re.S)] for title, text in texts.items()}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of the reader's own with some texts; what is registered is taken back."""
    registries = [open_registry(sort) for sort in REGISTRIES]
    before, modules = [dict(registry._items.maps[0]) for registry in registries], set(sys.modules)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))
    (tmp_path / "corpus.txt").write_text("To be, or not to be, that is the question.\n" * 200, encoding="utf-8")
    words = [f"{first[:2]}{second[2:]}" for first in WORDS for second in WORDS] + ["abc"]
    (tmp_path / "words.txt").write_text("\n".join(words), encoding="utf-8")
    yield tmp_path
    for registry, items in zip(registries, before, strict=True):
        registry._items.maps[0] = items
    for name in set(sys.modules) - modules:
        if name.startswith("my_"):
            del sys.modules[name]


def test_there_are_four_walk_throughs_and_a_guide() -> None:
    titles = ["A new score", "A new mixer", "A new task", "A new Hugging Face family", "The guide"]
    assert list(walk_throughs()) == titles


@pytest.mark.slow
@pytest.mark.parametrize("title", walk_throughs())
def test_a_walk_through_works(
    title: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command = Command(monkeypatch, capsys)
    for block in walk_throughs()[title]:
        code = re.sub(r"train\.steps=\d+", STEPS, block.code)
        if block.file is not None:
            (folder / block.file).write_text(code, encoding="utf-8")
        elif block.language == "bash":
            for line in code.splitlines():
                name, *words = shlex.split(line)
                assert name == "regard"
                done = command(*words)
                assert done.code == 0, f"{line}\n{done.err}"
        else:
            assert block.language == "python"
            exec(compile(code, title, "exec"), {})
    for drawing in re.findall(r"--svg (\S+)", "".join(block.code for block in walk_throughs()[title])):
        assert "<svg" in (folder / drawing).read_text(encoding="utf-8")
