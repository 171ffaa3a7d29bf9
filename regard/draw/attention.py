"""The attention weights of one head as a heat map, with its words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from regard.draw.cells import KEY_ROOM, Array, check, key, paint, rule
from regard.draw.labels import LEADING, fit, shown, width, write_columns, write_rows
from regard.draw.style import HEAD, LIGHT, MARGIN, NOTE, SMALL, TITLE, Look, bare, headline, house, note, place, sheet
from regard.errors import RegardError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

QUERIES, KEYS = "this word looks …", "… at these"

LARGEST_CELL, CELL, COLUMN, PAGE = 0.42, 0.2, 2.8, 6.0
MOST = 400  # cells a side that are still seen


def heatmap(
    weights: Array,
    queries: Sequence[str],
    keys: Sequence[str],
    *,
    title: str = "",
    mask: Array | None = None,
    look: Look = LIGHT,
) -> Figure:
    """Draw the weights of one head (T x S): rows are queries, columns are keys, and each row sums to 1.

    The mask is True where a query may look; what it may not look at is hatched.
    """
    check(weights, mask)
    check_words(weights, queries, keys)
    rows, columns = weights.shape
    tall, wide = _cell(rows, columns)
    with house(look):
        left_labels, top_labels = fit(queries, tall), fit(keys, wide, across=True)
        left = MARGIN + NOTE + left_labels.room
        top = MARGIN + (HEAD if title else 0) + NOTE + top_labels.room
        across, down = columns * wide, rows * tall
        height = max(down, width(QUERIES, SMALL))  # of the colour bar, and for the words beside the rows
        room = max(across, width(KEYS, SMALL))
        total = max(left + room + 0.15 + KEY_ROOM, 2 * MARGIN + width(shown(title), TITLE))
        figure = sheet(total, top + height + MARGIN)
        axes = place(figure, left, top, across, down)
        bare(axes, look)
        image = paint(axes, weights, mask, look, MOST)
        rule(axes, rows, columns, tall, wide, look)
        write_rows(axes, left_labels, look.ink)
        write_columns(axes, top_labels, look.ink)
        key(figure, image, left + room + 0.15, top, height, "weight", look)
        headline(figure, shown(title))
        note(figure, KEYS, left, top - top_labels.room - 0.05, look)
        note(figure, QUERIES, MARGIN + SMALL / 72, top, look, upright=True)
    return figure


def check_words(weights: Array, queries: Sequence[str], keys: Sequence[str]) -> None:
    """Refuse weights that have more or fewer rows and columns than there are words."""
    if weights.shape != (len(queries), len(keys)):
        rows, columns = weights.shape
        raise RegardError(
            f"the weights are of {rows} queries and {columns} keys, but there are words for {len(queries)} and "
            f"{len(keys)}; give one for each"
        )


def _cell(rows: int, columns: int) -> tuple[float, float]:
    """Choose height and width of a cell: square, unless that leaves the words of the shorter side no room."""
    most = max(rows, columns)
    side = min(LARGEST_CELL, max(CELL, COLUMN / most), PAGE / most)
    line = SMALL * LEADING / 72
    return max(side, min(line, PAGE / rows)), max(side, min(line, PAGE / columns))
