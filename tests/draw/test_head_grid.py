"""The grid of heads."""

from itertools import pairwise

import numpy as np
import pytest

from regard import draw
from regard.draw.head_grid import MOST
from regard.errors import RegardError

from .read import boxes, cells, hatched, inside, panels, softmax, texts

RANDOM = np.random.default_rng(0)


def test_every_head_is_drawn_with_its_label():
    layers = [softmax(RANDOM.normal(size=(heads, 3, 4))) for heads in (2, 3)]
    figure = draw.heads(layers, title="All heads")
    axes = {each.get_title("left"): each for each in panels(figure)}
    assert list(axes) == ["L1.H1", "L1.H2", "L2.H1", "L2.H2", "L2.H3"]
    for name, each in axes.items():
        layer, head = (int(part[1:]) - 1 for part in name.split("."))
        np.testing.assert_array_equal(cells(each), layers[layer][head])
    assert texts(figure) == ["All heads", "rows attend to columns"]
    # layers are rows, heads are columns
    assert axes["L1.H1"].get_position().y0 > axes["L2.H1"].get_position().y1
    assert axes["L2.H1"].get_position().x1 < axes["L2.H2"].get_position().x0
    assert axes["L1.H2"].get_position().x0 == axes["L2.H2"].get_position().x0


def test_layers_may_be_one_array():
    assert len(panels(draw.heads(np.full((2, 2, 3, 3), 0.5)))) == 4


def test_masks_belong_to_layers():
    causal = np.tril(np.ones((4, 4), bool))
    layers = softmax(RANDOM.normal(size=(2, 2, 4, 4)))
    first, _, second, _ = panels(draw.heads(layers, masks=[causal, None]))
    np.testing.assert_array_equal(hatched(first, causal.shape), ~causal)
    assert not second.patches


def test_a_large_head_shows_the_largest_of_neighbours():
    weights = np.zeros((1, 1, 2 * MOST, 3))
    weights[0, 0, 7, 2] = 0.5
    [axes] = panels(draw.heads(weights))
    assert np.argwhere(cells(axes)).tolist() == [[3, 2]]


@pytest.mark.parametrize(("layers", "heads"), [(1, 1), (12, 3), (2, 40)])
def test_names_do_not_overlap(layers, heads):
    figure = draw.heads(np.full((layers, heads, 2, 2), 0.5), title="All")
    names = [axes._left_title for axes in panels(figure)] + figure.texts
    figure.draw_without_rendering()
    found = sorted(boxes(names), key=lambda box: (round(box.y0), box.x0))
    assert len(found) == layers * heads + 2
    assert not any(one.overlaps(other) for one, other in pairwise(found))
    assert all(inside(figure, name) for name in names if name.get_text())


@pytest.mark.parametrize(
    ("layers", "masks", "message"),
    [
        ([], None, "the layers have shapes none; give an array of heads x queries x keys for each"),
        (
            [np.ones((2, 2))],
            None,
            "the layers have shapes (2, 2); give an array of heads x queries x keys for each",
        ),
        ([np.ones((1, 2, 2))], [], "there are 1 layers but 0 masks; give a mask or None for each layer"),
        (
            [np.ones((1, 2, 2)), np.full((2, 2, 2), 3.0)],
            None,
            "the weights of L2.H1 range from 3 to 3, but must be between 0 and 1; apply a softmax to scores first",
        ),
    ],
)
def test_arrays_that_are_not_heads_are_rejected(layers, masks, message):
    with pytest.raises(RegardError) as caught:
        draw.heads(layers, masks=masks)
    assert str(caught.value) == message
