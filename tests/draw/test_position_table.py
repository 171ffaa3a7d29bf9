"""Pictures of positional encodings."""

import numpy as np
import pytest

from regard import draw
from regard.errors import RegardError

from .read import cells, inside, panels

TABLE = np.sin(np.arange(12)[:, None] / 10 ** np.arange(5))


@pytest.mark.parametrize("look", [draw.LIGHT, draw.DARK])
def test_table_and_similarity_are_those_given(look):
    similarity = TABLE @ TABLE.T
    figure = draw.positions(TABLE, similarity, title="sinusoidal", rows="place", columns="wave", look=look)
    left, right = panels(figure)
    np.testing.assert_array_equal(cells(left), TABLE)
    np.testing.assert_array_equal(cells(right), similarity)
    assert (left.get_xlabel(), left.get_ylabel()) == ("wave", "place")
    assert (right.get_xlabel(), right.get_ylabel()) == ("place", "place")
    assert figure.texts[0].get_text() == "sinusoidal"
    figure.draw_without_rendering()
    bars = [axes for axes in figure.axes if axes not in (left, right)]
    assert [bar.get_ylabel() for bar in bars] == ["value", "similarity"]
    everything = [label for axes in figure.axes for label in (*axes.get_xticklabels(), *axes.get_yticklabels())]
    everything += [axis.label for axes in figure.axes for axis in (axes.xaxis, axes.yaxis)]
    assert all(inside(figure, text) for text in everything if text.get_text())


@pytest.mark.parametrize("look", [draw.LIGHT, draw.DARK])
def test_zero_is_the_background_and_signs_have_colours(look):
    for panel in panels(draw.positions(np.array([[-3.0, 0.0, 1.5]]), np.array([[-0.5]]), look=look)):
        [image] = panel.images
        low, high = image.get_clim()
        assert low == -high == -np.abs(image.get_array()).max()
        below, zero, above = (np.array(image.to_rgba(high * value)[:3]) for value in (-0.5, 0, 0.5))
        ground = np.array([int(look.ground[at : at + 2], 16) / 255 for at in (1, 3, 5)])
        np.testing.assert_allclose(zero, ground, atol=0.02)
        assert below[2] > below[0]  # blue
        assert above[0] > above[2]  # orange


def test_control_characters_of_a_title_are_visible():
    assert draw.positions(TABLE, TABLE @ TABLE.T, title="a\nb").texts[0].get_text() == "a↵b"


def test_a_table_of_zeros_is_drawn():
    assert panels(draw.positions(np.zeros((2, 2)), np.zeros((2, 2))))[0].images[0].get_clim() == (-1, 1)


@pytest.mark.parametrize(
    ("table", "similarity", "message"),
    [
        (np.ones(3), np.ones((1, 1)), "the table of positions has shape (3,); give a matrix of finite numbers"),
        (
            np.ones((2, 2)),
            np.array([[np.inf]]),
            "the similarity of positions has shape (1, 1); give a matrix of finite numbers",
        ),
        (np.ones((2, 2)), np.ones((2, 3)), "the similarity of positions has shape (2, 3); give a square matrix"),
    ],
)
def test_arrays_that_are_not_tables_are_rejected(table, similarity, message):
    with pytest.raises(RegardError) as caught:
        draw.positions(table, similarity)
    assert str(caught.value) == message
