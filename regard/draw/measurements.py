"""Measurements as plots: lines over a number, or bars over names, from rows of texts and numbers.

A line or bar is the mean of the rows that agree in all that is drawn, which are those of several seeds (the geometric
mean of lines on a logarithmic axis); a band or a whisker spans the smallest and the largest value.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import isfinite
from statistics import fmean, geometric_mean
from typing import TYPE_CHECKING, Any

from regard.draw.labels import visible
from regard.draw.style import Look, current_look, new_figure, regard_style, remove_frame, series_colour

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH, HEIGHT = 5.6, 3.2
MARKERS = "os^Dv*Pxh"
LEGEND_WIDTH = 80  # characters of a line of the legend

Rows = Sequence[Mapping[str, Any]]


def lines(
    rows: Rows,
    *,
    x: str,
    y: str | Sequence[str],
    by: str | None = None,
    log: str = "",
    title: str = "",
    label: str | None = None,
    styles: Mapping[str, str] | None = None,
    look: Look | None = None,
) -> Figure:
    """Draw column `y` over column `x`, a line for each value of column `by`; `log` is "", "x", "y" or "xy".

    Several columns `y` are a line each, without `by`; `label` is the text at their axis then. `styles` are styles of
    matplotlib, such as "--", for some of the lines. Values that a logarithmic axis cannot show are gaps.
    """
    look = look or current_look()
    if not isinstance(y, str):
        rows = [{x: row[x], "value": row[name], "column": name} for name in y for row in rows]
        y, by = "value", "column"
    with regard_style(look):
        figure, axes = _empty_plot(title, x, y if label is None else label, log, look)
        names = _distinct(rows, by)
        for number, name in enumerate(names):
            some = rows if by is None else [row for row in rows if row[by] == name]
            points = _collect(some, x, y, positive="y" in log)
            if not points:
                continue
            places = sorted(points)
            colour = series_colour(number, look)
            style = (styles or {}).get(str(name), "-")
            mark = MARKERS[number % len(MARKERS)] if len(places) <= 40 else ""
            mean = geometric_mean if "y" in log else fmean
            means = [mean(points[place]) for place in places]
            text = None if by is None else visible(str(name))
            axes.plot(places, means, style, color=colour, linewidth=1.4, marker=mark, markersize=3.5, label=text)
            low, high = ([each(points[place]) for place in places] for each in (min, max))
            axes.fill_between(places, low, high, color=colour, alpha=0.18, linewidth=0)
        if "x" in log:
            _mark_powers(axes, rows, x)
        elif all(float(row[x]).is_integer() for row in rows):
            _mark_whole_numbers(axes)
        if by is not None:
            _add_legend(figure, axes)
    return figure


def bars(
    rows: Rows,
    *,
    x: str,
    y: str,
    by: str | None = None,
    log: str = "",
    title: str = "",
    look: Look | None = None,
) -> Figure:
    """Draw column `y` as bars over the texts of column `x`, side by side for each value of column `by`."""
    look = look or current_look()
    with regard_style(look):
        figure, axes = _empty_plot(title, "", y, log, look)
        places, names = _distinct(rows, x), _distinct(rows, by)
        width = 0.8 / max(len(names), 1)
        for number, name in enumerate(names):
            some = rows if by is None else [row for row in rows if row[by] == name]
            label = None if by is None else visible(str(name))  # of the first bar only
            for place, text in enumerate(places):
                values = [float(row[y]) for row in some if row[x] == text and isfinite(row[y])]
                if not values:
                    continue
                middle = place + (number - (len(names) - 1) / 2) * width
                axes.bar(middle, fmean(values), width * 0.92, color=series_colour(number, look), label=label)
                label = None
                if min(values) < max(values):
                    axes.plot([middle, middle], [min(values), max(values)], color=look.ink, linewidth=1.1)
        labels = [visible(str(text)) for text in places]
        crowded = sum(map(len, labels)) > 65
        axes.set_xticks(range(len(places)), labels, rotation=35 if crowded else 0, ha="right" if crowded else "center")
        axes.grid(visible=False, axis="x")
        if not log:
            axes.axhline(0, color=look.soft, linewidth=0.8)
        if by is not None:
            _add_legend(figure, axes)
    return figure


def _empty_plot(title: str, x: str, y: str, log: str, look: Look) -> tuple[Figure, Axes]:
    figure = new_figure(WIDTH, HEIGHT)
    figure.set_layout_engine("constrained", w_pad=0.08, h_pad=0.08)
    axes = figure.add_subplot()
    remove_frame(axes, look)
    axes.set_title(visible(title))
    axes.set_xlabel(visible(x))
    axes.set_ylabel(visible(y))
    axes.grid(color=look.line, linewidth=0.8)
    if "x" in log:
        axes.set_xscale("log", base=2)
    if "y" in log:
        _make_logarithmic(axes)
    return figure, axes


def _add_legend(figure: Figure, axes: Axes) -> None:
    """Write the names of lines or bars below the plot, so that it stays wide on a phone; the figure grows with them."""
    handles, names = axes.get_legend_handles_labels()
    if not names:
        return
    columns = max(min(LEGEND_WIDTH // (max(map(len, names)) + 6), len(names)), 1)
    lines = -(-len(names) // columns)
    figure.set_figheight(HEIGHT + 0.17 * lines)
    figure.legend(handles, names, loc="outside lower center", ncols=-(-len(names) // lines))


def _distinct(rows: Rows, column: str | None) -> list[Any]:
    """Return the values of a column in the order of their first row; [""] without a column."""
    return [""] if column is None else list(dict.fromkeys(row[column] for row in rows))


def _make_logarithmic(axes: Axes) -> None:
    """Make the y axis logarithmic, with plain numbers: matplotlib's own labels are formulas, which are not typeset."""
    from matplotlib.ticker import LogFormatter

    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(LogFormatter())
    axes.yaxis.set_minor_formatter(LogFormatter(labelOnlyBase=False, minor_thresholds=(1, 0.4)))


def _collect(rows: Iterable[Mapping[str, Any]], x: str, y: str, positive: bool) -> dict[float, list[float]]:
    """Collect the values at each place that can be drawn."""
    found: dict[float, list[float]] = {}
    for row in rows:
        value = float(row[y])
        if isfinite(value) and (value > 0 or not positive):
            found.setdefault(float(row[x]), []).append(value)
    return found


def _mark_whole_numbers(axes: Axes) -> None:
    """Write no fractions at an axis of layers, lengths or steps."""
    from matplotlib.ticker import MaxNLocator

    axes.xaxis.set_major_locator(MaxNLocator("auto", integer=True, steps=[1, 2, 5, 10]))


def _mark_powers(axes: Axes, rows: Rows, x: str) -> None:
    """Write plain numbers at a logarithmic axis, at the measured places if these are few."""
    from matplotlib.ticker import NullFormatter

    places = sorted({float(row[x]) for row in rows if row[x] > 0})
    if len(places) <= 10:
        axes.set_xticks(places, [f"{place:,.4g}" if place < 1000 else f"{place:,.0f}" for place in places])
    else:
        axes.xaxis.set_major_formatter("{x:.3g}")
    axes.xaxis.set_minor_formatter(NullFormatter())
