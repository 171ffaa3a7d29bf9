"""The experiment `bank`."""

import pytest
import torch

from regard.lab import run_experiment
from regard.lab.experiments.bank import AGREES, ANTECEDENT, APART, COSINE, HOMOGRAPHS, LAYER, WORD, _tell_apart


@pytest.mark.usefixtures("no_reports")
def test_the_embedding_of_a_homograph_does_not_depend_on_the_sentence(tmp_path):
    rows = run_experiment("bank", scale="tiny", seeds=1, out=tmp_path).rows
    told = [row for row in rows if APART in row]
    assert {row[WORD] for row in told} == set(HOMOGRAPHS)
    assert [row[APART] for row in told if row[LAYER] == 0] == [0.5] * len(HOMOGRAPHS)
    bottom, top = (row[COSINE] for row in rows if COSINE in row)
    assert bottom == pytest.approx(1)
    assert top == pytest.approx(1)  # a model that has learned nothing yet moves it hardly
    assert sum(AGREES in row for row in rows) == sum(ANTECEDENT in row for row in rows) == 1


def test_senses_are_told_apart_by_the_nearer_mean():
    one, other = torch.tensor([[0.0], [1.0], [0.5]]), torch.tensor([[9.0], [10.0]])
    assert _tell_apart(one, other) == 1
    assert _tell_apart(one, one) == pytest.approx(0.5, abs=0.35)
    assert _tell_apart(torch.ones(4, 2), torch.ones(3, 2)) == 0.5
