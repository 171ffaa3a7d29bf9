"""Write each chapter of the tour as a notebook beside it: `python docs/tour/notebooks.py`.

The chapter in Markdown is the source. Its Python becomes cells, and so do its commands. `regard look` becomes
`regard.look(...)`, which shows the page in the cell. Cells that train, measure or need a run of the reader's own have
the tag `skip-execution`: they are there to be run by a person, and the tests leave them out.
"""

import json
import re
import shlex
from pathlib import Path

import nbformat
from chapters import CHAPTERS, Piece, read_pieces
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

SKIPPED = {"tags": ["skip-execution"]}
IN_NOTEBOOKS = (  # what is different there
    (re.compile(r"\*\[This chapter as a notebook\].*\n+"), ""),
    (re.compile(r"\]\((\d+-[a-z-]+)\.md\)"), r"](\1.ipynb)"),
    (re.compile(r"\[Open the page\]\(pages/[^)]*\)"), "Look at the page in the cell above"),
    (re.compile(r"\[([^\]]+)\]\(pages/[^)]*\)"), r"*\1*"),
)
OPTIONS = {"--tokens": "tokens", "--head": "head", "--attention": "attention", "--target": "target"}


def quoted(value: str | list[str]) -> str:
    """Return Python source for a text, or a list of texts, with double quotes."""
    return json.dumps(value, ensure_ascii=False)


def look_call(command: str) -> str:
    """Return `regard look ...` as a call of `regard.look`, without the file that the command exports to."""
    models, texts, options = [], [], []
    words = iter(shlex.split(command, comments=True)[2:])
    for word in words:
        if word == "-m":
            models.append(next(words))
        elif word in OPTIONS:
            value = next(words)
            options.append(f"{OPTIONS[word]}={value if value.isdigit() else quoted(value)}")
        elif word == "--export":
            next(words)
        else:
            texts.append(f"image={quoted(word)}" if word.endswith(".png") else quoted(word))
    model = [quoted(models[0] if len(models) == 1 else models)] if models else []
    return f"regard.look({', '.join([*model, *texts, *options])})"


def command_cells(text: str) -> list[nbformat.NotebookNode]:
    """Return the cells of a block of commands."""
    cells: list[nbformat.NotebookNode] = []
    shell: list[str] = []
    for line in text.splitlines():
        if line.startswith("regard look"):
            runs = "--export" in line  # with a model that comes with the package
            cells.append(new_code_cell(look_call(line), metadata={} if runs else SKIPPED))
        else:
            shell.append(f"!{line}" if line.startswith("regard ") else f"# {line}")
    if shell:
        cells.insert(0, new_code_cell("\n".join(shell), metadata=SKIPPED))
    return cells


def cells_of(piece: Piece) -> list[nbformat.NotebookNode]:
    """Return the cells of a part of a chapter."""
    if piece.kind == "text":
        return [new_markdown_cell(piece.text)]
    if piece.kind == "python":
        return [new_code_cell(piece.text)]
    return command_cells(piece.text)


def as_notebook(chapter: Path) -> nbformat.NotebookNode:
    """Return a chapter as a notebook without outputs; the same chapter gives the same file."""
    cells = [cell for piece in read_pieces(chapter) for cell in cells_of(piece)]
    if not any("import regard" in cell["source"] for cell in cells):
        cells.insert(1, new_code_cell("import regard"))
    for number, cell in enumerate(cells):
        cell["id"] = f"{chapter.stem}-{number}"
        for pattern, text in IN_NOTEBOOKS:
            cell["source"] = pattern.sub(text, cell["source"])
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return new_notebook(cells=cells, metadata={"kernelspec": kernel, "language_info": {"name": "python"}})


def write_notebooks() -> None:
    """Write all notebooks."""
    for chapter in CHAPTERS:
        nbformat.write(as_notebook(chapter), chapter.with_suffix(".ipynb"))


if __name__ == "__main__":
    write_notebooks()
