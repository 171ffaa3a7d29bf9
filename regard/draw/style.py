"""The house style: colours, type and sizes of every picture, in one place."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from threading import RLock
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Look:
    """The colours of a picture or a page."""

    ground: str
    ink: str  # what is read
    soft: str  # what is read second: axes and captions
    faint: str  # hatching
    line: str  # between things
    card: str  # behind things
    blue: str
    orange: str


LIGHT = Look("#ffffff", "#1f242d", "#667080", "#b3bac5", "#e6e8ec", "#f6f7f9", "#3b82c4", "#d9622b")
DARK = Look("#1b1e24", "#e4e7ec", "#98a1b0", "#555c68", "#32363f", "#23272f", "#6cabe6", "#f08a55")

# Sizes of type in points, of all else in inches. A page of a paper is some seven inches wide.
TITLE, TEXT, SMALL, LEAST = 10.0, 8.0, 7.0, 5.5
MARGIN = 0.1
HEAD, NOTE = 0.26, 0.16  # for a title, for a small line
DPI = 200

WEIGHTS = "cividis"  # its lightness grows with the value, for every kind of eye and on a grey printer

# The first comes with matplotlib; the second has its widths, for an SVG on a machine without the first.
SANS = ["DejaVu Sans", "Verdana"]
# For what those lack, taken where installed. The last has a box for every character, so that none is missed aloud.
OTHERS = ["Noto Sans CJK SC", "Noto Sans CJK JP", "PingFang SC", "Hiragino Sans", "Microsoft YaHei", "Yu Gothic"]
OTHERS += ["Malgun Gothic", "WenQuanYi Zen Hei", "Noto Sans Devanagari", "Nirmala UI", "Noto Sans Thai"]
OTHERS += ["Noto Sans Symbols 2", "Noto Emoji", "Segoe UI Symbol", "Last Resort High-Efficiency"]

_ALONE = RLock()  # matplotlib's settings belong to the whole process


@contextmanager
def house(look: Look = LIGHT) -> Iterator[None]:
    """Use the style of the house inside, whatever a person's own settings are, and leave those as they were."""
    from matplotlib import style

    with _ALONE, style.context(["default", _settings(look)]):
        yield


def _settings(look: Look) -> dict[str, Any]:
    return {
        "figure.facecolor": look.ground,
        "figure.dpi": DPI,
        "axes.facecolor": look.ground,
        "axes.labelcolor": look.soft,
        "axes.labelsize": TEXT,
        "axes.titlecolor": look.ink,
        "axes.titlelocation": "left",
        "axes.titlesize": TITLE,
        "axes.axisbelow": True,
        "text.color": look.ink,
        "text.parse_math": False,  # "$x$" is a token
        "text.hinting": "none",
        "font.family": ["sans-serif", *_installed()],
        "font.sans-serif": SANS,
        "font.size": TEXT,
        "legend.fontsize": TEXT,
        "legend.frameon": False,
        "hatch.linewidth": 0.6,
        "svg.fonttype": "none",  # text stays text
        "svg.hashsalt": "regard",
        "pdf.fonttype": 42,  # what journals take
    }


@cache
def _installed() -> tuple[str, ...]:
    from matplotlib.font_manager import fontManager

    names = set(fontManager.get_font_names())
    return tuple(name for name in OTHERS if name in names)


def sheet(width: float, height: float) -> Figure:
    """Make an empty figure of so many inches."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height))
    FigureCanvasAgg(figure)
    return figure


def place(figure: Figure, left: float, top: float, width: float, height: float) -> Axes:
    """Make axes at so many inches from the upper left corner."""
    across, down = figure.get_size_inches()
    return figure.add_axes((left / across, 1 - (top + height) / down, width / across, height / down))


def headline(figure: Figure, title: str) -> None:
    """Write a title, harmless already, into the upper left corner."""
    across, down = figure.get_size_inches()
    figure.text(MARGIN / across, 1 - MARGIN / down, title, size=TITLE, verticalalignment="top")


def note(figure: Figure, text: str, left: float, line: float, look: Look, upright: bool = False) -> None:
    """Write a small line that begins at so many inches from the upper left corner; upright, it ends there."""
    across, down = figure.get_size_inches()
    figure.text(
        left / across,
        1 - line / down,
        text,
        size=SMALL,
        color=look.soft,
        rotation=90 if upright else 0,
        rotation_mode="anchor",
        horizontalalignment="right" if upright else "left",
        verticalalignment="baseline",
    )


def bare(axes: Axes, look: Look) -> None:
    """Take away the frame and the marks beside it; the numbers stay."""
    axes.spines[:].set_visible(False)
    axes.tick_params(which="both", colors=look.soft, labelsize=TEXT, length=0)


def signed(look: Look) -> Colormap:
    """Make the colours of values around zero: blue below, orange above, the ground between."""
    from matplotlib.colors import LinearSegmentedColormap, to_rgb

    colours = (look.ink, look.blue, look.ground, look.orange)
    ink, blue, ground, orange = (np.array(to_rgb(colour)) for colour in colours)
    strong = [0.65 * colour + 0.35 * ink for colour in (blue, orange)]
    return LinearSegmentedColormap.from_list("blue-orange", [strong[0], blue, ground, orange, strong[1]])
