"""Read the chapters of the tour: their text, their Python and their commands."""

import re
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parent
CHAPTERS = sorted(HERE.glob("[0-9]*.md"), key=lambda path: int(path.name.split("-")[0]))
FENCE = re.compile(r"^```(\w*)\n(.*?)^```\n", re.DOTALL | re.MULTILINE)
CODE = ("", "python")  # other blocks show what is printed


class Piece(NamedTuple):
    """A part of a chapter: text (`kind` is "text"), Python ("python") or commands ("")."""

    kind: str
    text: str


def read_pieces(chapter: Path) -> list[Piece]:
    """Split a chapter at its blocks of code."""
    text = chapter.read_text(encoding="utf-8")
    pieces, end = [], 0
    for found in FENCE.finditer(text):
        if found[1] not in CODE:
            continue
        pieces += [Piece("text", text[end : found.start()]), Piece(*found.groups())]
        end = found.end()
    pieces.append(Piece("text", text[end:]))
    return [Piece(kind, text.strip("\n")) for kind, text in pieces if text.strip()]


def read_commands(text: str) -> list[str]:
    """Return the commands of a block, without their comments."""
    return [re.sub(r"  +#.*", "", line) for line in text.splitlines() if line.startswith("regard ")]
