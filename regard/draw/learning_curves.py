"""Learning curves: the first panel large, the others small in columns below it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING

from regard.draw.labels import visible
from regard.draw.style import Look, current_look, new_figure, regard_style, remove_frame

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_POINTS = 1000
LARGE, SMALL, COLUMN = 2.6, 1.7, 3.5  # heights, and the width of a column


@dataclass(frozen=True)
class Curve:
    """Values over steps; NaN is a gap. Measured values (validation) have dots, and a ring around the best."""

    name: str
    points: Mapping[int, float]
    measured: bool = False
    best: int | None = None


@dataclass(frozen=True)
class Panel:
    """Curves in one plot."""

    title: str
    curves: Sequence[Curve]


def curves(panels: Sequence[Panel], *, columns: int = 2, look: Look | None = None) -> Figure:
    """Draw panels over the same steps."""
    look = look or current_look()
    small = panels[1:]
    heights = [LARGE, *[SMALL] * -(-len(small) // columns)]
    steps = [step for panel in panels for curve in panel.curves for step in curve.points]
    with regard_style(look):
        figure = new_figure(COLUMN * columns, sum(heights))
        figure.set_layout_engine("constrained", w_pad=0.08, h_pad=0.06)
        grid = figure.add_gridspec(len(heights), columns, height_ratios=heights, hspace=0.12, wspace=0.06)
        for number, panel in enumerate(panels):
            row, column = divmod(number - 1, columns)
            last = number == len(panels) - 1  # fills its row
            place = grid[1 + row, slice(column, None) if last else column] if number else grid[0, :]
            axes = figure.add_subplot(place)
            _prepare(axes, panel.title, steps, look)
            for curve in panel.curves:
                _plot(axes, curve, look.orange if curve.measured else look.blue)
            if number == 0:
                axes.set_xlabel("step")
                if axes.lines:
                    axes.legend()
    return figure


def _prepare(axes: Axes, title: str, steps: Sequence[int], look: Look) -> None:
    """Set up an empty plot over all steps."""
    from matplotlib.ticker import MaxNLocator

    remove_frame(axes, look)
    axes.set_title(visible(title))
    axes.grid(color=look.line, linewidth=0.8)
    axes.xaxis.set_major_locator(MaxNLocator("auto", integer=True, steps=[1, 2, 5, 10]))
    axes.yaxis.set_major_formatter("{x:g}")
    if steps:
        margin = max(max(steps) - min(steps), 1) / 50
        axes.set_xlim(min(steps) - margin, max(steps) + margin)


def _plot(axes: Axes, curve: Curve, colour: str) -> None:
    points = curve.points if curve.measured else average_neighbours(curve.points)
    if points:
        dots = "o" if curve.measured or len(points) == 1 else ""
        steps, values = list(points), list(points.values())
        axes.plot(steps, values, color=colour, linewidth=1.3, label=visible(curve.name), marker=dots, markersize=2.5)
    if curve.best is not None:
        value = curve.points[curve.best]
        axes.plot([curve.best], [value], "o", color=colour, markersize=8, markerfacecolor="none", clip_on=False)


def average_neighbours(points: Mapping[int, float]) -> dict[int, float]:
    """Average neighbours, so that a long run has at most `MOST_POINTS` points."""
    size = -(-len(points) // MOST_POINTS)
    steps = list(points)
    groups = [steps[start : start + size] for start in range(0, len(steps), size or 1)]
    return {group[-1]: fmean(points[step] for step in group) for group in groups}
