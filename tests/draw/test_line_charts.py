"""Line charts of repeated measurements."""

import numpy as np
import pytest

from regard import draw

CHARTS = [
    draw.Chart(
        "Recall",
        "distance",
        "accuracy",
        [
            draw.Line("LSTM", {2: [0.9, 0.7, 0.8], 1: [1.0, 1.0, 1.0]}),
            draw.Line("chance", {1: [0.1], 2: [0.1]}, reference=True),
        ],
        log_x=True,
        x_ticks=(1, 2),
    ),
    draw.Chart("Loss", "distance", "loss", [draw.Line("chance", {1: [2.0]}), draw.Line("GRU", {1: [3.0]})]),
]


@pytest.mark.parametrize("look", [draw.LIGHT, draw.DARK])
def test_a_line_is_the_median_over_the_seeds_in_the_order_of_x(look):
    axes = draw.line_charts(CHARTS, look=look).axes[0]
    np.testing.assert_array_equal(axes.lines[0].get_xydata(), [(1, 1.0), (2, 0.8)])
    band = axes.collections[0].get_paths()[0].vertices
    assert {(2.0, 0.7), (2.0, 0.9)} <= {tuple(point) for point in band.round(6).tolist()}
    assert axes.lines[1].get_linestyle() == "--"
    assert [label.get_text() for label in axes.get_xticklabels()] == ["1", "2"]


def test_a_name_has_one_colour_in_all_charts():
    lines = [line for axes in draw.line_charts(CHARTS).axes for line in axes.lines]
    other = draw.line_charts([CHARTS[1]]).axes[0].lines
    assert lines[2].get_color() != lines[0].get_color()
    assert other[0].get_color() == lines[0].get_color()


def test_charts_of_the_same_lines_share_one_legend():
    legends = [axes.get_legend() for axes in draw.line_charts([CHARTS[1], CHARTS[1]]).axes]
    assert legends[0] is None
    assert [text.get_text() for text in legends[1].get_texts()] == ["chance", "GRU"]
    assert all(axes.get_legend() for axes in draw.line_charts(CHARTS).axes)
