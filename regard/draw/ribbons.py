"""The alignment of a translation: its words below those of the source, and ribbons as wide as the weights between."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from regard.draw.attention import KEYS, QUERIES, check_words
from regard.draw.cells import Array, check
from regard.draw.labels import label, shown, width
from regard.draw.style import HEAD, LIGHT, MARGIN, NOTE, SMALL, TITLE, Look, headline, house, note, place, sheet
from regard.errors import RegardError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST = 64  # words a side that one can still follow
PAGE = 7.0  # a line of words that is longer becomes a column
WORD = 9.0
GAP = 0.14  # between words of a line
STEP = 0.2  # from word to word of a column
LONG, WIDE = 1.0, 1.5  # ribbons from line to line, from column to column
AIR, HEIGHT = 0.06, 0.09  # between words and ribbons; of a word
WIDEST = 9.0  # points of the ribbon of a weight of 1
FAINTEST = 0.02  # below that a ribbon would be thinner than a hair


def alignment(
    weights: Array, queries: Sequence[str], keys: Sequence[str], *, title: str = "", look: Look = LIGHT
) -> Figure:
    """Draw cross-attention (T x S): each word written (query) tied to those of the source (keys) that it looked at.

    The source stands above the translation, or, where it is too long for a line, at its right.
    """
    check(weights, None)
    check_words(weights, queries, keys)
    if max(weights.shape) > MOST:
        size = f"{len(keys)} and {len(queries)} words"
        raise RegardError(f"ribbons between {size} cannot be followed; draw at most {MOST} a side, or a heat map")
    with house(look):
        written, source = ([label(word) for word in words] for words in (queries, keys))
        long = max(_line(words)[1] for words in (written, source))
        draw = _lines if long <= PAGE else _columns
        return draw(weights, written, source, shown(title), look)


def _lines(weights: Array, written: Sequence[str], source: Sequence[str], title: str, look: Look) -> Figure:
    """Draw two lines of words, the source above."""
    across = max(_line(words)[1] for words in (written, source))
    left = MARGIN + max(width(QUERIES, SMALL), width(KEYS, SMALL)) + 0.2
    top = MARGIN + (HEAD if title else 0) + HEIGHT + AIR
    total = max(left + across, MARGIN + width(title, TITLE)) + MARGIN
    figure = sheet(total, top + LONG + AIR + HEIGHT + 1.5 * MARGIN)
    headline(figure, title)
    axes = _field(figure, left, top, across, LONG)
    ends = []
    for words, text, line, end in ((written, QUERIES, LONG + AIR + HEIGHT, LONG), (source, KEYS, -AIR, 0)):
        centres, length = _line(words)
        centres = centres + (across - length) / 2
        for word, centre in zip(words, centres, strict=True):
            axes.text(centre, line, word, size=WORD, horizontalalignment="center", verticalalignment="baseline")
        note(figure, text, MARGIN, top + line, look)
        ends.append(np.stack((centres, np.full(len(words), end)), -1))
    _tie(axes, weights, ends, np.array([0, 1]), look)
    return figure


def _line(words: Sequence[str]) -> tuple[Array, float]:
    """Set words one behind another: where the middle of each is, and how long the line is."""
    widths = np.array([width(word, WORD) for word in words])
    ends = np.cumsum(widths + GAP) - GAP
    return ends - widths / 2, float(ends[-1])


def _columns(weights: Array, written: Sequence[str], source: Sequence[str], title: str, look: Look) -> Figure:
    """Draw two columns of words, the source at the right."""
    down = STEP * max(weights.shape)
    left = MARGIN + max(width(word, WORD) for word in written) + AIR
    right = AIR + max(width(KEYS, SMALL), *(width(word, WORD) for word in source)) + MARGIN
    top = MARGIN + (HEAD if title else 0) + NOTE
    figure = sheet(max(left + WIDE + right, width(title, TITLE) + 2 * MARGIN), top + down + MARGIN)
    headline(figure, title)
    axes = _field(figure, left, top, WIDE, down)
    ends = []
    for words, end, side, air in ((written, 0, "right", -AIR), (source, WIDE, "left", AIR)):
        middles = (np.arange(len(words)) + 0.5) * STEP + (down - STEP * len(words)) / 2
        for word, middle in zip(words, middles, strict=True):
            axes.text(end + air, middle + HEIGHT / 2, word, size=WORD, horizontalalignment=side)
        ends.append(np.stack((np.full(len(words), end), middles), -1))
    note(figure, QUERIES, MARGIN, top - AIR, look)
    note(figure, KEYS, left + WIDE + AIR, top - AIR, look)
    _tie(axes, weights, ends, np.array([1, 0]), look)
    return figure


def _field(figure: Figure, left: float, top: float, across: float, down: float) -> Axes:
    """Make empty axes that count inches from their upper left corner."""
    axes = place(figure, left, top, across, down)
    axes.set(xlim=(0, across), ylim=(down, 0))
    axes.set_axis_off()
    return axes


def _tie(axes: Axes, weights: Array, ends: Sequence[Array], flow: Array, look: Look) -> None:
    """Draw a ribbon for each weight that can be seen, strong ones last; at both ends it runs the way the flow does."""
    from matplotlib.collections import PathCollection
    from matplotlib.colors import to_rgba
    from matplotlib.path import Path

    queries, keys = ends
    pairs = sorted(zip(*np.nonzero(weights >= FAINTEST), strict=True), key=lambda pair: float(weights[pair]))
    curve = [Path.MOVETO, Path.CURVE4, Path.CURVE4, Path.CURVE4]
    paths = []
    for query, key in pairs:
        begin, end = queries[query], keys[key]
        half = flow * (end - begin) / 2
        paths.append(Path([begin, begin + half, end - half, end], curve))
    strengths = [float(weights[pair]) for pair in pairs]
    ribbons = PathCollection(
        paths,
        facecolors="none",
        edgecolors=[to_rgba(look.blue, 0.1 + 0.75 * min(strength, 1)) for strength in strengths],
        linewidths=[WIDEST * strength for strength in strengths],
        capstyle="butt",
    )
    axes.add_collection(ribbons, autolim=False)
