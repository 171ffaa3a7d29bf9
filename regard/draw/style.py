"""The style of all pictures: colours, fonts and sizes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
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
    ink: str  # text
    soft: str  # secondary text: axes and captions
    faint: str  # hatching
    line: str  # separators
    card: str  # background of a box
    blue: str
    orange: str


LIGHT = Look("#ffffff", "#1f242d", "#667080", "#b3bac5", "#e6e8ec", "#f6f7f9", "#3b82c4", "#d9622b")
DARK = Look("#1b1e24", "#e4e7ec", "#98a1b0", "#555c68", "#32363f", "#23272f", "#6cabe6", "#f08a55")

# Colours of series, after blue and orange; light enough for a dark ground and dark enough for a light one, and
# told apart with the common kinds of colour blindness (after Okabe and Ito). Markers differ, too.
SERIES = ("#2a9d77", "#c0519c", "#a8860d", "#7a6bd1", "#5b9ea8", "#b0563f", "#7f8895")

# Font sizes in points, everything else in inches. The page of a paper is about seven inches wide.
TITLE, TEXT, SMALL, LEAST = 10.0, 8.0, 7.0, 5.5
MARGIN = 0.1
HEAD, NOTE = 0.26, 0.16  # height of a title, of a note
DPI = 200

WEIGHTS = "cividis"  # lightness grows with the value: readable with colour blindness and in print

# The first comes with matplotlib. The second has the same widths, for SVGs that are shown without the first.
SANS = ["DejaVu Sans", "Verdana"]
# Used, if installed, for characters that those lack. The last has a box for every character, to avoid warnings.
OTHERS = ["Noto Sans CJK SC", "Noto Sans CJK JP", "PingFang SC", "Hiragino Sans", "Microsoft YaHei", "Yu Gothic"]
OTHERS += ["Malgun Gothic", "WenQuanYi Zen Hei", "Noto Sans Devanagari", "Nirmala UI", "Noto Sans Thai"]
OTHERS += ["Noto Sans Symbols 2", "Noto Emoji", "Segoe UI Symbol", "Last Resort High-Efficiency"]

_LOOK: ContextVar[Look] = ContextVar("look", default=LIGHT)
_SETTINGS = RLock()  # matplotlib's settings are global to the process


@contextmanager
def use_look(look: Look) -> Iterator[None]:
    """Draw in this look inside the block, where a function is not given one."""
    token = _LOOK.set(look)
    try:
        yield
    finally:
        _LOOK.reset(token)


def current_look() -> Look:
    """Return the look of `use_look`; outside of it, the light one."""
    return _LOOK.get()


@contextmanager
def regard_style(look: Look | None = None) -> Iterator[None]:
    """Use this style inside the block, regardless of the user's own settings, and restore those afterwards."""
    from matplotlib import style

    with _SETTINGS, style.context(["default", _settings(look or current_look())]):
        yield


def series_colour(number: int, look: Look) -> str:
    """Return the colour of a series of points by its number; they repeat after nine."""
    colours = (look.blue, look.orange, *SERIES)
    return colours[number % len(colours)]


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
        "pdf.fonttype": 42,  # TrueType, as journals require
    }


@cache
def _installed() -> tuple[str, ...]:
    from matplotlib.font_manager import fontManager

    names = set(fontManager.get_font_names())
    return tuple(name for name in OTHERS if name in names)


def new_figure(width: float, height: float) -> Figure:
    """Return an empty figure; sizes in inches."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    figure = _figure_class()(figsize=(width, height))
    FigureCanvasAgg(figure)
    return figure


@cache
def _figure_class() -> type[Figure]:
    """Return a class of figures that a notebook shows by themselves, without `%matplotlib inline`."""
    from matplotlib.figure import Figure

    class ShownFigure(Figure):
        def _repr_png_(self) -> bytes:
            from regard.draw.file import encode_figure

            return encode_figure(self, "png")

    return ShownFigure


def add_axes(figure: Figure, left: float, top: float, width: float, height: float) -> Axes:
    """Add axes, placed in inches from the upper left corner."""
    across, down = figure.get_size_inches()
    return figure.add_axes((left / across, 1 - (top + height) / down, width / across, height / down))


def write_title(figure: Figure, title: str) -> None:
    """Write a title into the upper left corner; control characters must be replaced before."""
    across, down = figure.get_size_inches()
    figure.text(MARGIN / across, 1 - MARGIN / down, title, size=TITLE, verticalalignment="top")


def write_note(figure: Figure, text: str, left: float, line: float, look: Look, upright: bool = False) -> None:
    """Write a small line that starts (if upright, ends) at this place, in inches from the upper left corner."""
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


def remove_frame(axes: Axes, look: Look) -> None:
    """Remove the frame and the tick marks, but not the numbers."""
    axes.spines[:].set_visible(False)
    axes.tick_params(which="both", colors=look.soft, labelsize=TEXT, length=0)


def signed_colours(look: Look) -> Colormap:
    """Return a colour map around zero: blue for negative, orange for positive values, the background for zero."""
    from matplotlib.colors import LinearSegmentedColormap, to_rgb

    colours = (look.ink, look.blue, look.ground, look.orange)
    ink, blue, ground, orange = (np.array(to_rgb(colour)) for colour in colours)
    strong = [0.65 * colour + 0.35 * ink for colour in (blue, orange)]
    return LinearSegmentedColormap.from_list("blue-orange", [strong[0], blue, ground, orange, strong[1]])
