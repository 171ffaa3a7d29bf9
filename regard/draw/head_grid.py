"""All heads of a model as a grid of small heat maps: a row for each layer, a column for each head."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from regard.draw.cells import COLOUR_BAR, Array, check_weight_matrix, draw_cells, draw_colour_bar
from regard.draw.labels import LINE_HEIGHT, text_width, visible
from regard.draw.style import (
    HEAD,
    LEAST,
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

CAPTION = "rows attend to columns"
LARGEST, SMALLEST, PAGE = 1.05, 0.36, 6.4
GAP = 0.09
MOST = 100  # cells per side that can still be seen


def heads(
    layers: Iterable[Array], *, title: str = "", masks: Sequence[Array | None] | None = None, look: Look | None = None
) -> Figure:
    """Draw all heads of all layers (each H x T x S), labelled L1.H1, L1.H2, ...

    There is one mask (T x S) for each layer: True where a query may attend, or None where it may attend anywhere.
    """
    look = look or current_look()
    layers = list(layers)
    masks = [None] * len(layers) if masks is None else masks
    _check(layers, masks)
    count = max(map(len, layers))
    wide = min(LARGEST, max(SMALLEST, PAGE / count - GAP))
    tall = wide * _shape(layers)
    with regard_style(look):
        size = _size(f"L{len(layers)}.H{count}", wide)
        name = size * LINE_HEIGHT / 72
        top = MARGIN + (HEAD if title else 0) + NOTE
        right = MARGIN + count * (wide + GAP)
        down = len(layers) * (name + tall + GAP) - GAP
        across = max(
            right + COLOUR_BAR, 2 * MARGIN + max(text_width(visible(title), TITLE), text_width(CAPTION, SMALL))
        )
        figure = new_figure(across, top + down + MARGIN)
        write_title(figure, visible(title))
        write_note(figure, CAPTION, MARGIN, top - 0.05, look)
        for layer, (weights, mask) in enumerate(zip(layers, masks, strict=True)):
            above = top + layer * (name + tall + GAP) + name
            for head, one in enumerate(weights):
                axes = add_axes(figure, MARGIN + head * (wide + GAP), above, wide, tall)
                image = draw_cells(axes, one, mask, look, MOST)
                remove_frame(axes, look)
                axes.set(xticks=[], yticks=[])
                axes.set_title(f"L{layer + 1}.H{head + 1}", size=size, pad=2, color=look.soft)
        draw_colour_bar(figure, image, right, top + name, down - name, "weight", look)
    return figure


def _check(layers: Sequence[Array], masks: Sequence[Array | None]) -> None:
    if not layers or any(layer.ndim != 3 or not layer.size for layer in layers):
        shapes = ", ".join(str(layer.shape) for layer in layers) or "none"
        raise RegardError(f"the layers have shapes {shapes}; give an array of heads x queries x keys for each")
    if len(masks) != len(layers):
        raise RegardError(f"there are {len(layers)} layers but {len(masks)} masks; give a mask or None for each layer")
    for layer, (weights, mask) in enumerate(zip(layers, masks, strict=True)):
        for head, one in enumerate(weights):
            check_weight_matrix(one, mask, f"the weights of L{layer + 1}.H{head + 1}")


def _shape(layers: Sequence[Array]) -> float:
    """Return the ratio of height to width of one heat map: that of the weights, between 1/2 and 2."""
    rows, columns = (max(layer.shape[axis] for layer in layers) for axis in (1, 2))
    return min(max(rows / columns, 0.5), 2.0)


def _size(name: str, wide: float) -> float:
    """Choose a font size in which the longest label fits above its heat map."""
    return max(LEAST - 1, min(SMALL, SMALL * wide / text_width(name, SMALL)))
