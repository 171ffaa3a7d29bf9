"""The alignment of a translation: its words below the source's, joined by ribbons whose width is the weight."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from regard.draw.cells import Array, check_weight_matrix
from regard.draw.heatmap import KEYS, QUERIES, check_tokens
from regard.draw.labels import short_label, text_width, visible
from regard.draw.style import (
    HEAD,
    MARGIN,
    NOTE,
    SMALL,
    TITLE,
    Look,
    add_axes,
    current_look,
    new_figure,
    regard_style,
    write_note,
    write_title,
)
from regard.errors import RegardError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST = 64  # words per side; ribbons between more cannot be followed
PAGE = 7.0  # inches; words that need a longer line are drawn in columns
WORD = 9.0
GAP = 0.14  # between words of a line
STEP = 0.2  # from word to word of a column
LONG, WIDE = 1.0, 1.5  # ribbons from line to line, from column to column
PADDING, HEIGHT = 0.06, 0.09  # between words and ribbons; of a word
WIDEST = 9.0  # points; the width of the ribbon of weight 1
FAINTEST = 0.02  # ribbons of smaller weights would be too thin to see


def alignment(
    weights: Array, queries: Sequence[str], keys: Sequence[str], *, title: str = "", look: Look | None = None
) -> Figure:
    """Draw cross-attention (T x S): ribbons from each word of the translation (query) to the source words (keys).

    The source is above the translation, or to its right if the words do not fit into a line.
    """
    look = look or current_look()
    check_weight_matrix(weights, None)
    check_tokens(weights, queries, keys)
    if max(weights.shape) > MOST:
        size = f"{len(keys)} and {len(queries)} words"
        raise RegardError(
            f"ribbons between {size} cannot be followed; draw at most {MOST} words per side, or a heat map"
        )
    with regard_style(look):
        written, source = ([short_label(word) for word in words] for words in (queries, keys))
        long = max(_line(words)[1] for words in (written, source))
        draw = _lines if long <= PAGE else _columns
        return draw(weights, written, source, visible(title), look)


def _lines(weights: Array, written: Sequence[str], source: Sequence[str], title: str, look: Look) -> Figure:
    """Draw two lines of words, the source above."""
    across = max(_line(words)[1] for words in (written, source))
    left = MARGIN + max(text_width(QUERIES, SMALL), text_width(KEYS, SMALL)) + 0.2
    top = MARGIN + (HEAD if title else 0) + HEIGHT + PADDING
    total = max(left + across, MARGIN + text_width(title, TITLE)) + MARGIN
    figure = new_figure(total, top + LONG + PADDING + HEIGHT + 1.5 * MARGIN)
    write_title(figure, title)
    axes = _field(figure, left, top, across, LONG)
    ends = []
    for words, text, line, end in ((written, QUERIES, LONG + PADDING + HEIGHT, LONG), (source, KEYS, -PADDING, 0)):
        centres, length = _line(words)
        centres = centres + (across - length) / 2
        for word, centre in zip(words, centres, strict=True):
            axes.text(centre, line, word, size=WORD, horizontalalignment="center", verticalalignment="baseline")
        write_note(figure, text, MARGIN, top + line, look)
        ends.append(np.stack((centres, np.full(len(words), end)), -1))
    _draw_ribbons(axes, weights, ends, np.array([0, 1]), look)
    return figure


def _line(words: Sequence[str]) -> tuple[Array, float]:
    """Arrange words in a line: return the centre of each, and the length of the line."""
    widths = np.array([text_width(word, WORD) for word in words])
    ends = np.cumsum(widths + GAP) - GAP
    return ends - widths / 2, float(ends[-1])


def _columns(weights: Array, written: Sequence[str], source: Sequence[str], title: str, look: Look) -> Figure:
    """Draw two columns of words, the source on the right."""
    down = STEP * max(weights.shape)
    left = MARGIN + max(text_width(word, WORD) for word in written) + PADDING
    right = PADDING + max(text_width(KEYS, SMALL), *(text_width(word, WORD) for word in source)) + MARGIN
    top = MARGIN + (HEAD if title else 0) + NOTE
    figure = new_figure(max(left + WIDE + right, text_width(title, TITLE) + 2 * MARGIN), top + down + MARGIN)
    write_title(figure, title)
    axes = _field(figure, left, top, WIDE, down)
    ends = []
    for words, end, side, padding in ((written, 0, "right", -PADDING), (source, WIDE, "left", PADDING)):
        middles = (np.arange(len(words)) + 0.5) * STEP + (down - STEP * len(words)) / 2
        for word, middle in zip(words, middles, strict=True):
            axes.text(end + padding, middle + HEIGHT / 2, word, size=WORD, horizontalalignment=side)
        ends.append(np.stack((np.full(len(words), end), middles), -1))
    write_note(figure, QUERIES, MARGIN, top - PADDING, look)
    write_note(figure, KEYS, left + WIDE + PADDING, top - PADDING, look)
    _draw_ribbons(axes, weights, ends, np.array([1, 0]), look)
    return figure


def _field(figure: Figure, left: float, top: float, across: float, down: float) -> Axes:
    """Add empty axes whose coordinates are inches from their upper left corner."""
    axes = add_axes(figure, left, top, across, down)
    axes.set(xlim=(0, across), ylim=(down, 0))
    axes.set_axis_off()
    return axes


def _draw_ribbons(axes: Axes, weights: Array, ends: Sequence[Array], flow: Array, look: Look) -> None:
    """Draw a ribbon for each visible weight, strong ones last; `flow` is its direction at both ends."""
    from matplotlib.collections import PathCollection
    from matplotlib.colors import to_rgba
    from matplotlib.path import Path

    queries, keys = ends
    pairs = sorted(zip(*np.nonzero(weights >= FAINTEST), strict=True), key=lambda pair: float(weights[pair]))
    curve = [Path.MOVETO, Path.CURVE4, Path.CURVE4, Path.CURVE4]
    paths = []
    for query, key in pairs:
        start, end = queries[query], keys[key]
        half = flow * (end - start) / 2
        paths.append(Path([start, start + half, end - half, end], curve))
    strengths = [float(weights[pair]) for pair in pairs]
    ribbons = PathCollection(
        paths,
        facecolors="none",
        edgecolors=[to_rgba(look.blue, 0.1 + 0.75 * min(strength, 1)) for strength in strengths],
        linewidths=[WIDEST * strength for strength in strengths],
        capstyle="butt",
    )
    axes.add_collection(ribbons, autolim=False)
