"""A matrix of weights as coloured cells, hatched where the mask hides a key."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from regard.draw.style import SMALL, WEIGHTS, Look, add_axes
from regard.errors import RegardError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage

Array = NDArray[Any]

TOLERANCE = 1e-2  # half precision may round a weight below 0 or above 1
COLOUR_BAR = 0.5  # inches for the colour bar, its numbers and its caption
LONGEST_BAR = 2.4
LEAST_LINED = 9.0  # points; smaller cells have no lines between them


def check_weight_matrix(weights: Array, mask: Array | None, what: str = "the weights") -> None:
    """Reject arrays that are not a matrix of attention weights."""
    if weights.ndim != 2 or not weights.size:
        raise RegardError(f"{what} have shape {weights.shape}; give a non-empty matrix of queries x keys")
    if mask is not None and (mask.shape != weights.shape or mask.dtype != bool):
        found = f"shape {mask.shape} and type {mask.dtype}"
        raise RegardError(f"{what} have shape {weights.shape}, but the mask has {found}; give True or False for each")
    seen = weights if mask is None else weights[mask]
    if seen.size and not (seen.min() >= -TOLERANCE and seen.max() <= 1 + TOLERANCE):
        extent = f"from {seen.min():.3g} to {seen.max():.3g}"
        raise RegardError(f"{what} range {extent}, but must be between 0 and 1; apply a softmax to scores first")


def draw_cells(axes: Axes, weights: Array, mask: Array | None, look: Look, most: int) -> AxesImage:
    """Draw the cells. With more than `most` rows or columns, neighbours share a cell with the largest weight."""
    rows, columns = weights.shape
    hidden = np.zeros(weights.shape, bool) if mask is None else ~mask
    values = _pooled(np.where(hidden, 0, weights), most)
    hidden = ~_pooled(~hidden, most)
    image = axes.imshow(
        np.ma.masked_array(values, hidden),
        cmap=WEIGHTS,
        vmin=0,
        vmax=1,
        aspect="auto",
        interpolation="nearest",
        extent=(-0.5, columns - 0.5, rows - 0.5, -0.5),
    )
    if hidden.any():
        _hatch(axes, hidden, columns / hidden.shape[1], rows / hidden.shape[0], look)
    return image


def _pooled(array: Array, most: int) -> Array:
    """Pool neighbours by their maximum, down to at most `most` rows and columns."""
    for axis in (0, 1):
        if array.shape[axis] > most:
            starts = np.arange(most) * array.shape[axis] // most
            array = np.maximum.reduceat(array, starts, axis=axis)
    return array


def _hatch(axes: Axes, hidden: Array, wide: float, tall: float, look: Look) -> None:
    """Hatch hidden cells with one patch, which has a rectangle for each run of hidden cells in a row."""
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    rectangles = []
    for row, cells in enumerate(hidden):
        edges = np.flatnonzero(np.diff(cells.astype(np.int8), prepend=0, append=0)).reshape(-1, 2)
        for begin, end in edges:
            left, right = begin * wide - 0.5, end * wide - 0.5
            top, bottom = row * tall - 0.5, (row + 1) * tall - 0.5
            corners = [(left, top), (right, top), (right, bottom), (left, bottom), (left, top)]
            rectangles.append(Path(corners, closed=True))
    patch = PathPatch(
        Path.make_compound_path(*rectangles), facecolor=look.card, edgecolor=look.faint, linewidth=0, hatch="/////"
    )
    axes.add_patch(patch)


def draw_lines(axes: Axes, rows: int, columns: int, tall: float, wide: float, look: Look) -> None:
    """Draw lines between cells of `tall` x `wide` inches, if these are large enough."""
    if min(tall, wide) * 72 >= LEAST_LINED:
        axes.set_xticks(np.arange(1, columns) - 0.5, minor=True)
        axes.set_yticks(np.arange(1, rows) - 0.5, minor=True)
        axes.grid(which="minor", color=look.ground, linewidth=0.7)


def outline_cells(axes: Axes, cells: Sequence[tuple[int, int]], look: Look) -> None:
    """Draw a border around cells, given by row and column."""
    from matplotlib.patches import Rectangle

    for row, column in cells:
        corner = (column - 0.5, row - 0.5)
        axes.add_patch(Rectangle(corner, 1, 1, fill=False, edgecolor=look.orange, linewidth=0.8, gid="outlined"))


def draw_colour_bar(
    figure: Figure, image: AxesImage, left: float, top: float, height: float, caption: str, look: Look
) -> None:
    """Draw the colour bar, with numbers at both ends and the middle; in inches from the upper left corner."""
    axes = add_axes(figure, left, top, 0.1, min(height, LONGEST_BAR))
    low, high = image.get_clim()
    bar = figure.colorbar(image, cax=axes, ticks=[low, (low + high) / 2, high], format="{x:.3g}")
    bar.outline.set_visible(False)
    axes.tick_params(colors=look.soft, labelsize=SMALL, length=0, pad=3)
    axes.set_ylabel(caption, size=SMALL, color=look.soft)
