"""The attention weights of one head as a heat map, labelled with its tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from regard.draw.cells import (
    COLOUR_BAR,
    Array,
    check_weight_matrix,
    draw_cells,
    draw_colour_bar,
    draw_lines,
    outline_cells,
)
from regard.draw.labels import LINE_HEIGHT, choose_labels, label_columns, label_rows, text_width, visible
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
    remove_frame,
    write_note,
    write_title,
)
from regard.errors import RegardError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

QUERIES, KEYS = "this word looks …", "… at these"

LARGEST_CELL, CELL, COLUMN, PAGE = 0.42, 0.2, 2.8, 6.0
MOST = 400  # cells per side that can still be seen


def heatmap(
    weights: Array,
    queries: Sequence[str],
    keys: Sequence[str],
    *,
    title: str = "",
    mask: Array | None = None,
    outlined: Sequence[tuple[int, int]] = (),
    outlines: str = "",
    beside: str = QUERIES,
    look: Look | None = None,
) -> Figure:
    """Draw the weights of one head (T x S): rows are queries, columns are keys, and each row sums to 1.

    The mask is True where a query may attend; other cells are hatched. The cells `outlined` (row, column) get a border,
    and `outlines` says below the picture what they are. The text `beside` the rows says what looks.
    """
    look = look or current_look()
    check_weight_matrix(weights, mask)
    check_tokens(weights, queries, keys)
    rows, columns = weights.shape
    tall, wide = _cell(rows, columns)
    with regard_style(look):
        left_labels, top_labels = choose_labels(queries, tall), choose_labels(keys, wide, across=True)
        left = MARGIN + NOTE + left_labels.space
        top = MARGIN + (HEAD if title else 0) + NOTE + top_labels.space
        across, down = columns * wide, rows * tall
        height = max(down, text_width(beside, SMALL))  # of the colour bar and of the text beside the rows
        width = max(across, text_width(KEYS, SMALL))
        total = max(left + width + 0.15 + COLOUR_BAR, 2 * MARGIN + text_width(visible(title), TITLE))
        note = outlines if outlined else ""
        figure = new_figure(total, top + height + MARGIN + (NOTE if note else 0))
        axes = add_axes(figure, left, top, across, down)
        remove_frame(axes, look)
        image = draw_cells(axes, weights, mask, look, MOST)
        draw_lines(axes, rows, columns, tall, wide, look)
        outline_cells(axes, outlined, look)
        label_rows(axes, left_labels, look.ink)
        label_columns(axes, top_labels, look.ink)
        draw_colour_bar(figure, image, left + width + 0.15, top, height, "weight", look)
        write_title(figure, visible(title))
        write_note(figure, KEYS, left, top - top_labels.space - 0.05, look)
        write_note(figure, beside, MARGIN + SMALL / 72, top, look, upright=True)
        if note:
            write_note(figure, note, left, top + height + NOTE, look)
    return figure


def check_tokens(weights: Array, queries: Sequence[str], keys: Sequence[str]) -> None:
    """Reject weights whose shape does not match the numbers of tokens."""
    if weights.shape != (len(queries), len(keys)):
        rows, columns = weights.shape
        raise RegardError(
            f"the weights have {rows} queries and {columns} keys, but there are {len(queries)} and {len(keys)} tokens; "
            "give one token for each"
        )


def _cell(rows: int, columns: int) -> tuple[float, float]:
    """Choose height and width of a cell: square, unless the labels of the shorter side would not fit."""
    most = max(rows, columns)
    side = min(LARGEST_CELL, max(CELL, COLUMN / most), PAGE / most)
    line = SMALL * LINE_HEIGHT / 72
    return max(side, min(line, PAGE / rows)), max(side, min(line, PAGE / columns))
