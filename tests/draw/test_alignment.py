"""Alignments: a ribbon for each weight, from the query to the key."""

from itertools import combinations

import numpy as np
import pytest

from regard import draw
from regard.draw.alignment import FAINTEST, WIDEST
from regard.errors import RegardError

from .read import boxes, inside, softmax, texts

GERMAN = ["gestern", "hat", "sie", "drei", "Hunde", "gesehen"]
ENGLISH = ["yesterday", "she", "saw", "three", "dogs"]
LONG = [f"word{number}" for number in range(30)]
RANDOM = np.random.default_rng(0)


def ribbons(figure):
    """Return (start, end, width) of each ribbon, in the order of drawing."""
    [axes] = figure.axes
    [drawn] = axes.collections
    ends = [(tuple(path.vertices[0]), tuple(path.vertices[-1])) for path in drawn.get_paths()]
    return [(*both, width) for both, width in zip(ends, drawn.get_linewidths(), strict=True)]


def nearest(words, place, axis):
    """Return the index of the word that is nearest to a point along an axis."""
    return int(np.argmin([abs(word.get_position()[axis] - place[axis]) for word in words]))


@pytest.mark.parametrize(
    ("queries", "keys", "lines"),
    [(ENGLISH, GERMAN, True), (["a"], ["b"], True), (LONG[1:], LONG, False), (["one"], LONG, False)],
)
@pytest.mark.parametrize("look", [draw.LIGHT, draw.DARK])
def test_ribbons_are_the_weights(queries, keys, lines, look):
    weights = softmax(RANDOM.normal(size=(len(queries), len(keys))) * 3)
    figure = draw.alignment(weights, queries, keys, title="L1.H1", look=look)
    [axes] = figure.axes
    below, above = axes.texts[: len(queries)], axes.texts[len(queries) :]
    assert ([word.get_text() for word in below], [word.get_text() for word in above]) == (queries, keys)
    axis = 0 if lines else 1  # along a line, or down a column
    assert len({word.get_position()[1 - axis] for word in above}) == 1
    found = {}
    for begin, end, width in ribbons(figure):
        found[nearest(below, begin, axis), nearest(above, end, axis)] = width / WIDEST
    assert found == pytest.approx({place: one for place, one in np.ndenumerate(weights) if one >= FAINTEST})
    assert list(found.values()) == sorted(found.values())  # strong ones are drawn over weak ones
    assert sorted(texts(figure)) == ["L1.H1", "this word looks …", "… at these"]


def test_stronger_is_darker():
    figure = draw.alignment(np.array([[0.1, 0.3, 0.6]]), ["a"], ["b", "c", "d"])
    [drawn] = figure.axes[0].collections
    assert len({tuple(colour[:3]) for colour in drawn.get_edgecolors()}) == 1
    assert np.all(np.diff(drawn.get_edgecolors()[:, 3]) > 0.1)


@pytest.mark.parametrize(
    ("queries", "keys"), [(ENGLISH, GERMAN), (LONG[1:], LONG), (["a"], ["b"]), (["Donaudampfschiff"] * 64, ["字"] * 64)]
)
def test_words_do_not_overlap_and_stay_on_the_page(queries, keys):
    figure = draw.alignment(
        np.full((len(queries), len(keys)), 1 / len(keys)), queries, keys, title="a longer title " * 3
    )
    written = [*figure.axes[0].texts, *figure.texts]
    assert not any(one.overlaps(other) for one, other in combinations(boxes(written), 2))
    assert all(inside(figure, text) for text in written)
    assert figure.get_size_inches()[0] < 9


def test_ribbons_too_thin_to_see_are_not_drawn():
    figure = draw.alignment(np.array([[FAINTEST / 2, 1 - FAINTEST / 2]]), ["a"], ["b", "c"])
    assert len(ribbons(figure)) == 1


@pytest.mark.parametrize(
    ("weights", "queries", "keys", "message"),
    [
        (
            np.ones((1, 65)),
            ["a"],
            ["b"] * 65,
            "ribbons between 65 and 1 words cannot be followed; draw at most 64 words per side, or a heat map",
        ),
        (
            np.ones((1, 2)),
            ["a", "b"],
            ["c"],
            "the weights have 1 queries and 2 keys, but there are 2 and 1 tokens; give one token for each",
        ),
        (
            np.full((1, 1), 2.0),
            ["a"],
            ["b"],
            "the weights range from 2 to 2, but must be between 0 and 1; apply a softmax to scores first",
        ),
    ],
)
def test_weights_that_cannot_be_aligned_are_rejected(weights, queries, keys, message):
    with pytest.raises(RegardError) as caught:
        draw.alignment(weights, queries, keys)
    assert str(caught.value) == message
