"""Learning curves."""

from math import nan
from statistics import fmean

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard import draw
from regard.draw.learning_curves import MOST_POINTS, average_neighbours

PANELS = [
    draw.Panel(
        "Loss",
        [
            draw.Curve("training", {1: 8.0, 2: 4.0, 3: 2.0}),
            draw.Curve("validation", {2: 5.0, 4: nan, 6: 3.0}, measured=True, best=6),
        ],
    ),
    draw.Panel("BLEU", [draw.Curve("BLEU", {2: 10.0, 6: 20.0}, measured=True, best=6)]),
    draw.Panel("chrF", [draw.Curve("chrF", {2: 30.0}, measured=True)]),
    draw.Panel("$x$ rate", [draw.Curve("rate", {1: 0.1})]),
]


@pytest.mark.parametrize("look", [draw.LIGHT, draw.DARK])
def test_curves_are_the_points(look):
    figure = draw.curves(PANELS, look=look)
    assert [axes.get_title("left") for axes in figure.axes] == ["Loss", "BLEU", "chrF", "$x$ rate"]
    for axes, panel in zip(figure.axes, PANELS, strict=True):
        lines = iter(axes.lines)
        for curve in panel.curves:
            line = next(lines)
            np.testing.assert_array_equal(line.get_xydata(), list(curve.points.items()))
            assert line.get_color() == (look.orange if curve.measured else look.blue)
            assert (line.get_marker() == "o") == (curve.measured or len(curve.points) == 1)
            if curve.best is not None:
                ring = next(lines)
                assert ring.get_xydata().tolist() == [[curve.best, curve.points[curve.best]]]
                assert ring.get_markerfacecolor() == "none"
        assert next(lines, None) is None
    assert len({axes.get_xlim() for axes in figure.axes}) == 1  # all have the same steps
    low, high = figure.axes[0].get_xlim()
    assert low < 1 < 6 < high
    assert [text.get_text() for text in figure.axes[0].get_legend().get_texts()] == ["training", "validation"]


@pytest.mark.parametrize(("columns", "places"), [(1, 4), (2, 3), (3, 2)])
def test_the_first_is_large_and_the_others_are_in_columns(columns, places):
    figure = draw.curves(PANELS, columns=columns)
    first, *small = [axes.get_subplotspec() for axes in figure.axes]
    assert first.rowspan == range(1)
    assert first.colspan == range(columns)
    assert [spec.rowspan.start for spec in small] == [1 + number // columns for number in range(3)]
    assert [spec.colspan.start for spec in small] == [number % columns for number in range(3)]
    assert small[-1].colspan.stop == columns  # the last fills its row
    assert first.get_gridspec().nrows == places


def test_no_curve_at_all_is_an_empty_plot(tmp_path):
    figure = draw.curves([draw.Panel("Loss", [draw.Curve("training", {})])])
    draw.write_figure(figure, tmp_path / "empty.png")
    assert not figure.axes[0].lines


def test_a_long_curve_is_thinned_unless_it_was_measured():
    points = {step: float(step) for step in range(3 * MOST_POINTS)}
    panel = draw.Panel("Loss", [draw.Curve("training", points), draw.Curve("validation", points, measured=True)])
    training, validation = draw.curves([panel]).axes[0].lines
    assert len(training.get_xdata()) == MOST_POINTS
    assert len(validation.get_xdata()) == 3 * MOST_POINTS


@given(length=st.integers(0, 5000))
def test_thinning_keeps_the_end_and_the_mean(length):
    curve = {step: float(step % 7) for step in range(1, length + 1)}
    thin = average_neighbours(curve)
    assert len(thin) <= MOST_POINTS
    assert length > MOST_POINTS or thin == curve
    before = 0
    for step, value in thin.items():
        assert value == pytest.approx(fmean(at % 7 for at in range(before + 1, step + 1)))
        before = step
    assert before == length
