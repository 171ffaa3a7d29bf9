"""The tour: its Python runs, its commands and links exist."""

import re
from pathlib import Path

import pytest
from typer.main import get_command

from regard.cli.main import app
from regard.lab.experiments import EXPERIMENTS
from regard.models.recipe import build_empty, load_recipe

TOUR = Path(__file__).parent.parent / "docs" / "tour"
CHAPTERS = sorted(TOUR.glob("[0-9]*.md"), key=lambda path: int(path.name.split("-")[0]))
PARTS = ("## The idea", "## Exercises", "<details><summary>Solutions</summary>")


def commands(path: Path) -> list[list[str]]:
    """Return the commands of a chapter, without their comments, as lists of words."""
    found = re.findall(r"^regard (.*?)(?: +#.*)?$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return [command.split() for command in found]


@pytest.mark.parametrize("path", CHAPTERS, ids=lambda path: path.stem)
def test_a_chapter_runs(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert all(part in text for part in PARTS)
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert blocks
    exec("\n".join(blocks), {"__name__": "chapter"})


@pytest.mark.parametrize("path", CHAPTERS, ids=lambda path: path.stem)
def test_the_commands_of_a_chapter_exist(path: Path) -> None:
    verbs = get_command(app).commands
    assert commands(path)
    for verb, *arguments in commands(path):
        assert verb in verbs
        if verb == "lab":
            assert arguments[0] in EXPERIMENTS
        if verb == "show":
            build_empty(load_recipe(arguments[0], *(word for word in arguments[1:] if "=" in word)).model)
        options = {name for parameter in verbs[verb].params for name in parameter.opts}
        if verb != "train":  # its options are those of the task
            assert {word for word in arguments if word.startswith("-")} <= options


@pytest.mark.parametrize("path", [TOUR / "index.md", *CHAPTERS], ids=lambda path: path.stem)
def test_the_links_of_a_chapter_exist(path: Path) -> None:
    links = re.findall(r"\]\(([^)#:]+)\)", path.read_text(encoding="utf-8"))
    assert links
    assert [link for link in links if not (path.parent / link).exists()] == []


def test_the_contents_name_all_chapters_in_order() -> None:
    text = (TOUR / "index.md").read_text(encoding="utf-8")
    assert re.findall(r"\]\((\d+-[a-z-]+\.md)\)", text) == [path.name for path in CHAPTERS]
