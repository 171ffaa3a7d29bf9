"""Positional encodings: the table of a model, and how alike its positions are."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from regard.draw.cells import KEY_ROOM, Array, key
from regard.draw.labels import shown, width
from regard.draw.style import HEAD, LIGHT, MARGIN, TITLE, Look, bare, headline, house, place, sheet, signed
from regard.errors import RegardError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SIDE = 2.3
ROOM = 0.5  # at the left and below, for numbers and their name
GAP = 0.05


def positions(
    table: Array,
    similarity: Array,
    *,
    title: str = "",
    rows: str = "position",
    columns: str = "feature",
    look: Look = LIGHT,
) -> Figure:
    """Draw a table of positions (P x D) and beside it how alike any two of them are (N x N), blue below zero."""
    _check(table, similarity)
    panels = ((table, shown(columns), shown(rows), "value"), (similarity, shown(rows), shown(rows), "similarity"))
    with house(look):
        top = MARGIN + (HEAD if title else 0)
        step = ROOM + SIDE + 0.08 + KEY_ROOM + 0.2 + GAP
        figure = sheet(max(MARGIN + 2 * step - GAP, 2 * MARGIN + width(shown(title), TITLE)), top + SIDE + ROOM)
        headline(figure, shown(title))
        for number, (values, across, down, name) in enumerate(panels):
            left = MARGIN + ROOM + number * step
            axes = place(figure, left, top, SIDE, SIDE)
            bare(axes, look)
            most = float(np.abs(values).max()) or 1.0
            image = axes.imshow(
                values, cmap=signed(look), vmin=-most, vmax=most, aspect="auto", interpolation="antialiased"
            )
            axes.set(xlabel=across, ylabel=down)
            key(figure, image, left + SIDE + 0.08, top, SIDE, name, look)
    return figure


def _check(table: Array, similarity: Array) -> None:
    for name, array in (("table", table), ("similarity", similarity)):
        if array.ndim != 2 or not array.size or not np.isfinite(array).all():
            raise RegardError(f"the {name} of positions has the shape {array.shape}; give a matrix of finite numbers")
    if similarity.shape[0] != similarity.shape[1]:
        raise RegardError(f"the similarity of positions has the shape {similarity.shape}; give a square")
