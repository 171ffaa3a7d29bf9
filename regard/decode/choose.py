"""Choose the next token: the most likely one, or one sampled from the likely ones.

Top-k: Fan et al. 2018; top-p: Holtzman et al. 2020; min-p: Nguyen et al. 2024; repetition penalty: Keskar et al. 2019.
"""

from dataclasses import dataclass
from typing import Annotated

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.config import Config, Count, NotNegative, Range, Rate
from regard.decode.scores import likeliest, precise, top_scores

Penalty = Annotated[float, Range(low=0.01, high=100)]  # a factor of logits, which must stay finite
NO_TOKEN = -1  # instead of a token, where scores are not finite
ONE = 2**40  # the weight of the most likely token; the sum over any vocabulary fits into 64 bits


@dataclass(frozen=True)
class Sampling(Config):
    """How tokens are sampled. The defaults sample from the model's own probabilities."""

    temperature: NotNegative = 1.0  # the logits are divided by it; 0 takes the most likely token
    top_k: Count | None = None  # only from the k most likely
    top_p: Annotated[float, Range(above=0, high=1)] = 1.0  # only from the smallest set with this total probability
    min_p: Rate = 0.0  # only from tokens with at least this share of the highest probability
    repetition: Penalty = 1.0  # above 1, tokens that occurred before become less likely


def choose_tokens(
    logits: Float[Tensor, "B V"],
    sampling: Sampling,
    chance: Float[Tensor, "B"],
    seen: Bool[Tensor, "B V"] | None = None,
) -> Int[Tensor, "B"]:
    """Return for each row the first token at which the cumulative probability exceeds `chance`, a number in [0, 1).

    Tokens marked in `seen` are penalised. A row whose best score is not finite has the token `NO_TOKEN`. Does not
    synchronise with an accelerator.
    """
    scores = logits if seen is None else penalise(logits, seen, sampling.repetition)
    if sampling.temperature == 0:
        best, token = likeliest(scores)
    else:
        best = scores.amax(-1, keepdim=True)
        summed = weigh(scores, sampling).cumsum(-1)
        total = summed[:, -1:]
        place = torch.minimum((chance[:, None] * total).long(), total - 1)  # the product may have been rounded up
        token = torch.searchsorted(summed, place, right=True)
    return torch.where(best.isfinite(), token, NO_TOKEN)[:, 0]


def penalise(logits: Float[Tensor, "B V"], seen: Bool[Tensor, "B V"], penalty: float) -> Float[Tensor, "B V"]:
    """Divide the logits of seen tokens by the penalty where they are positive, and multiply them elsewhere."""
    return torch.where(seen, torch.where(logits > 0, logits / penalty, logits * penalty), logits)


def weigh(logits: Float[Tensor, "B V"], sampling: Sampling) -> Int[Tensor, "B V"]:
    """Return integers in proportion to the probabilities, and 0 for tokens that the sampling leaves out.

    Sums of integers are exact, so they are the same in any order, on any device and in any batch.
    """
    scores = precise(logits)
    below = scores - scores.amax(-1, keepdim=True)
    weights = ((below / max(sampling.temperature, 1e-30)).exp() * ONE).long()
    best = None
    if sampling.top_k is not None:
        best, _ = top_scores(weights, sampling.top_k)
        weights = _at_least(best[:, -1:], weights)
    if sampling.top_p < 1:
        weights = _at_least(_least_of_nucleus(weights, best, sampling.top_p), weights)
    return _at_least(int(sampling.min_p * ONE), weights) if sampling.min_p > 0 else weights


def _at_least(least: Tensor | int, weights: Tensor) -> Tensor:
    return weights.masked_fill(weights < least, 0)


def _least_of_nucleus(weights: Int[Tensor, "B V"], best: Int[Tensor, "B _k"] | None, p: float) -> Int[Tensor, "B 1"]:
    """Return the least weight of the nucleus: the fewest tokens with a share of p. `best` are the largest, if known."""
    wanted = weights.sum(-1, keepdim=True).double() * p
    best = _descending(weights) if best is None else best
    heavier = best.cumsum(-1) - best
    last = (heavier < wanted).sum(-1, keepdim=True) - 1
    return best.gather(1, last.clamp(min=0))  # there is none where scores are not finite


def _descending(weights: Int[Tensor, "B V"]) -> Int[Tensor, "B V"]:
    if weights.is_cpu:  # NumPy's sort is ten times as fast as torch's, which takes half as long as a whole step
        return torch.from_numpy(np.sort(weights.numpy())).flip(-1)
    return weights.sort(-1, descending=True).values
