"""The output of commands, as a terminal shows it: the commands are run, and their colours become an SVG."""

import os
import subprocess
import sys
from collections.abc import Mapping
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.color import blend_rgb
from rich.color_triplet import ColorTriplet
from rich.console import Console
from rich.style import Style
from rich.terminal_theme import TerminalTheme
from rich.text import Text

from pictures.svg import document, text
from regard.draw import Look
from regard.draw.style import SERIES

COLUMNS = 84
FONT = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace"
SIZE, ADVANCE, LINE, MARGIN = 14, 8.43, 19, 16  # pixels: letters, a column, a line, around the text
COMMANDS = {
    "show-gpt2.svg": ("regard show gpt2",),
    "translate.svg": (
        'regard translate "I saw a black cat on the old chair." --alignments a.txt',
        "cat a.txt",
    ),
}
ROOT = Path(__file__).parent.parent


def run_in_terminal(command: str, folder: Path, colours: bool = True) -> str:
    """Run a command line in a folder, as in a terminal of `COLUMNS`; return what it prints on standard output."""
    bin = folder / "bin"
    bin.mkdir(exist_ok=True)
    program = bin / "regard"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m regard "$@"\n', encoding="utf-8")
    program.chmod(0o755)
    terminal = {"COLUMNS": str(COLUMNS), "TERM": "xterm-256color"} | ({"FORCE_COLOR": "1"} if colours else {})
    paths = {"PATH": f"{bin}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        command,
        shell=True,
        check=True,
        cwd=folder,
        env=os.environ | terminal | paths,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        encoding="utf-8",
    )
    return done.stdout


def draw_terminal(look: Look) -> Mapping[str, bytes]:
    """Run the commands, and draw what they print."""
    made = {}
    for name, commands in COMMANDS.items():
        with TemporaryDirectory() as folder:
            outputs = [run_in_terminal(command, Path(folder)) for command in commands]
        made[name] = terminal_picture(dict(zip(commands, outputs, strict=True)), look)
    return made


def terminal_picture(outputs: Mapping[str, str], look: Look) -> bytes:
    """Return an SVG of commands, each after a prompt, and of their outputs."""
    console = Console(width=COLUMNS, force_terminal=True, color_system="standard", file=StringIO())
    shown = Text()
    for command, output in outputs.items():
        shown += Text.assemble(("$ ", "dim"), (f"{command}\n", "bold"), Text.from_ansi(output.rstrip("\n")), "\n")
    shown.rstrip()
    theme, parts = _theme(look), []
    lines = console.render_lines(shown, pad=False)
    for row, line in enumerate(lines):
        column = 0
        for words, style, _ in line:
            if words.strip():
                parts.append(_words(words, column, row, style or Style(), theme))
            column += len(words)
    width = round(2 * MARGIN + COLUMNS * ADVANCE)
    return document(width, 2 * MARGIN + LINE * len(lines), parts, look)


def _words(words: str, column: int, row: int, style: Style, theme: TerminalTheme) -> str:
    """Return words of one style, as wide as their columns in whatever font is there."""
    plain = style.color is None or style.color.is_default
    colour = theme.foreground_color if plain else style.color.get_truecolor(theme)
    if style.dim:
        colour = blend_rgb(colour, theme.background_color, 0.4)
    weight = {"font_weight": "bold"} if style.bold else {}
    return text(
        words,
        MARGIN + column * ADVANCE,
        MARGIN + row * LINE + SIZE,
        textLength=len(words) * ADVANCE,
        fill=colour.hex,
        font_family=FONT,
        font_size=SIZE,
        **weight,
    )


def _theme(look: Look) -> TerminalTheme:
    """Return the colours of a terminal: black, red, green, yellow, blue, magenta, cyan, white; then the bright ones."""
    green, purple, ochre, _, teal = SERIES[:5]
    eight = (look.ink, look.orange, green, ochre, look.blue, purple, teal, look.soft)
    ground, ink, *colours = [ColorTriplet(*bytes.fromhex(each[1:])) for each in (look.card, look.ink, *eight)]
    return TerminalTheme(ground, ink, colours, colours)
