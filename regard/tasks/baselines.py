"""Baselines: what counting and linear models reach on the same validation data. A model below them has not learned.

Each is computed from a sample of the training data that is small enough to take less than a second, whatever the size
of the data, and is the same every time.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, exp, prod

import numpy as np
from jaxtyping import Float, Int, Integer

from regard.data.batches import Indices
from regard.quantity import list_counts
from regard.tasks.metric import better, is_perfect

MOST_TOKENS = 2_000_000  # of training text that are counted
MOST_LINKS = 1_000_000  # between the tokens of two sentences, from which a dictionary is learned
MOST_IMAGES = 10_000
MOST_RESIDUES = 20_000
MOST_NUMBERS = 1024  # of an image; larger images are thinned out
BUCKETS = 1 << 18  # into which tokens and pairs of tokens are hashed
MOST_COUNTS = 1 << 24  # of all classes together
DISCOUNT = 0.75  # of Kneser-Ney smoothing

Labels = Int[np.ndarray, "_"]
Pixels = Integer[np.ndarray, "_ H W C"]
Paths = Float[np.ndarray, "..."]  # positions of agents at several steps: (agents, steps, 2)
Profile = tuple[Float[np.ndarray, "_T _V"], Labels]  # numbers of each residue of a chain, and its label
Texts = tuple[Indices, Indices]  # the tokens of all texts one after the other, and the length of each text


@dataclass(frozen=True)
class Baseline:
    """A simple model and its score in the metric of the task."""

    name: str
    score: float
    how: str = ""


# --- classes ---------------------------------------------------------------------------------------------------------


def majority_class(train: Labels, valid: Labels, classes: int) -> Baseline:
    """Measure the accuracy of always answering with the most frequent class of the training data."""
    most = int(np.bincount(train, minlength=classes).argmax())
    return Baseline("majority class", float(np.mean(valid == most)))


def naive_bayes(train: Texts, labels: Labels, valid: Texts, wanted: Labels, classes: int) -> Baseline:
    """Measure argmax_c log p(c) + sum_f log p(f | c) over the tokens and pairs of tokens f of a text (add-one)."""
    buckets = max(min(BUCKETS, MOST_COUNTS // classes), 1)
    features, rows = _token_features(train, buckets)
    counts = np.bincount(labels[rows] * buckets + features, minlength=classes * buckets).reshape(classes, buckets) + 1.0
    scores = np.log(counts / counts.sum(1, keepdims=True))
    features, rows = _token_features(valid, buckets)
    sums = [np.bincount(rows, weights=scores[label, features], minlength=len(wanted)) for label in range(classes)]
    found = np.stack(sums, 1) + np.log(np.bincount(labels, minlength=classes) + 1.0)
    how = f"tokens and pairs of tokens of {list_counts({'texts': len(labels)})}"
    return Baseline("naive Bayes", float(np.mean(found.argmax(1) == wanted)), how)


def _token_features(texts: Texts, buckets: int) -> tuple[Indices, Indices]:
    """Return the hashed tokens and pairs of neighbouring tokens of all texts, and the text that each is in."""
    tokens, lengths = texts
    rows = np.repeat(np.arange(len(lengths)), lengths)
    together = rows[:-1] == rows[1:]
    pairs = (tokens[:-1] * 1_000_003 + tokens[1:] + 1)[together]
    mixed = np.concatenate((tokens, pairs)).astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) >> np.uint64(40)
    return (mixed % np.uint64(buckets)).astype(np.int64), np.concatenate((rows, rows[:-1][together]))


def linear_pixels(
    train: Pixels,
    labels: Labels,
    valid: Pixels,
    wanted: Labels,
    classes: int,
) -> Baseline:
    """Measure softmax(W x + b) on standardised pixels x, trained by stochastic gradient descent with momentum."""
    found = _fit_linear(_reduced(train), labels, _reduced(valid), classes)
    return Baseline("linear", float(np.mean(found == wanted)), f"pixels of {list_counts({'images': len(train)})}")


def linear_windows(train: Sequence[Profile], valid: Sequence[Profile], reach: int, classes: int, what: str) -> Baseline:
    """Measure softmax(W x + b), where x has the tokens of a residue and of `reach` neighbours on each side.

    A chain has a row of numbers for each residue, and a label, or -1 if none is known. Secondary structure
    has been predicted from such windows since GOR (Garnier et al. 1978).
    """
    sides = [
        [np.concatenate(each) for each in zip(*(_windows(*chain, reach) for chain in side), strict=True)]
        for side in (train, valid)
    ]
    (x, labels), (other, wanted) = ([every[side[1] >= 0] for every in side] for side in sides)
    chosen = np.linspace(0, len(x) - 1, min(len(x), MOST_RESIDUES)).astype(np.int64)
    found = _fit_linear(x[chosen], labels[chosen], other, classes)
    how = f"windows of {2 * reach + 1} {what}, {len(chosen):,} of them"
    return Baseline("linear", float(np.mean(found == wanted)), how)


def _windows(x: Float[np.ndarray, "T V"], labels: Labels, reach: int) -> tuple[np.ndarray, Labels]:
    """Return for each residue the numbers of its neighbours, with a further 1 for each that exists."""
    padded = np.pad(np.concatenate((x, np.ones((len(x), 1), np.float32)), 1), ((reach, reach), (0, 0)))
    return np.concatenate([padded[place : place + len(x)] for place in range(2 * reach + 1)], 1), labels


def _fit_linear(x: Float[np.ndarray, "N D"], labels: Labels, other: Float[np.ndarray, "M D"], classes: int) -> Labels:
    """Return the classes that a linear model of x, trained by stochastic gradient descent, finds for `other`."""
    mean, std = x.mean(0), x.std(0) + 1e-3
    x, other = (x - mean) / std, (other - mean) / std
    weights, bias = np.zeros((x.shape[1], classes), np.float32), np.zeros(classes, np.float32)
    speed, speed_of_bias = np.zeros_like(weights), np.zeros_like(bias)
    random, passes, size = np.random.default_rng(0), 5, 100
    for number in range(passes):
        order = random.permutation(len(x))
        for begin in range(0, len(x), size):
            rows = order[begin : begin + size]
            error = _softmax(x[rows] @ weights + bias)
            error[np.arange(len(rows)), labels[rows]] -= 1
            rate = 0.5 / x.shape[1] * (1 - (number + begin / len(x)) / passes)
            speed = 0.9 * speed - rate * (x[rows].T @ error) / len(rows) ** 0.5
            speed_of_bias = 0.9 * speed_of_bias - rate * error.sum(0) / len(rows) ** 0.5
            weights, bias = weights + speed, bias + speed_of_bias
    return (other @ weights + bias).argmax(1)


def _reduced(images: Pixels) -> Float[np.ndarray, "_ D"]:
    """Return images as rows of numbers; large ones are thinned out."""
    step = ceil((prod(images.shape[1:]) / MOST_NUMBERS) ** 0.5)
    thin = images[:, ::step, ::step]
    return thin.reshape(len(thin), -1).astype(np.float32) / 255


def _softmax(scores: Float[np.ndarray, "N C"]) -> Float[np.ndarray, "N C"]:
    powers = np.exp(scores - scores.max(1, keepdims=True))
    return powers / powers.sum(1, keepdims=True)


# --- language --------------------------------------------------------------------------------------------------------


def unigram_loss(train: Indices, valid: Indices, vocabulary: int) -> Baseline:
    """Measure the mean of -log p(w), where p(w) = (count of w + 1) / (tokens + vocabulary)."""
    counts = np.bincount(train, minlength=vocabulary) + 1.0
    chances = np.log(counts / counts.sum())
    return Baseline("unigram", float(-chances[valid].mean()), f"counts of {len(train):,} tokens, add-one")


def bigram_loss(train: Indices, valid: Indices, vocabulary: int) -> Baseline:
    """Measure the mean of -log p(w | v) for each token w of `valid` and the one before, v.

    Interpolated Kneser-Ney smoothing (Kneser, Ney 1995) with the discount d = 0.75; N counts different neighbours:

        p(w | v) = max(c(v w) - d, 0) / c(v) + d N(v .) / c(v) p(w)
        p(w)     = max(N(. w) - d, 0) / N(. .) + d V / N(. .) / vocabulary, V of which have a neighbour
    """
    pairs, counts = np.unique(train[:-1] * vocabulary + train[1:], return_counts=True)
    first, second = pairs // vocabulary, pairs % vocabulary
    after = np.bincount(first, weights=counts, minlength=vocabulary)  # c(v)
    followers, leaders = np.bincount(first, minlength=vocabulary), np.bincount(second, minlength=vocabulary)
    alone = (
        np.maximum(leaders - DISCOUNT, 0) / len(pairs) + DISCOUNT * np.count_nonzero(leaders) / len(pairs) / vocabulary
    )
    wanted = valid[:-1] * vocabulary + valid[1:]
    place = np.minimum(np.searchsorted(pairs, wanted), len(pairs) - 1)
    seen = np.where(pairs[place] == wanted, counts[place] - DISCOUNT, 0.0)
    before = after[valid[:-1]]
    known = before > 0
    total = np.where(known, before, 1.0)
    rest = np.where(known, DISCOUNT * followers[valid[:-1]] / total, 1.0)
    chances = seen / total + rest * alone[valid[1:]]
    how = f"Kneser-Ney, {len(train):,} tokens"
    return Baseline("bigram", float(-np.log(chances).mean()), how)


# --- translation -----------------------------------------------------------------------------------------------------


def learn_dictionary(sources: Texts, targets: Texts, rounds: int = 4) -> dict[int, int]:
    """Return the most likely target token of each source token, by IBM model 1 (Brown et al. 1993).

    Expectation maximisation of p(e | f): each token e of a target comes from one of the tokens f of its source.
    """
    sides = [np.split(tokens, np.cumsum(lengths)[:-1]) for tokens, lengths in (sources, targets)]
    pairs = [(source, target) for source, target in zip(*sides, strict=True) if len(source) and len(target)]
    if not pairs:
        return {}
    came_from = np.concatenate([np.tile(source, len(target)) for source, target in pairs])
    became = np.concatenate([np.repeat(target, len(source)) for source, target in pairs])
    choices = np.concatenate([np.full(len(target), len(source)) for source, target in pairs])
    begins = np.cumsum(choices) - choices
    base = int(became.max()) + 1
    links, number = np.unique(came_from * base + became, return_inverse=True)
    source, chance = links // base, np.ones(len(links))
    for _ in range(rounds):
        share = chance[number]
        share /= np.repeat(np.add.reduceat(share, begins), choices)
        expected = np.bincount(number, weights=share)
        chance = expected / np.bincount(source, weights=expected)[source]
    order = np.lexsort((-links, chance))  # the most likely last, and of equals the smallest token
    return dict(zip(source[order].tolist(), (links % base)[order].tolist(), strict=True))


# --- trajectories ----------------------------------------------------------------------------------------------------


def constant_velocity(positions: Paths, observed: int) -> Baseline:
    """Measure agents that continue with their last velocity (Schöller et al. 2020)."""
    last, speed = positions[:, observed - 1], positions[:, observed - 1] - positions[:, observed - 2]
    return _path_baseline("constant velocity", _continue(last, speed, positions.shape[1] - observed), positions)


def constant_velocity_samples(positions: Paths, observed: int, samples: int = 20) -> Baseline:
    """Measure the best of 20 variations of the last velocity, rotated by N(0, 25 degrees), scaled by N(1, 0.25)."""
    last, speed = positions[:, observed - 1], positions[:, observed - 1] - positions[:, observed - 2]
    random = np.random.default_rng(0)
    angles = random.normal(0, np.radians(25), (len(speed), samples))
    factors = np.maximum(random.normal(1, 0.25, (len(speed), samples)), 0)
    x, y = speed[:, None, 0], speed[:, None, 1]
    varied = np.stack((x * np.cos(angles) - y * np.sin(angles), x * np.sin(angles) + y * np.cos(angles)), -1)
    paths = _continue(last[:, None], varied * factors[..., None], positions.shape[1] - observed)
    name = f"constant velocity, best of {samples}"
    return _path_baseline(name, paths, positions, "angle ± 25 degrees, speed ± 25 %")


def linear_motion(positions: Paths, observed: int) -> Baseline:
    """Measure agents that continue on the line that fits all observed steps by least squares."""
    steps = np.arange(observed) - (observed - 1) / 2
    speed = np.einsum("t,atx->ax", steps, positions[:, :observed]) / (steps**2).sum()
    last = positions[:, :observed].mean(1) + speed * (observed - 1) / 2
    return _path_baseline("linear fit", _continue(last, speed, positions.shape[1] - observed), positions)


def _continue(last: Paths, speed: Paths, steps: int) -> Paths:
    return last[..., None, :] + speed[..., None, :] * np.arange(1, steps + 1)[:, None]


def _path_baseline(name: str, paths: Paths, positions: Paths, how: str = "") -> Baseline:
    """Return the mean error of paths (agents, [futures,] steps, 2), the best of the futures if there are several."""
    paths = paths[:, None] if paths.ndim == 3 else paths
    away = np.linalg.norm(paths - positions[:, None, -paths.shape[2] :], axis=-1)
    ade, fde = away.mean(-1).min(1).mean(), away[..., -1].min(1).mean()
    return Baseline(name, float(ade), f"fde {fde:.3g}" + (f", {how}" if how else ""))


# --- as text ---------------------------------------------------------------------------------------------------------


def find_better_baselines(metric: str, score: float, baselines: Sequence[Baseline]) -> list[Baseline]:
    """Return the baselines that a model with this score does not beat; none beats one without a mistake."""
    if is_perfect(metric, score):
        return []
    return [baseline for baseline in baselines if not better(metric, score, baseline.score)]


def describe_baseline(metric: str, baseline: Baseline) -> str:
    """Return a baseline in words: naive Bayes: accuracy 0.817 (tokens and pairs of tokens of 67,349 texts)."""
    score = f"{metric} {baseline.score:.3g}" + (f", perplexity {exp(baseline.score):.3g}" if metric == "loss" else "")
    return f"{baseline.name}: {score}" + (f" ({baseline.how})" if baseline.how else "")
