"""The heat map shows the given weights, and its labels are readable."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regard import draw
from regard.draw.heatmap import MOST
from regard.draw.style import LEAST
from regard.errors import RegardError

from .read import boxes, cells, hatched, inside, panels, softmax, texts

RANDOM = np.random.default_rng(0)


def weights_of(rows, columns, mask=None):
    return softmax(RANDOM.normal(size=(rows, columns)) * 3, mask)


def words(count, word="word"):
    return [f"{word}{number}" for number in range(count)]


def test_what_is_beside_the_rows_can_be_named():
    figure = draw.heatmap(weights_of(2, 2), ["1.1", "1.2"], ["the", "animal"], beside="this head looks …")
    assert "this head looks …" in texts(figure)
    assert "this word looks …" not in texts(figure)


def test_cells_are_the_weights_and_labels_the_tokens():
    weights = weights_of(3, 4)
    figure = draw.heatmap(weights, ["she", "saw", "dogs"], ["sie", "hat", "Hunde", "gesehen"], title="L4.H2 · cross")
    [axes] = panels(figure)
    np.testing.assert_array_equal(cells(axes), weights)
    assert not cells(axes).mask.any()
    assert not axes.patches
    assert [label.get_text() for label in axes.get_yticklabels()] == ["she", "saw", "dogs"]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["sie", "hat", "Hunde", "gesehen"]
    # the first query is at the top, the first key at the left, each label at the centre of its cells
    assert (*axes.get_xlim(), *axes.get_ylim()) == (-0.5, 3.5, 2.5, -0.5)
    assert list(axes.get_yticks()) == [0, 1, 2]
    assert list(axes.get_xticks()) == [0, 1, 2, 3]
    assert sorted(texts(figure)) == ["L4.H2 · cross", "this word looks …", "… at these"]


@pytest.mark.parametrize("look", [draw.LIGHT, draw.DARK])
def test_the_colours_are_cividis_from_0_to_1_with_a_colour_bar(look):
    figure = draw.heatmap(np.full((2, 2), 0.5), ["a", "b"], ["c", "d"], look=look)
    [axes] = panels(figure)
    [image] = axes.images
    assert (image.get_cmap().name, image.get_clim()) == ("cividis", (0, 1))
    [bar] = [other for other in figure.axes if other is not axes]
    figure.draw_without_rendering()
    assert [label.get_text() for label in bar.get_yticklabels()] == ["0", "0.5", "1"]
    assert bar.get_ylabel() == "weight"
    assert np.array_equal(figure.get_facecolor()[:3], [int(look.ground[at : at + 2], 16) / 255 for at in (1, 3, 5)])
    assert {label.get_color() for label in axes.get_xticklabels()} == {look.ink}


@given(st.integers(1, 9), st.integers(1, 9), st.randoms(use_true_random=False))
@settings(max_examples=15)
def test_masked_cells_are_hatched_and_have_no_colour(rows, columns, chance):
    mask = np.array([[chance.random() < 0.6 for _ in range(columns)] for _ in range(rows)])
    weights = np.where(mask, 0.25, np.nan)
    [axes] = panels(draw.heatmap(weights, words(rows), words(columns), mask=mask))
    np.testing.assert_array_equal(cells(axes).mask | np.zeros_like(mask), ~mask)
    assert (cells(axes)[mask] == 0.25).all()
    np.testing.assert_array_equal(hatched(axes, mask.shape), ~mask)


def test_cells_are_outlined_and_a_note_says_why():
    weights = weights_of(3, 4)
    plain, figure = (
        draw.heatmap(weights, words(3), words(4), outlined=cells_, outlines="in contact")
        for cells_ in ([], [(0, 2), (2, 1)])
    )
    borders = [patch.get_xy() for patch in panels(figure)[0].patches if patch.get_gid() == "outlined"]
    assert borders == [(1.5, -0.5), (0.5, 1.5)]
    assert "in contact" in [text.get_text() for text in figure.texts]
    assert "in contact" not in [text.get_text() for text in plain.texts]


def test_half_precision_is_drawn_as_it_is(tmp_path):
    weights = weights_of(3, 3).astype(np.float16)
    figure = draw.heatmap(weights, words(3), words(3))
    np.testing.assert_array_equal(cells(panels(figure)[0]), weights)
    draw.write_figure(figure, tmp_path / "half.png")


def test_a_long_text_shows_the_largest_of_neighbours():
    size = 2 * MOST + 100
    mask = np.tril(np.ones((size, size), bool))
    weights = np.where(mask, 0.001, 0)
    peak = np.array([799, 13])
    weights[*peak] = 0.9
    [axes] = panels(draw.heatmap(weights, words(size), words(size), mask=mask))
    shown = cells(axes)
    assert shown.shape == (MOST, MOST)
    np.testing.assert_allclose(np.argwhere(shown == 0.9), [(peak + 0.5) * MOST / size - 0.5], atol=0.5)
    assert np.count_nonzero(shown.filled(0) > 0.001) == 1
    # the axes keep their range, and cells above the diagonal are hatched
    assert (*axes.get_xlim(), *axes.get_ylim()) == (-0.5, size - 0.5, size - 0.5, -0.5)
    np.testing.assert_array_equal(np.triu(shown.mask, 2), np.triu(np.ones_like(shown.mask), 2))
    assert not np.tril(shown.mask).any()


# --- readable at every size ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(1, 1), (5, 5), (40, 40), (70, 12), (200, 200), (1, 200)])
@pytest.mark.parametrize("word", ["w", "Donaudampfschiff"])
def test_labels_do_not_overlap_and_stay_on_the_page(shape, word):
    rows, columns = shape
    figure = draw.heatmap(weights_of(*shape), [word] * rows, [word] * columns, title="L12.H12 · self-attention")
    figure.draw_without_rendering()
    [axes] = panels(figure)
    labels = [*axes.get_xticklabels(), *axes.get_yticklabels()]
    assert all(label.get_fontsize() >= LEAST for label in labels)
    assert all(inside(figure, text) for text in (*labels, *figure.texts))
    assert not any(one.overlaps(other) for one, other in combinations(boxes([*labels, *figure.texts]), 2))
    assert max(figure.get_size_inches()) < 9.5


@pytest.mark.parametrize(("count", "named"), [(5, 5), (60, 60), (200, 40), (1000, 20)])
def test_labels_are_thinned_and_stay_with_their_tokens(count, named):
    [axes] = panels(draw.heatmap(np.full((count, 2), 0.5), words(count), ["a", "b"]))
    labels = [label.get_text() for label in axes.get_yticklabels()]
    assert len(labels) == named
    assert labels == [f"word{place}" for place in axes.get_yticks()]


def test_short_labels_are_horizontal_and_long_ones_vertical():
    for word, rotation in (("a", 0), ("gesehen", 90)):
        [axes] = panels(draw.heatmap(weights_of(3, 3), [word] * 3, [word] * 3))
        assert {label.get_rotation() for label in axes.get_xticklabels()} == {rotation}
        assert {label.get_rotation() for label in axes.get_yticklabels()} == {0}


def test_a_wide_title_makes_the_picture_wider():
    figure = draw.heatmap(np.ones((1, 1)), ["a"], ["b"], title="a title that is far longer than one cell is wide")
    figure.draw_without_rendering()
    assert all(inside(figure, text) for text in figure.texts)


# --- mistakes --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("weights", "mask", "message"),
    [
        (np.ones(3), None, "the weights have shape (3,); give a non-empty matrix of queries x keys"),
        (np.ones((0, 2)), None, "the weights have shape (0, 2); give a non-empty matrix of queries x keys"),
        (
            np.ones((2, 3)),
            None,
            "the weights have 2 queries and 3 keys, but there are 2 and 2 tokens; give one token for each",
        ),
        (
            np.array([[-3.5, 4.0], [0, 0]]),
            None,
            "the weights range from -3.5 to 4, but must be between 0 and 1; apply a softmax to scores first",
        ),
        (
            np.array([[np.nan, 0.5], [0, 0]]),
            None,
            "the weights range from nan to nan, but must be between 0 and 1; apply a softmax to scores first",
        ),
        (
            np.ones((2, 2)),
            np.ones((3, 2), bool),
            "the weights have shape (2, 2), but the mask has shape (3, 2) and type bool; give True or False for each",
        ),
        (
            np.ones((2, 2)),
            np.ones((2, 2)),
            "the weights have shape (2, 2), but the mask has shape (2, 2) and type float64; "
            "give True or False for each",
        ),
    ],
)
def test_arrays_that_are_not_attention_weights_are_rejected(weights, mask, message):
    with pytest.raises(RegardError) as caught:
        draw.heatmap(weights, ["a", "b"], ["c", "d"], mask=mask)
    assert str(caught.value) == message
