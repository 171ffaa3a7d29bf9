"""A scene from above: where agents came from, where they may go, and where they went."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from regard.draw.labels import visible
from regard.draw.style import SMALL, Look, current_look, new_figure, regard_style, remove_frame, series_colour

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from matplotlib.text import Annotation
    from matplotlib.transforms import Bbox

SIDE = 5.0  # of the picture, in inches
FAINTEST = 0.15
DISTANCES = (3, 9)  # of a name from its agent, in points
DIRECTIONS = ((1, 1), (-1, 1), (1, -1), (-1, -1), (0, 1), (0, -1), (1, 0), (-1, 0))  # to the right and up


def scene(
    seen: np.ndarray,
    paths: np.ndarray,
    probabilities: np.ndarray,
    names: Sequence[str],
    *,
    truth: np.ndarray | None = None,
    title: str = "",
    look: Look | None = None,
) -> Figure:
    """Draw agents in metres: `seen` (agents, steps, 2), `paths` (agents, futures, steps, 2), and the `truth` dashed.

    The more likely a future, the darker its line; NaN is a step at which an agent is absent.
    """
    look = look or current_look()
    with regard_style(look):
        figure = new_figure(SIDE, SIDE * _shape(seen, paths))
        figure.set_layout_engine("constrained")
        axes = figure.add_subplot()
        remove_frame(axes, look)
        axes.set_title(visible(title))
        axes.set_xlabel("x in metres")
        axes.set_ylabel("y in metres")
        axes.grid(color=look.line, linewidth=0.8)
        axes.set_aspect("equal", adjustable="datalim")
        labels = []
        for number, name in enumerate(names):
            colour = series_colour(number, look)
            last = seen[number, -1]
            strongest = max(float(probabilities[number].max()), 1e-9)
            for path, chance in zip(paths[number], probabilities[number], strict=True):
                line = np.concatenate((last[None], path))
                shade = FAINTEST + (1 - FAINTEST) * float(chance) / strongest
                axes.plot(*line.T, color=colour, linewidth=0.9, alpha=shade)
            axes.plot(*seen[number].T, color=colour, linewidth=1.6, marker="o", markersize=2.5)
            if truth is not None and not np.isnan(truth[number]).all():
                axes.plot(*np.concatenate((last[None], truth[number])).T, color=look.ink, linewidth=0.9, linestyle="--")
            label = axes.annotate(visible(name), last, (0, 0), textcoords="offset points", size=SMALL, color=look.ink)
            labels.append(label)
        figure.draw_without_rendering()  # decides where the points are in the picture
        _place(labels)
    return figure


def _place(labels: Sequence[Annotation]) -> None:
    """Move each label to the first position around its point at which it overlaps no label before it, if any."""
    taken: list[Bbox] = []
    for label in labels:
        free = (
            box
            for distance in DISTANCES
            for direction in DIRECTIONS
            if not (box := _move(label, distance, direction)).count_overlaps(taken)
        )
        taken.append(next(free, None) or _move(label, DISTANCES[0], DIRECTIONS[0]))


def _move(label: Annotation, distance: int, direction: tuple[int, int]) -> Bbox:
    """Move a label to one side of its point; return the space that it takes."""
    right, up = direction
    label.set_position((distance * right, distance * up))
    label.set_horizontalalignment(("center", "left", "right")[right])
    label.set_verticalalignment(("center", "bottom", "top")[up])
    return label.get_window_extent()


def _shape(*positions: np.ndarray) -> float:
    """Return the height of a picture over its width: that of all positions, but neither very flat nor very tall."""
    points = np.concatenate([each.reshape(-1, 2) for each in positions])
    width, height = np.nanmax(points, 0) - np.nanmin(points, 0) + 1.0
    return float(np.clip(height / width, 0.4, 1.4))
