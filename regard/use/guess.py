"""Labels with their probabilities, and the most likely of many."""

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from regard.errors import NOT_FINITE, InputError


@dataclass(frozen=True)
class Guess:
    """A label, and the probability that a model gives it."""

    label: str
    probability: float


def most_likely(
    logits: Float[Tensor, "N V"], count: int, independent: bool = False
) -> tuple[list[list[int]], list[list[float]]]:
    """Return the indices and the probabilities of the highest logits of each row, the highest first.

    If they are `independent`, any number of them may be right (a sigmoid for each), otherwise one is (softmax).
    """
    logits = logits.float()
    found = (logits.sigmoid() if independent else logits.softmax(-1)).topk(min(count, logits.shape[-1]))
    if not found.values.isfinite().all():
        raise InputError(NOT_FINITE)
    return found.indices.tolist(), found.values.tolist()
