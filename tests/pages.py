"""The pages of the documentation, with their blocks of code and their commands."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
PAGES = [*sorted(ROOT.glob("*.md")), *sorted(ROOT.glob("docs/**/*.md")), *sorted(ROOT.glob("regard/**/*.md"))]
FENCE = re.compile(r"^( *)(`{3,})([^\n]*)\n(.*?)^\1\2 *$", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"`(regard [^`]+)`")
SHELL = {"", "bash", "sh", "console"}
OPERATORS = {"|", "||", "&", "&&", ";", "<", ">", ">>"}


class Block(NamedTuple):
    """A block of code."""

    language: str
    code: str


class DocumentedCommand(NamedTuple):
    """A command of a page: its words after `regard`, and whether it is complete or only mentioned in a sentence."""

    words: tuple[str, ...]
    is_complete: bool

    def __str__(self) -> str:
        return shlex.join(["regard", *self.words])


def name(page: Path) -> str:
    """Return the path of a page in the repository."""
    return page.relative_to(ROOT).as_posix()


def read(page: Path) -> str:
    """Return the text of a page."""
    return page.read_text(encoding="utf-8")


def blocks(text: str) -> list[Block]:
    """Return the blocks of code of a page, in their order."""
    return [Block(found[3].strip(), found[4]) for found in FENCE.finditer(text)]


def python_blocks(text: str) -> list[str]:
    """Return the blocks of Python of a page."""
    return [block.code for block in blocks(text) if block.language in ("python", "py")]


def without_code(text: str) -> str:
    """Return a page without its blocks of code and the code in its sentences."""
    return re.sub(r"`[^`\n]*`", "", FENCE.sub("", text))


def commands(text: str) -> Iterator[DocumentedCommand]:
    """Yield the commands of `regard` in blocks of code, and those in sentences."""
    for block in blocks(text):
        if block.language in SHELL:
            prompt = "$ " if block.language == "console" else ""  # other lines are what a command prints
            for line in block.code.replace("\\\n", " ").splitlines():
                if line.startswith(prompt):
                    yield from _find(line.removeprefix("$ "), is_complete=True)
    for line in INLINE.findall(FENCE.sub("", text)):
        yield from _find(" ".join(line.split()), is_complete=False)


def _find(line: str, is_complete: bool) -> Iterator[DocumentedCommand]:
    """Yield the commands of a line: `regard ...`, or `... -m regard ...`; other programs are left out."""
    if "regard " not in line or "<Tab>" in line:
        return
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;<>")
    lexer.whitespace_split = True
    try:
        words = list(lexer)
    except ValueError:  # a quote that is not closed: a sentence of what a command prints
        return
    command: list[str] = []
    for word in [*words, ";"]:
        if word not in OPERATORS:
            command.append(word)
            continue
        start = [0] if command[:1] == ["regard"] else []
        start += [at + 1 for at in range(len(command) - 1) if command[at : at + 2] == ["-m", "regard"]]
        if start:
            yield DocumentedCommand(tuple(command[start[0] + 1 :]), is_complete)
        command = []
