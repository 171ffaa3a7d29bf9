"""Line charts of measurements that were repeated with several seeds: the median as a line, their range as a band."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any

from regard.draw.labels import visible
from regard.draw.style import LIGHT, Look, new_figure, regard_style, remove_frame

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CHART = (3.3, 2.6)  # width and height of one chart
LEGEND = 1.4  # width beside it
# Distinct with colour blindness and in grey, together with the markers.
COLOURS = ("#3b82c4", "#d9622b", "#2c9c69", "#8e5bb5", "#b8901c", "#3fb0c9", "#cf5c94", "#7a6a58", "#667080")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">")


@dataclass(frozen=True)
class Line:
    """Values over x: for every x one value of each seed. A reference (chance, a theory) is dashed, without dots."""

    name: str
    points: Mapping[Any, Sequence[int | float]]
    reference: bool = False


@dataclass(frozen=True)
class Chart:
    """Lines in one plot. `x_ticks` are the only numbers on the x axis, where they are given."""

    title: str
    x: str
    y: str
    lines: Sequence[Line]
    log_x: bool = False
    log_y: bool = False
    x_ticks: Sequence[int | float] = ()
    y_range: tuple[int | float, int | float] | None = None


def line_charts(charts: Sequence[Chart], *, columns: int = 2, look: Look = LIGHT) -> Figure:
    """Draw charts side by side. A name has one colour in all of them; charts of the same names share a legend."""
    lines = [line for chart in charts for line in chart.lines]
    names = [list(dict.fromkeys(line.name for line in lines if line.reference == kind)) for kind in (False, True)]
    shared = len({tuple(line.name for line in chart.lines) for chart in charts}) == 1
    columns = min(columns, len(charts))
    rows = -(-len(charts) // columns)
    width, height = CHART
    with regard_style(look):
        figure = new_figure(columns * width + (LEGEND if shared else columns * LEGEND), rows * height)
        figure.set_layout_engine("constrained", w_pad=0.08, h_pad=0.06)
        grid = figure.add_gridspec(rows, columns)
        for number, chart in enumerate(charts):
            row, column = divmod(number, columns)
            axes = figure.add_subplot(grid[row, column])
            _prepare_chart(axes, chart, look)
            for line in chart.lines:
                _draw_line(axes, line, names[line.reference].index(line.name), look)
            if chart.y_range is not None:
                axes.set_ylim(*chart.y_range)
            if not shared or (row == 0 and column == columns - 1):
                axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.02), borderaxespad=0.3, handlelength=1.6)
    return figure


def _prepare_chart(axes: Axes, chart: Chart, look: Look) -> None:
    remove_frame(axes, look)
    axes.set_title(visible(chart.title))
    axes.set_xlabel(visible(chart.x))
    axes.set_ylabel(visible(chart.y))
    axes.grid(color=look.line, linewidth=0.8)
    if chart.log_x:
        axes.set_xscale("log")
    if chart.log_y:
        axes.set_yscale("log")
    if chart.x_ticks:
        axes.set_xticks(list(chart.x_ticks), labels=[f"{tick:g}" for tick in chart.x_ticks])
        axes.set_xticks([], minor=True)


def _draw_line(axes: Axes, line: Line, number: int, look: Look) -> None:
    points = {x: sorted(values) for x, values in sorted(line.points.items()) if len(values)}
    if line.reference:
        axes.plot(
            list(points), [median(values) for values in points.values()],
            color=look.soft, linewidth=1.0, linestyle=("--", ":", "-.")[number % 3], label=visible(line.name),
        )  # fmt: skip
        return
    colour, marker = COLOURS[number % len(COLOURS)], MARKERS[number % len(MARKERS)]
    lowest, highest = [values[0] for values in points.values()], [values[-1] for values in points.values()]
    axes.fill_between(list(points), lowest, highest, color=colour, alpha=0.18, linewidth=0)
    axes.plot(
        list(points), [median(values) for values in points.values()],
        color=colour, linewidth=1.3, marker=marker, markersize=3, markevery=max(1, len(points) // 10),
        label=visible(line.name),
    )  # fmt: skip
