"""Scenes from above: a line for each past, future and truth."""

import numpy as np

from regard.draw import encode_figure, scene


def test_lines_of_past_futures_and_truth():
    seen = np.zeros((2, 3, 2))
    seen[1, 0] = np.nan
    paths = np.ones((2, 4, 2, 2))
    chances = np.array([[0.7, 0.1, 0.1, 0.1], [0.25] * 4])
    truth = np.full((2, 2, 2), np.nan)
    truth[0] = 1.0
    figure = scene(seen, paths, chances, ["a", "$b$"], truth=truth, title="here")
    (axes,) = figure.axes
    lines = axes.get_lines()
    assert len(lines) == 2 * (4 + 1) + 1
    assert [line.get_linestyle() for line in lines].count("--") == 1
    shades = [line.get_alpha() for line in lines[:4]]
    assert shades[0] == 1.0
    assert shades[1] < 0.5
    assert [text.get_text() for text in axes.texts] == ["a", "$b$"]
    assert axes.get_title("left") == "here"
    assert encode_figure(figure, "svg") == encode_figure(figure, "svg")
