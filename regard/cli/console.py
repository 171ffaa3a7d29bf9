"""The console that verbs print to: as wide as the terminal; in a pipe, plain and wide enough for a tree."""

import os
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console


def make_console() -> "Console":
    """Return a console for standard output."""
    from rich.console import Console

    if sys.stdout.isatty():
        return Console()
    width = None if "COLUMNS" in os.environ else 120
    colours: Any = Console().color_system  # FORCE_COLOR allows colours in a pipe, but no animation
    return Console(width=width, force_terminal=False, color_system=colours)
