"""Dropout with one mask for all tokens of a row (Gal, Ghahramani 2016, variational dropout)."""

import torch
from torch import Tensor, nn


class RowDropout(nn.Module):
    """y_t = x_t * m / (1 - rate), with m ~ Bernoulli(1 - rate) for each feature of a row, the same for all t.

    Plain dropout draws a new m for every token, so that a recurrence or a stack can average the noise away over time.
    """

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    def forward(self, x: Tensor) -> Tensor:
        """Apply dropout to rows of vectors, in training."""
        if not self.training or not self.rate:
            return x
        mask = torch.nn.functional.dropout(x.new_ones(len(x), *[1] * (x.ndim - 2), x.shape[-1]), self.rate)
        return x * mask


def build_dropout(rate: float, over_rows: bool) -> nn.Module:
    """Build dropout with one mask for each row, or for each token."""
    return RowDropout(rate) if over_rows else nn.Dropout(rate)
