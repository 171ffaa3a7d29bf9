"""All heads of a model as small heat maps side by side: a row for each layer, a column for each head."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from regard.draw.cells import KEY_ROOM, Array, check, key, paint
from regard.draw.labels import LEADING, shown, width
from regard.draw.style import (
    HEAD,
    LEAST,
    LIGHT,
    MARGIN,
    NOTE,
    SMALL,
    TITLE,
    Look,
    bare,
    headline,
    house,
    note,
    place,
    sheet,
)
from regard.errors import RegardError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CAPTION = "rows look … at columns"
LARGEST, SMALLEST, PAGE = 1.05, 0.36, 6.4
GAP = 0.09
MOST = 100  # cells a side that are still seen


def heads(
    layers: Iterable[Array], *, title: str = "", masks: Sequence[Array | None] | None = None, look: Look = LIGHT
) -> Figure:
    """Draw all heads of all layers (each H x T x S), named L1.H1 and so on.

    There is one mask (T x S) for each layer: True where a query may look, or None where it may look anywhere.
    """
    layers = list(layers)
    masks = [None] * len(layers) if masks is None else masks
    _check(layers, masks)
    count = max(map(len, layers))
    wide = min(LARGEST, max(SMALLEST, PAGE / count - GAP))
    tall = wide * _shape(layers)
    with house(look):
        size = _size(f"L{len(layers)}.H{count}", wide)
        name = size * LEADING / 72
        top = MARGIN + (HEAD if title else 0) + NOTE
        right = MARGIN + count * (wide + GAP)
        down = len(layers) * (name + tall + GAP) - GAP
        across = max(right + KEY_ROOM, 2 * MARGIN + max(width(shown(title), TITLE), width(CAPTION, SMALL)))
        figure = sheet(across, top + down + MARGIN)
        headline(figure, shown(title))
        note(figure, CAPTION, MARGIN, top - 0.05, look)
        for layer, (weights, mask) in enumerate(zip(layers, masks, strict=True)):
            above = top + layer * (name + tall + GAP) + name
            for head, one in enumerate(weights):
                axes = place(figure, MARGIN + head * (wide + GAP), above, wide, tall)
                image = paint(axes, one, mask, look, MOST)
                bare(axes, look)
                axes.set(xticks=[], yticks=[])
                axes.set_title(f"L{layer + 1}.H{head + 1}", size=size, pad=2, color=look.soft)
        key(figure, image, right, top + name, down - name, "weight", look)
    return figure


def _check(layers: Sequence[Array], masks: Sequence[Array | None]) -> None:
    if not layers or any(layer.ndim != 3 or not layer.size for layer in layers):
        shapes = ", ".join(str(layer.shape) for layer in layers) or "none"
        raise RegardError(f"the layers have the shapes {shapes}; give one array of heads x queries x keys for each")
    if len(masks) != len(layers):
        raise RegardError(f"there are {len(layers)} layers, but {len(masks)} masks; give one for each, or None")
    for layer, (weights, mask) in enumerate(zip(layers, masks, strict=True)):
        for head, one in enumerate(weights):
            check(one, mask, f"the weights of L{layer + 1}.H{head + 1}")


def _shape(layers: Sequence[Array]) -> float:
    """Give height to width of one picture: as the weights, but never a mere strip."""
    rows, columns = (max(layer.shape[axis] for layer in layers) for axis in (1, 2))
    return min(max(rows / columns, 0.5), 2.0)


def _size(name: str, wide: float) -> float:
    """Choose type in which the longest name is no wider than its picture."""
    return max(LEAST - 1, min(SMALL, SMALL * wide / width(name, SMALL)))
