"""The tour: its chapters are complete, its notebooks run, and its pages can be written.

Its links and commands are checked with those of all pages: test_docs_links.py and test_docs_commands.py.
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest
from jupyter_client.manager import KernelManager
from nbclient import NotebookClient

import regard
from regard.viewer.export import read_head_weights
from regard.viewer.query import Query
from regard.viewer.record import record

TOUR = Path(__file__).parent.parent / "docs" / "tour"
sys.path.insert(0, str(TOUR))
from chapters import CHAPTERS  # noqa: E402
from notebooks import as_notebook  # noqa: E402
from pages import page_commands  # noqa: E402

PARTS = ("## The idea", "$$", "../../regard/", "## See it", "## Measure it", "\nregard lab ", "## Exercises")
SOLUTIONS = "<details><summary>Solutions</summary>"
FORGET = "%reset -f"
MINUTES = re.compile(r"^\*About (\d+) minutes to read and try, and (\d+) for the exercises\.\*$", re.MULTILINE)
by_name = pytest.mark.parametrize("path", CHAPTERS, ids=lambda path: path.stem)


@pytest.fixture(scope="module")
def kernel() -> Iterator[KernelManager]:
    """One kernel for all chapters: importing torch once is enough."""
    manager = KernelManager(kernel_name="python3")
    manager.start_kernel(cwd=str(TOUR))
    yield manager
    manager.shutdown_kernel(now=True)


@pytest.mark.slow
@by_name
def test_the_notebook_of_a_chapter_runs(path: Path, kernel: KernelManager) -> None:
    notebook = as_notebook(path)
    notebook.cells.insert(0, nbformat.v4.new_code_cell(FORGET))
    NotebookClient(notebook, km=kernel, timeout=300).execute()  # a kernel that is given is not shut down
    ran = [cell for cell in notebook.cells if cell.cell_type == "code" and cell.execution_count]
    assert len(ran) > 2
    assert any("widget-view" in str(cell.outputs) for cell in ran)  # the interactive page


@by_name
def test_the_notebook_of_a_chapter_is_up_to_date(path: Path) -> None:
    written = path.with_suffix(".ipynb").read_text(encoding="utf-8")
    assert written == nbformat.writes(as_notebook(path)) + "\n", "write it again: make reference"


@by_name
def test_a_chapter_is_complete(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert [part for part in PARTS if part not in text] == []
    exercises, solutions = text.split("## Exercises")[1].split(SOLUTIONS)
    numbers = re.findall(r"^\d+\. ", exercises, re.MULTILINE)
    assert numbers == re.findall(r"^\d+\. ", solutions, re.MULTILINE)


def test_every_chapter_links_to_the_page_that_it_writes() -> None:
    for path in CHAPTERS:
        page = f"pages/{path.stem}.html"
        assert page in page_commands()
        assert f"]({page}#view=" in path.read_text(encoding="utf-8")


def test_the_head_of_chapter_four_looks_from_it_to_the_animal() -> None:
    words = page_commands()["pages/4-self-attention.html"]
    option = {name: words[words.index(name) + 1] for name in ("-m", "--attention", "--head")}
    recording = record(regard.load(option["-m"], "cpu"), Query(words[1]))
    head = read_head_weights(recording, option["--attention"], int(option["--head"]))
    (query,) = (at for at, token in enumerate(head.queries) if token.strip() == "it")
    assert head.keys[head.weights[query].argmax()].strip() == "animal"


def test_the_contents_name_all_chapters_in_order() -> None:
    text = (TOUR / "index.md").read_text(encoding="utf-8")
    assert re.findall(r"\]\((\d+-[a-z-]+\.md)\)", text) == [path.name for path in CHAPTERS]


def test_the_contents_have_the_minutes_of_each_chapter() -> None:
    minutes = [found for path in CHAPTERS for found in MINUTES.findall(path.read_text(encoding="utf-8"))]
    assert len(minutes) == len(CHAPTERS)
    assert (
        re.findall(r"\| (\d+) \+ (\d+) \|$", (TOUR / "index.md").read_text(encoding="utf-8"), re.MULTILINE) == minutes
    )


def test_the_five_lectures_have_all_chapters_in_order() -> None:
    lectures = (TOUR / "index.md").read_text(encoding="utf-8").partition("## Five lectures")[2]
    pairs = re.findall(r"^\| [^|]+ \| (\d+), (\d+) \|", lectures, re.MULTILINE)
    assert [int(number) for pair in pairs for number in pair] == list(range(1, len(CHAPTERS) + 1))
    assert len(pairs) == 5
