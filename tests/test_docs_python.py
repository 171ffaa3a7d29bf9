"""The Python of the documentation: all of it compiles and imports what exists, and most of it runs.

Models of the reader are models that come with the package; trainings have fewer updates than on the page. Other tests
run the Python of the tour, of the guides, of the README and of the pages about extending, the lab and pictures.
"""

import ast
from pathlib import Path

import pytest

import regard
from regard.use.box import FOLDER

from .pages import PAGES, ROOT, name, python_blocks, read

MODELS = {
    "runs/translation-1": "en-fr",
    "runs/language-1": "shakespeare",
    "runs/classification-1": "topics",
    "runs/masked-1": "english",
    "FOLDER": "english",
}
SMALLER = {
    '"train.steps=500"': '"train.steps=2", size="tiny"',
    "train.steps=1000": "train.steps=3",
    "tokens=100": "tokens=3",
    ".ablate()": '.ablate("test.de", "test.en")',
    'stream("Once upon a time")': 'stream("Once upon a time", tokens=3)',
    '"runs/language-1", "huggingface"': '"runs/translation-1", "huggingface"',
}
RUN = ["docs/using.md", "docs/interventions.md", "docs/hugging-face.md", "docs/training.md"]
WITH_PYTHON = [page for page in PAGES if python_blocks(read(page))]


@pytest.mark.parametrize("page", WITH_PYTHON, ids=name)
def test_the_python_of_a_page_names_what_exists(page: Path) -> None:
    for code in python_blocks(read(page)):
        for node in ast.walk(ast.parse(code)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("regard"):
                exec(ast.unparse(node), {})
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "regard":
                assert hasattr(regard, node.attr), f"regard has no {node.attr}"


@pytest.mark.parametrize("page", RUN)
def test_the_python_of_a_page_runs(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))
    (tmp_path / "runs").mkdir()
    for path, model in MODELS.items():
        (tmp_path / path).symlink_to(FOLDER / model)
    for file in ("test.de", "test.en"):
        (tmp_path / file).write_text("A red dog runs in the park.\nShe gave him a book.\n", encoding="utf-8")
    for file, lines in (("corpus.txt", 200), ("other.txt", 8)):
        (tmp_path / file).write_text("To be, or not to be, that is the question.\n" * lines, encoding="utf-8")
    code = "\n".join(block for block in python_blocks(read(ROOT / page)) if "gpt2-folder" not in block)
    for found, smaller in SMALLER.items():
        code = code.replace(found, smaller)
    exec(compile(code, page, "exec"), {"__name__": "page"})
