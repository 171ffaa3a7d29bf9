"""Where verbs print: as wide as the terminal; when piped, wide enough for a tree, and plain."""

import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console


def make_console() -> "Console":
    """Make the console of standard output."""
    from rich.console import Console

    return Console() if sys.stdout.isatty() or "COLUMNS" in os.environ else Console(width=120)
