"""One number for each head of a model, as coloured cells: a row for each attention, a column for each head."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from regard.draw.cells import COLOUR_BAR, Array, draw_colour_bar
from regard.draw.labels import text_width, visible
from regard.draw.style import (
    HEAD,
    MARGIN,
    SMALL,
    TEXT,
    TITLE,
    Look,
    add_axes,
    current_look,
    new_figure,
    regard_style,
    remove_frame,
    signed_colours,
    write_title,
)
from regard.errors import RegardError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WIDE, TALL = 0.56, 0.3
LABELS = 0.3  # inches above the cells, for the names of heads


def head_scores(
    scores: Array, rows: Sequence[str], *, title: str = "", caption: str = "score", look: Look | None = None
) -> Figure:
    """Draw scores (attentions x heads) around zero, with their numbers; NaN where there is no such head."""
    look = look or current_look()
    _check(scores, rows)
    count, columns = scores.shape
    with regard_style(look):
        names = [visible(row) for row in rows]
        left = MARGIN + max(text_width(name, TEXT) for name in names) + 0.1
        top = MARGIN + (HEAD if title else 0) + LABELS
        across, down = columns * WIDE, count * TALL
        bar = max(down, 3 * TALL)
        width = max(left + across + 0.15 + COLOUR_BAR + 0.2, 2 * MARGIN + text_width(visible(title), TITLE))
        figure = new_figure(width, top + bar + MARGIN)
        axes = add_axes(figure, left, top, across, down)
        remove_frame(axes, look)
        most = float(np.nanmax(np.abs(scores))) or 1.0
        image = axes.imshow(scores, cmap=signed_colours(look), vmin=-most, vmax=most, aspect="auto")
        axes.set_yticks(range(count), names)
        axes.set_xticks(range(columns), [f"H{head + 1}" for head in range(columns)])
        axes.xaxis.tick_top()
        for row, head in np.argwhere(np.isfinite(scores)):
            number = f"{scores[row, head]:.2g}"
            axes.text(head, row, number, ha="center", va="center", size=SMALL, color=look.ink)
        draw_colour_bar(figure, image, left + across + 0.15, top, bar, caption, look)
        write_title(figure, visible(title))
    return figure


def _check(scores: Array, rows: Sequence[str]) -> None:
    if scores.ndim != 2 or not np.isfinite(scores).any() or np.isinf(scores).any():
        raise RegardError(f"the scores have shape {scores.shape}; give a matrix with finite numbers")
    if len(scores) != len(rows):
        raise RegardError(f"there are {len(scores)} rows of scores but {len(rows)} names; give one name for each row")
