"""Pooling: from the vectors of a row to one vector. Attention generalises these averages."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from regard.config import Config, Kinds


class Pool(nn.Module):
    """One vector of a whole row. Padding has position -1 and does not count."""

    def forward(self, x: Float[Tensor, "B T D"], positions: Int[Tensor, "B T"] | None = None) -> Float[Tensor, "B D"]:
        """Pool along T."""
        raise NotImplementedError


def real(x: Tensor, positions: Tensor | None) -> Bool[Tensor, "B T 1"]:
    """Return a mask that is true where there is no padding."""
    if positions is None:
        return x.new_ones(*x.shape[:2], 1).bool()
    return (positions >= 0)[..., None]


class First(Pool):
    """y = x_1: the class token of BERT and ViT."""

    def forward(self, x: Float[Tensor, "B T D"], positions: Int[Tensor, "B T"] | None = None) -> Float[Tensor, "B D"]:
        """Return the first vector."""
        return x[:, 0]


class Last(Pool):
    """y = x_T, the last vector that is not padding, where a recurrence has seen everything."""

    def forward(self, x: Float[Tensor, "B T D"], positions: Int[Tensor, "B T"] | None = None) -> Float[Tensor, "B D"]:
        """Return the last real vector."""
        last = real(x, positions).sum(1, keepdim=True).clamp(min=1) - 1
        return x.take_along_dim(last, dim=1)[:, 0]


class Mean(Pool):
    """y = 1/T sum_t x_t: every vector counts the same."""

    def forward(self, x: Float[Tensor, "B T D"], positions: Int[Tensor, "B T"] | None = None) -> Float[Tensor, "B D"]:
        """Return the mean."""
        mask = real(x, positions)
        return (x * mask).sum(1) / mask.sum(1).clamp(min=1)


class Weighted(Pool):
    """y = sum_t a_t x_t, a = softmax_t(w.x_t): attention with one learned query (Hassani et al. 2021)."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.score = nn.Linear(dim, 1, bias=False)

    def forward(self, x: Float[Tensor, "B T D"], positions: Int[Tensor, "B T"] | None = None) -> Float[Tensor, "B D"]:
        """Return the weighted mean."""
        scores = self.score(x)
        weights = scores.masked_fill(~real(x, positions), torch.finfo(scores.dtype).min).softmax(1)
        return (weights * x).sum(1)


class PoolConfig(Config):
    """Base of the configs of pools."""

    def build(self, dim: int) -> Pool:
        """Build the pool for vectors of width `dim`."""
        raise NotImplementedError


@dataclass(frozen=True)
class FirstConfig(PoolConfig):
    """The first vector: the class token of BERT and ViT."""

    def build(self, dim: int) -> Pool:
        """Build the pool for vectors of width `dim`."""
        return First()


@dataclass(frozen=True)
class LastConfig(PoolConfig):
    """The last vector, where a recurrence has seen everything."""

    def build(self, dim: int) -> Pool:
        """Build the pool for vectors of width `dim`."""
        return Last()


@dataclass(frozen=True)
class MeanConfig(PoolConfig):
    """The mean of all vectors."""

    def build(self, dim: int) -> Pool:
        """Build the pool for vectors of width `dim`."""
        return Mean()


@dataclass(frozen=True)
class WeightedConfig(PoolConfig):
    """A learned weighted mean: attention with one query (Hassani et al. 2021)."""

    def build(self, dim: int) -> Pool:
        """Build the pool for vectors of width `dim`."""
        return Weighted(dim)


POOLS = Kinds(
    "pool", PoolConfig, {"first": FirstConfig, "last": LastConfig, "mean": MeanConfig, "weighted": WeightedConfig}
)
