"""A guess with its probability, and the best few of many scores."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor


@dataclass(frozen=True)
class Guess:
    """What a model takes something for, and how likely it finds that."""

    label: str
    probability: float


def best(logits: Float[Tensor, "N V"], count: int) -> tuple[list[list[int]], list[list[float]]]:
    """Give the numbers and the probabilities of the highest scores of each row, the highest first."""
    found = torch.softmax(logits.float(), -1).topk(min(count, logits.shape[-1]))
    return found.indices.tolist(), found.values.tolist()
