"""Scenes from above: a line for each past, future and truth."""

import itertools

import numpy as np
import pytest

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


def extents(figure) -> list:
    figure.draw_without_rendering()
    return [text.get_window_extent() for text in figure.axes[0].texts]


@pytest.mark.parametrize("side", [2.0, 8.0])
def test_names_of_near_agents_do_not_overlap(side: float):
    """Eight agents lie within half a metre, and one lies alone, whose name is where a name is by default."""
    where = np.array([*np.random.default_rng(0).uniform(0, 0.5, (8, 2)), [side, side]])
    seen, paths = np.tile(where[:, None], (1, 3, 1)), np.tile(where[:, None, None], (1, 2, 2, 1))
    figure = scene(seen, paths, np.full((9, 2), 0.5), [f"{number}" for number in range(101, 110)])
    boxes = extents(figure)
    assert not any(one.overlaps(other) for one, other in itertools.combinations(boxes, 2))
    assert figure.axes[0].texts[-1].get_position() == (3, 3)


def test_names_without_a_free_place_are_still_written():
    seen = np.zeros((40, 3, 2))
    figure = scene(seen, np.ones((40, 2, 2, 2)), np.full((40, 2), 0.5), ["agent"] * 40)
    assert len(extents(figure)) == 40
    assert figure.axes[0].texts[-1].get_position() == (3, 3)
