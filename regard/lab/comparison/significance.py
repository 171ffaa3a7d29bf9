"""Whether a difference between models is more than noise: Welch's t-test over seeds, paired bootstrap over sentences.

With few seeds a t-test is weak: of three runs each, it finds only differences of several standard deviations. So an
interval of confidence is always given with it. SciPy is not needed for these few lines.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, isfinite, lgamma, log, sqrt
from statistics import fmean, stdev

import numpy as np

from regard.tasks.metric import bleu_tokenizer

CONFIDENCE = 0.95
RESAMPLES = 1000
TINY = 1e-300  # in place of zero in a continued fraction


@dataclass(frozen=True)
class Difference:
    """A difference of two means with its interval of confidence; `p` is the probability of one as large by chance."""

    value: float
    low: float
    high: float
    p: float


def deviation(values: Sequence[float]) -> float | None:
    """Return the standard deviation; None for a single value, and if one is not finite, as of a run that diverged."""
    return stdev(values) if len(values) > 1 and all(map(isfinite, values)) else None


def interval_of_mean(values: Sequence[float]) -> tuple[float, float] | None:
    """Return mean -+ t s / sqrt(n), the interval of confidence of the mean; None where there is no deviation."""
    spread = deviation(values)
    if spread is None:
        return None
    half = t_quantile(len(values) - 1) * spread / sqrt(len(values))
    return fmean(values) - half, fmean(values) + half


def welch_test(ours: Sequence[float], theirs: Sequence[float]) -> Difference | None:
    """Compare two means without assuming equal variances (Welch 1947); None if a side has no deviation.

    t = (a - b) / sqrt(s_a^2 / n_a + s_b^2 / n_b), with the degrees of freedom of Welch and Satterthwaite. If no side
    varies at all, there is nothing to judge a difference by: None, too.
    """
    own, other = deviation(ours), deviation(theirs)
    if own is None or other is None:
        return None
    errors = [own**2 / len(ours), other**2 / len(theirs)]
    error = sqrt(sum(errors))
    if error == 0.0:
        return None
    freedom = sum(errors) ** 2 / sum(e**2 / (len(v) - 1) for e, v in zip(errors, (ours, theirs), strict=True))
    value = fmean(ours) - fmean(theirs)
    half = t_quantile(freedom) * error
    return Difference(value, value - half, value + half, t_probability(value / error, freedom))


def correct_for_number(ps: Sequence[float]) -> list[float]:
    """Correct the p of several comparisons for their number, by the method of Holm (1979)."""
    order = sorted(range(len(ps)), key=lambda index: ps[index])
    corrected, least = [0.0] * len(ps), 0.0
    for rank, index in enumerate(order):
        least = max(least, min(1.0, (len(ps) - rank) * ps[index]))
        corrected[index] = least
    return corrected


# --- Student's t -----------------------------------------------------------------------------------------------------


def t_probability(t: float, freedom: int | float) -> float:
    """Return P(|T| >= |t|) for Student's t: the regularised incomplete beta function I_x(freedom / 2, 1 / 2)."""
    total = freedom + t * t
    return _incomplete_beta(freedom / total, t * t / total, freedom / 2, 0.5)


def t_quantile(freedom: int | float, confidence: float = CONFIDENCE) -> float:
    """Return the t that |T| exceeds with the probability 1 - confidence, by bisection."""
    low, high = 0.0, 1e6
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if t_probability(middle, freedom) > 1 - confidence else (low, middle)
    return high


def _incomplete_beta(x: float, rest: float, a: float, b: float) -> float:
    """Return I_x(a, b) by its continued fraction, on the side where that converges fast.

    `rest` is 1 - x, which the caller knows with more digits than a difference has.
    """
    if x <= 0.0 or rest <= 0.0:
        return float(rest <= 0.0)
    front = exp(lgamma(a + b) - lgamma(a) - lgamma(b) + a * log(x) + b * log(rest))
    if x > (a + 1) / (a + b + 2):
        return 1 - front * _beta_fraction(rest, b, a) / b
    return front * _beta_fraction(x, a, b) / a


def _beta_fraction(x: float, a: float, b: float) -> float:
    """Evaluate the continued fraction of the incomplete beta function (Lentz's method)."""
    c, d = 1.0, 1 / (1 - (a + b) * x / (a + 1) or TINY)
    total = d
    for m in range(1, 500):
        for term in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1 / (1 + term * d or TINY)
            c = 1 + term / c or TINY
            total *= c * d
        if abs(c * d - 1) < 1e-15:
            break
    return total


# --- BLEU ------------------------------------------------------------------------------------------------------------


class BleuCounts:
    """What BLEU counts in each sentence of several runs of one model, so that it can be computed for any sentences."""

    def __init__(self, runs: Sequence[Sequence[str]], references: Sequence[str]) -> None:
        from sacrebleu.metrics.bleu import BLEU

        self._bleu = BLEU(force=True, tokenize=bleu_tokenizer(references))
        self.counts = np.array([[self._count(*pair) for pair in zip(made, references, strict=True)] for made in runs])

    def _count(self, made: str, reference: str) -> list[int]:
        found = self._bleu.corpus_score([made], [[reference]])
        return [*found.counts, *found.totals, found.sys_len, found.ref_len]

    def score(self, sentences: np.ndarray) -> float:
        """Return BLEU of these sentences, the mean over the runs; a sentence may occur several times."""
        return fmean(self._score(run[sentences].sum(0).tolist()) for run in self.counts)

    def _score(self, sums: list[int]) -> float:
        *counts, ours, theirs = sums
        right, total = counts[: len(counts) // 2], counts[len(counts) // 2 :]
        return float(self._bleu.compute_bleu(right, total, ours, theirs, smooth_method="exp").score)


def paired_bootstrap(ours: BleuCounts, theirs: BleuCounts, resamples: int = RESAMPLES, seed: int = 0) -> Difference:
    """Compare the BLEU of two models on the same sentences, drawn again and again with replacement (Koehn 2004).

    This covers the choice of the sentences, not the noise of training. p is two-sided: how often a drawn difference is
    as far from their mean as the difference itself is from 0. sacreBLEU counts one side only, so its p is smaller.
    """
    count = ours.counts.shape[1]
    chance = np.random.default_rng(seed)
    everything = np.arange(count)
    value = ours.score(everything) - theirs.score(everything)
    drawn = chance.integers(0, count, (resamples, count))
    found = np.array([ours.score(some) - theirs.score(some) for some in drawn])
    outside = int((np.abs(found - found.mean()) >= abs(value)).sum())
    low, high = np.quantile(found, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2]).tolist()
    return Difference(value, low, high, (outside + 1) / (resamples + 1))
