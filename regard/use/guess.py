"""A guess with its probability, and the best few of many scores."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from regard.errors import InputError


@dataclass(frozen=True)
class Guess:
    """What a model takes something for, and how likely it finds that."""

    label: str
    probability: float


def check_top(top: object) -> None:
    """Refuse a number of guesses that cannot be."""
    if not isinstance(top, int) or top < 1:
        raise InputError(f"top={top!r} must be a whole number, at least 1")


def best(logits: Float[Tensor, "N V"], count: int) -> tuple[list[list[int]], list[list[float]]]:
    """Give the numbers and the probabilities of the highest scores of each row, the highest first."""
    found = torch.softmax(logits.float(), -1).topk(min(count, logits.shape[-1]))
    return found.indices.tolist(), found.values.tolist()
