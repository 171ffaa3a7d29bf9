"""The experiment `alignment`."""

import numpy as np
import pytest

from regard.lab import run_experiment
from regard.lab.experiments.alignment import AER, BY, CROSSED, DIAGONAL, RECURRENT, TRANSFORMER, _by_hand, _rows
from regard.lab.phrases import PhrasePair

PAIR = PhrasePair(("a", "red", "car"), ("une", "voiture", "rouge"), ((0, 0), (2, 1), (1, 2)))


@pytest.mark.parametrize(("columns", "error", "crossed"), [([0, 2, 1], 0.0, 1.0), ([0, 1, 2], 2 / 3, 0.0)])
def test_links_are_compared_with_the_true_ones(columns, error, crossed):
    row = list(_rows("x", [PAIR], [np.eye(3)[columns]]))[-1]
    assert row[AER] == pytest.approx(error)
    assert row[CROSSED] == crossed


def test_the_pairs_aligned_by_hand_are_complete():
    pairs = _by_hand()
    assert len(pairs) == 30
    assert all(0 <= english < len(pair.english) for pair in pairs for english, _ in pair.links)
    assert sum(any(a > b and x < y for a, x in pair.links for b, y in pair.links) for pair in pairs) == 23


@pytest.mark.usefixtures("no_reports")
def test_both_models_and_the_diagonal_are_measured(tmp_path):
    result = run_experiment("alignment", scale="tiny", seeds=1, out=tmp_path)
    found = {row[BY]: row for row in result.rows if AER in row}
    assert found.keys() == {DIAGONAL, RECURRENT, TRANSFORMER}
    assert found[DIAGONAL][CROSSED] == 0
    assert {path.name for path in tmp_path.glob("*.png")} == {
        "errors.png",
        "rnn-weights.png",
        "transformer-weights.png",
    }
