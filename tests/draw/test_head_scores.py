"""One number for each head, drawn."""

import numpy as np
import pytest

from regard import draw
from regard.draw.file import encode_figure
from regard.errors import RegardError


def test_every_head_has_its_number_and_missing_heads_have_none():
    scores = np.array([[0.25, -0.5, np.nan], [1.5, 0.0, 0.125]])
    figure = draw.head_scores(scores, ["encoder L1", "cross L1"], title="Without each head")
    axes = figure.axes[0]
    assert [text.get_text() for text in axes.texts] == ["0.25", "-0.5", "1.5", "0", "0.12"]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["H1", "H2", "H3"]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["encoder L1", "cross L1"]
    picture = encode_figure(figure, "svg").decode()
    assert "Without each head" in picture


@pytest.mark.parametrize("scores", [np.zeros(3), np.full((2, 2), np.nan), np.array([[np.inf, 0.0]])])
def test_other_scores_are_rejected(scores):
    with pytest.raises(RegardError, match="give a matrix with finite numbers"):
        draw.head_scores(scores, ["a"] * len(scores))


def test_every_row_needs_a_name():
    with pytest.raises(RegardError, match="2 rows of scores but 1 names"):
        draw.head_scores(np.zeros((2, 2)), ["a"])
