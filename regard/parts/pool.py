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


class Max(Pool):
    """y_d = max_t x_td: the largest value of each feature."""

    def forward(self, x: Float[Tensor, "B T D"], positions: Int[Tensor, "B T"] | None = None) -> Float[Tensor, "B D"]:
        """Return the maximum."""
        return x.masked_fill(~real(x, positions), torch.finfo(x.dtype).min).amax(1)


class MeanSqrt(Pool):
    """y = 1/sqrt(T) sum_t x_t: longer texts get longer vectors (Reimers, Gurevych 2019)."""

    def forward(self, x: Float[Tensor, "B T D"], positions: Int[Tensor, "B T"] | None = None) -> Float[Tensor, "B D"]:
        """Return the scaled sum."""
        mask = real(x, positions)
        return (x * mask).sum(1) / mask.sum(1).clamp(min=1).to(x.dtype).sqrt()


class PositionWeighted(Pool):
    """y = sum_t t x_t / sum_t t: later vectors count more, since they have seen more (SGPT, Muennighoff 2022)."""

    def forward(self, x: Float[Tensor, "B T D"], positions: Int[Tensor, "B T"] | None = None) -> Float[Tensor, "B D"]:
        """Return the weighted mean."""
        weights = real(x, positions).cumsum(1) * real(x, positions)
        return (x * weights).sum(1) / weights.sum(1).clamp(min=1)


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
class MaxConfig(PoolConfig):
    """The largest value of each feature."""

    def build(self, dim: int) -> Pool:
        """Build the pool for vectors of width `dim`."""
        return Max()


@dataclass(frozen=True)
class MeanSqrtConfig(PoolConfig):
    """The sum of all vectors, divided by the square root of their number (Reimers, Gurevych 2019)."""

    def build(self, dim: int) -> Pool:
        """Build the pool for vectors of width `dim`."""
        return MeanSqrt()


@dataclass(frozen=True)
class PositionWeightedConfig(PoolConfig):
    """A mean in which the t-th vector counts t times (SGPT, Muennighoff 2022)."""

    def build(self, dim: int) -> Pool:
        """Build the pool for vectors of width `dim`."""
        return PositionWeighted()


@dataclass(frozen=True)
class WeightedConfig(PoolConfig):
    """A learned weighted mean: attention with one query (Hassani et al. 2021)."""

    def build(self, dim: int) -> Pool:
        """Build the pool for vectors of width `dim`."""
        return Weighted(dim)


FIXED_POOLS: dict[str, type[PoolConfig]] = {  # without weights, so they can be chosen for any trained model
    "first": FirstConfig,
    "last": LastConfig,
    "mean": MeanConfig,
    "max": MaxConfig,
    "mean-sqrt": MeanSqrtConfig,
    "position-weighted": PositionWeightedConfig,
}
POOLS = Kinds("pool", PoolConfig, {**FIXED_POOLS, "weighted": WeightedConfig})
