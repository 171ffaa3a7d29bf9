"""Where verbs print: as wide as the terminal; when piped, wide enough for a tree, and plain."""

import os
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console


def make_console() -> "Console":
    """Make the console of standard output."""
    from rich.console import Console

    if sys.stdout.isatty():
        return Console()
    width = None if "COLUMNS" in os.environ else 120
    colours: Any = Console().color_system  # FORCE_COLOR brings them into a pipe, where still nothing may move
    return Console(width=width, force_terminal=False, color_system=colours)
