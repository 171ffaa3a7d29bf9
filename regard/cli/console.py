"""Where verbs print: messages, lines, and a console.

The console is as wide as the terminal; in a pipe it is plain, and wide enough for a tree.
"""

import os
import shutil
import sys
from textwrap import fill
from typing import TYPE_CHECKING

from regard.escape import escape_controls

if TYPE_CHECKING:
    from rich.console import Console

LINE_END = "\n"


def complain(text: object) -> None:
    """Print a message to standard error."""
    print(f"regard: {escape_controls(str(text), keep=LINE_END)}", file=sys.stderr, flush=True)


def print_line(text: object) -> None:
    """Print a line that may contain names of files to standard output."""
    print(escape_controls(str(text), sys.stdout.encoding or "utf-8", keep=LINE_END))


def print_paragraph(text: str) -> None:
    """Print a long text to standard output: in a terminal broken between words, otherwise as one line."""
    if sys.stdout.isatty():
        text = fill(text, shutil.get_terminal_size().columns, break_long_words=False, break_on_hyphens=False)
    print_line(text)


def make_console() -> "Console":
    """Return a console for standard output, which prints strings as they are, without markup."""
    from regard.terminal import plain_console

    if sys.stdout.isatty():
        return plain_console()
    width = None if "COLUMNS" in os.environ else 120
    colours = plain_console().color_system  # FORCE_COLOR allows colours in a pipe, but no animation
    return plain_console(width=width, force_terminal=False, color_system=colours)
