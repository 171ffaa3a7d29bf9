"""The statistics of a comparison, against tables, hand calculations and sacreBLEU."""

from math import sqrt

import numpy as np
import pytest
import sacrebleu
from hypothesis import given
from hypothesis import strategies as st

from regard.lab.comparison.significance import (
    BleuCounts,
    correct_for_number,
    interval_of_mean,
    paired_bootstrap,
    t_probability,
    t_quantile,
    welch_test,
)

from ..tasks.corpora import sentences


@pytest.mark.parametrize(
    ("freedom", "quantile"),
    [(1, 12.706), (2, 4.303), (3, 3.182), (4, 2.776), (10, 2.228), (30, 2.042), (1000, 1.962)],  # of printed tables
)
def test_quantiles_are_those_of_student_s_table(freedom: int, quantile: float):
    assert t_quantile(freedom) == pytest.approx(quantile, abs=5e-4)
    assert t_probability(t_quantile(freedom), freedom) == pytest.approx(0.05)


@given(st.floats(-50, 50))
def test_with_one_and_two_degrees_of_freedom_the_probability_has_a_closed_form(t: float):
    assert t_probability(t, 1) == pytest.approx(1 - 2 * np.arctan(abs(t)) / np.pi, abs=1e-9)
    assert t_probability(t, 2) == pytest.approx(1 - abs(t) / sqrt(2 + t * t), abs=1e-9)


def test_the_interval_of_a_mean_is_that_of_student():
    low, high = interval_of_mean([1.0, 2.0, 3.0])
    assert (low, high) == pytest.approx((2 - 4.3027 / sqrt(3), 2 + 4.3027 / sqrt(3)), abs=1e-4)
    assert interval_of_mean([1.0]) is None


def test_equal_variances_and_sizes_give_student_s_test():
    """Then t = (a - b) / (s sqrt(2 / n)) with 2n - 2 degrees of freedom."""
    found = welch_test([3.0, 4.0, 5.0], [1.0, 2.0, 3.0])
    assert found.value == 2
    assert found.p == pytest.approx(t_probability(2 / sqrt(2 / 3), 4))
    assert found.high - found.low == pytest.approx(2 * t_quantile(4) * sqrt(2 / 3))


def test_a_test_needs_two_runs_that_vary():
    assert welch_test([1.0], [2.0, 3.0]) is None
    assert welch_test([1.0, 1.0], [2.0, 2.0]) is None


def test_noise_is_called_significant_as_often_as_promised():
    chance = np.random.default_rng(0)
    pairs = chance.normal(size=(500, 2, 3))
    rate = np.mean([welch_test(*pair.tolist()).p < 0.05 for pair in pairs])
    assert 0.01 < rate < 0.07  # Welch's test is conservative for three runs


def test_several_comparisons_are_corrected_by_holm():
    assert correct_for_number([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert correct_for_number([0.9, 0.9]) == [1.0, 1.0]
    assert correct_for_number([]) == []


def test_bleu_of_counts_is_that_of_sacrebleu():
    wanted, made = sentences(30), sentences(30, seed=1)
    made[:20] = wanted[:20]
    counts = BleuCounts([made], wanted)
    assert counts.score(np.arange(30)) == pytest.approx(sacrebleu.corpus_bleu(made, [wanted]).score)
    some = np.array([3, 3, 25, 7])
    expected = sacrebleu.corpus_bleu([made[row] for row in some], [[wanted[row] for row in some]]).score
    assert counts.score(some) == pytest.approx(expected)


def test_the_bootstrap_tells_a_better_translator_from_an_equal_one():
    wanted, good, bad = sentences(60), sentences(60, seed=1), sentences(60, seed=2)
    good[:40] = wanted[:40]
    better, worse = BleuCounts([good], wanted), BleuCounts([bad], wanted)
    found = paired_bootstrap(better, worse, resamples=200)
    assert found.p < 0.05
    assert 0 < found.low < found.value < found.high
    other = paired_bootstrap(worse, better, resamples=200)
    assert (other.value, other.p) == (-found.value, found.p)
    same = paired_bootstrap(better, better, resamples=200)
    assert (same.value, same.p) == (0.0, 1.0)
