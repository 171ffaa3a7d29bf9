"""Static pictures in one style, light and dark: arrays and strings in, a matplotlib figure out.

    from regard import draw

    figure = draw.heatmap(weights, queries, keys, title="L4.H2 · cross-attention")
    draw.write_figure(figure, Path("attention.svg"))

Matplotlib is imported when something is drawn. Its global state is not changed: no pyplot, no display, and the user's
own settings do not affect a picture and stay as they are.
"""

from regard.draw.alignment import alignment
from regard.draw.file import encode_figure, write_figure
from regard.draw.head_grid import heads
from regard.draw.head_scores import head_scores
from regard.draw.heatmap import heatmap
from regard.draw.learning_curves import Curve, Panel, curves
from regard.draw.measurements import bars, lines
from regard.draw.position_table import positions
from regard.draw.scene import scene
from regard.draw.style import DARK, LIGHT, Look, current_look, use_look

__all__ = [
    "DARK",
    "LIGHT",
    "Curve",
    "Look",
    "Panel",
    "alignment",
    "bars",
    "current_look",
    "curves",
    "encode_figure",
    "head_scores",
    "heads",
    "heatmap",
    "lines",
    "positions",
    "scene",
    "use_look",
    "write_figure",
]
