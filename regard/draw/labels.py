"""Tokens as labels: control characters made visible, and only as many labels as fit without overlapping."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING
from unicodedata import category, east_asian_width

from regard.draw.style import LEAST, SMALL, TEXT

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LONGEST = 16  # characters of a label; wide ones (Chinese) count twice
SIGNS = {"\n": "↵", "\r": "␍", "\t": "⇥"}
BLANK = "␣"
INVISIBLE = {"Cc", "Cf", "Cs", "Zl", "Zp"}  # control and format characters, surrogates, line separators
JOINERS = {"\u200c", "\u200d"}  # needed by Persian, Hindi and emoji
LINE_HEIGHT = 1.25  # in font sizes
PADDING = 0.08  # inches between a label and its row or column


def visible(text: str) -> str:
    """Replace control characters, and spaces at the ends, by visible signs or escapes."""
    core = text.strip()
    start = text.find(core)
    end = start + len(core)
    letters = [_visible_letter(letter, edge=not start <= index < end) for index, letter in enumerate(text)]
    if core and category(core[0]).startswith("M"):
        letters.insert(start, "◌")  # a combining accent needs a base
    return "".join(letters)


def _visible_letter(letter: str, edge: bool) -> str:
    kind = category(letter)
    if letter in SIGNS:
        return SIGNS[letter]
    if kind == "Zs" and edge:
        return BLANK
    return repr(letter)[1:-1] if kind in INVISIBLE and letter not in JOINERS else letter


def short_label(token: str) -> str:
    """Return the visible text of a token, shortened if it is long."""
    text, left = visible(token), LONGEST
    for index, letter in enumerate(text):
        left -= 2 if east_asian_width(letter) in "WF" else 1
        if left < 0:
            return f"{text[: index - 1]}…"
    return text


def text_width(text: str, size: float) -> float:
    """Measure a line of text in inches, in the style of the pictures."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import text_to_path

    return float(text_to_path.get_text_width_height_descent(text, FontProperties(size=size), ismath=False)[0]) / 72


@dataclass(frozen=True)
class Labels:
    """Labels along an axis: at which positions, their font size, and the space that they need beside the axis."""

    positions: Sequence[int]
    texts: Sequence[str]
    size: float
    mark: float  # length of the tick marks; 0 where every token has a label
    upright: bool  # each label runs away from the axis; otherwise along it, within its cell
    space: float


def choose_labels(tokens: Sequence[str], cell: float, across: bool = False) -> Labels:
    """Label all tokens if their cells are large enough, otherwise every second, fifth, tenth, ..."""
    fitting = cell * 72 / LINE_HEIGHT  # points
    size = min(TEXT, fitting) if fitting >= LEAST else SMALL
    step = _step(size / fitting)
    positions = range(0, len(tokens), step)
    texts = [short_label(tokens[position]) for position in positions]
    widest = max(text_width(text, size) for text in texts)
    upright = not across or step > 1 or widest + PADDING / 2 > cell
    space = PADDING + (widest if upright else size * LINE_HEIGHT / 72)
    return Labels(positions, texts, size, 2.0 if step > 1 else 0.0, upright, space)


def _step(least: float) -> int:
    """Return the smallest of 1, 2, 5, 10, 20, ... that is at least `least`."""
    steps = (digit * 10**power for power in count() for digit in (1, 2, 5))
    return next(step for step in steps if step >= 0.999 * least)


def label_rows(axes: Axes, labels: Labels, colour: str) -> None:
    """Write the labels of rows, on the left."""
    axes.set_yticks(labels.positions, labels.texts, size=labels.size, color=colour)
    axes.tick_params("y", which="major", length=labels.mark)


def label_columns(axes: Axes, labels: Labels, colour: str) -> None:
    """Write the labels of columns, above."""
    axes.xaxis.tick_top()
    axes.tick_params("x", which="major", length=labels.mark)
    axes.set_xticks(labels.positions, labels.texts, size=labels.size, color=colour)
    if labels.upright:
        for text in axes.get_xticklabels():
            text.set(rotation=90, rotation_mode="anchor", horizontalalignment="left", verticalalignment="center")
