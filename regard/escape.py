"""Make text from files and models safe to print: control characters become visible escapes. Paths are shortened."""

from __future__ import annotations

from html import escape
from pathlib import Path
from unicodedata import bidirectional, category

DIRECTION_CONTROLS = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}


def escape_controls(text: str, encoding: str = "utf-8", keep: str = "") -> str:
    r"""Replace control characters, and characters that `encoding` lacks, by escapes such as `\x1b`.

    A terminal would obey them: they move the cursor, change colours and titles, or reverse the text. `keep` are control
    characters that stay, such as a line end.
    """
    safe = "".join(repr(letter)[1:-1] if letter not in keep and _is_control(letter) else letter for letter in text)
    return safe.encode(encoding, "backslashreplace").decode(encoding)


def one_line(text: str) -> str:
    r"""Return a text as one column of one line: a line end is `\n`, a tab `\t`, and a backslash two."""
    return escape_controls(text.replace("\\", "\\\\"))


def short_path(path: str | Path) -> str:
    """Return a path as a user would type it: relative, if it is below the current folder."""
    path, here = Path(path), Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)


def html_text(value: object) -> str:
    """Return a value as text that a browser shows as it is."""
    return escape(escape_controls(str(value)))


def _is_control(letter: str) -> bool:
    """Return whether a character is a control character, a line end or a change of writing direction."""
    return category(letter) in {"Cc", "Cs", "Zl", "Zp"} or bidirectional(letter) in DIRECTION_CONTROLS
