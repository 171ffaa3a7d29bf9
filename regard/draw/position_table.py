"""Positional encodings: the table of a model, and the similarity of its positions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from regard.draw.cells import COLOUR_BAR, Array, draw_colour_bar
from regard.draw.labels import text_width, visible
from regard.draw.style import (
    HEAD,
    MARGIN,
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

SIDE = 2.3
AXIS = 0.5  # inches on the left and below, for numbers and the name of the axis
GAP = 0.05


def positions(
    table: Array,
    similarity: Array,
    *,
    title: str = "",
    rows: str = "position",
    columns: str = "feature",
    look: Look | None = None,
) -> Figure:
    """Draw a position table (P x D), and beside it the similarity of any two positions (N x N); blue is negative."""
    look = look or current_look()
    _check(table, similarity)
    panels = (
        (table, visible(columns), visible(rows), "value"),
        (similarity, visible(rows), visible(rows), "similarity"),
    )
    title = visible(title)
    with regard_style(look):
        top = MARGIN + (HEAD if title else 0)
        step = AXIS + SIDE + 0.08 + COLOUR_BAR + 0.2 + GAP
        figure = new_figure(max(MARGIN + 2 * step - GAP, 2 * MARGIN + text_width(title, TITLE)), top + SIDE + AXIS)
        write_title(figure, title)
        for number, (values, across, down, name) in enumerate(panels):
            left = MARGIN + AXIS + number * step
            axes = add_axes(figure, left, top, SIDE, SIDE)
            remove_frame(axes, look)
            most = float(np.abs(values).max()) or 1.0
            image = axes.imshow(
                values, cmap=signed_colours(look), vmin=-most, vmax=most, aspect="auto", interpolation="antialiased"
            )
            axes.set(xlabel=across, ylabel=down)
            draw_colour_bar(figure, image, left + SIDE + 0.08, top, SIDE, name, look)
    return figure


def _check(table: Array, similarity: Array) -> None:
    for name, array in (("table", table), ("similarity", similarity)):
        if array.ndim != 2 or not array.size or not np.isfinite(array).all():
            raise RegardError(f"the {name} of positions has shape {array.shape}; give a matrix of finite numbers")
    if similarity.shape[0] != similarity.shape[1]:
        raise RegardError(f"the similarity of positions has shape {similarity.shape}; give a square matrix")
