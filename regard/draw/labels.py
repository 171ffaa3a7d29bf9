"""Tokens as labels: any text shown harmlessly, as many labels as fit, none upon another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING
from unicodedata import category, east_asian_width

from regard.draw.style import LEAST, SMALL, TEXT

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LONGEST = 16  # letters of a label; Chinese ones count twice
SIGNS = {"\n": "↵", "\r": "␍", "\t": "⇥"}
BLANK = "␣"
ACTING = {"Cc", "Cf", "Cs", "Zl", "Zp"}  # escapes, turns of the writing direction, halves of letters, ends of lines
JOINERS = {"\u200c", "\u200d"}  # which Persian, Hindi and emoji need
LEADING = 1.25  # from line to line, in sizes of the type
AIR = 0.08  # inches between a label and what it belongs to


def shown(text: str) -> str:
    """Show what would act, or not be seen, as a sign or an escape to read."""
    core = text.strip()
    begin = text.find(core)
    end = begin + len(core)
    letters = [_letter(letter, edge=not begin <= place < end) for place, letter in enumerate(text)]
    if core and category(core[0]).startswith("M"):
        letters.insert(begin, "◌")  # an accent of its own needs something to sit on
    return "".join(letters)


def _letter(letter: str, edge: bool) -> str:
    kind = category(letter)
    if letter in SIGNS:
        return SIGNS[letter]
    if kind == "Zs" and edge:
        return BLANK
    return repr(letter)[1:-1] if kind in ACTING and letter not in JOINERS else letter


def label(token: str) -> str:
    """Show a token, cut where it is long."""
    text, room = shown(token), LONGEST
    for place, letter in enumerate(text):
        room -= 2 if east_asian_width(letter) in "WF" else 1
        if room < 0:
            return f"{text[: place - 1]}…"
    return text


def width(text: str, size: float) -> float:
    """Measure a line of text in inches, in the style of the house."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import text_to_path

    return float(text_to_path.get_text_width_height_descent(text, FontProperties(size=size), ismath=False)[0]) / 72


@dataclass(frozen=True)
class Labels:
    """Which tokens along an axis are named, how large, and how much room that takes away from the axis."""

    places: Sequence[int]
    texts: Sequence[str]
    size: float
    mark: float  # the length of a line from name to token, where not every token has a name
    upright: bool  # each runs away from the axis, as it does at the left; else along the axis, within its cell
    room: float


def fit(tokens: Sequence[str], cell: float, across: bool = False) -> Labels:
    """Name all tokens if their cells are large enough, else every second, fifth, tenth, ..."""
    fitting = cell * 72 / LEADING  # points
    size = min(TEXT, fitting) if fitting >= LEAST else SMALL
    step = _step(size / fitting)
    places = range(0, len(tokens), step)
    texts = [label(tokens[place]) for place in places]
    widest = max(width(text, size) for text in texts)
    upright = not across or step > 1 or widest + AIR / 2 > cell
    room = AIR + (widest if upright else size * LEADING / 72)
    return Labels(places, texts, size, 2.0 if step > 1 else 0.0, upright, room)


def _step(least: float) -> int:
    """Choose every how manieth token is named, where that must be at least so many."""
    steps = (digit * 10**power for power in count() for digit in (1, 2, 5))
    return next(step for step in steps if step >= 0.999 * least)


def write_rows(axes: Axes, labels: Labels, colour: str) -> None:
    """Write labels at the left."""
    axes.set_yticks(labels.places, labels.texts, size=labels.size, color=colour)
    axes.tick_params("y", which="major", length=labels.mark)


def write_columns(axes: Axes, labels: Labels, colour: str) -> None:
    """Write labels above."""
    axes.xaxis.tick_top()
    axes.tick_params("x", which="major", length=labels.mark)
    axes.set_xticks(labels.places, labels.texts, size=labels.size, color=colour)
    if labels.upright:
        for text in axes.get_xticklabels():
            text.set(rotation=90, rotation_mode="anchor", horizontalalignment="left", verticalalignment="center")
