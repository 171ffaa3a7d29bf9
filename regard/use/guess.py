"""Labels with their probabilities, and the most likely of many."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from regard.errors import NOT_FINITE, InputError


@dataclass(frozen=True)
class Guess:
    """A label, and the probability that a model gives it."""

    label: str
    probability: float


def most_likely(logits: Float[Tensor, "N V"], count: int) -> tuple[list[list[int]], list[list[float]]]:
    """Return the indices and the probabilities of the highest logits of each row, the highest first."""
    found = torch.softmax(logits.float(), -1).topk(min(count, logits.shape[-1]))
    if not found.values.isfinite().all():
        raise InputError(NOT_FINITE)
    return found.indices.tolist(), found.values.tolist()
