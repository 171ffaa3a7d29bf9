"""Static pictures in one house style, light and dark: arrays and strings in, a matplotlib figure out.

    from regard import draw

    figure = draw.heatmap(weights, queries, keys, title="L4.H2 · cross-attention")
    draw.write(figure, Path("attention.svg"))

Matplotlib is imported when something is drawn. Nothing of its global state is touched: no pyplot, no display, and a
person's own settings neither change a picture nor are changed.
"""

from regard.draw.attention import heatmap
from regard.draw.file import encode, write
from regard.draw.grid import heads
from regard.draw.lines import Curve, Panel, curves
from regard.draw.places import positions
from regard.draw.ribbons import alignment
from regard.draw.style import DARK, LIGHT, Look

__all__ = [
    "DARK",
    "LIGHT",
    "Curve",
    "Look",
    "Panel",
    "alignment",
    "curves",
    "encode",
    "heads",
    "heatmap",
    "positions",
    "write",
]
