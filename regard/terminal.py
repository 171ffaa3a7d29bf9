"""Consoles, status lines and progress bars that show every text as it is.

rich reads `[bold]` as markup and `:smile:` as an emoji wherever it is given a string. Names of files and folders may
contain both, so no string that is printed here is markup; styles are arguments, or `Text`. Other modules do not import
consoles and progress bars from rich.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import Progress, ProgressColumn, TextColumn
from rich.text import Text

from regard.escape import escape_controls, html_text
from regard.kernel import give_back_display, take_display


def plain_console(**settings: Any) -> Console:
    """Return a console that prints strings as they are; `settings` are those of rich."""
    return Console(markup=False, emoji=False, **settings)


@contextmanager
def show_status(console: Console, text: str) -> Iterator[Callable[[str], None]]:
    """Show a status line on a terminal or in a notebook; yield the function that changes its text."""
    if console.is_jupyter and not console.quiet:
        display = take_display()
        display.show(html_text(text), text)
        yield lambda text: display.show(html_text(text), text)
        give_back_display(display)
        return
    if not console.is_terminal:
        yield lambda text: None
        return
    with console.status(Text(text)) as status:
        yield lambda text: status.update(Text(escape_controls(text, console.encoding)))


def text_column(text: str = "{task.description}") -> ProgressColumn:
    """Return a column of a progress bar: a text, with what is known of the task in braces."""
    return TextColumn(text, markup=False)


def progress_bars(*columns: ProgressColumn, console: Console | None = None, **settings: Any) -> Progress:
    """Return progress bars, on standard error if no console is given; `settings` are those of rich."""
    return Progress(*columns, console=console or plain_console(stderr=True), **settings)
