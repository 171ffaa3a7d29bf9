"""Scores: how similar are a query and a key?

Dot product (Luong et al. 2015), scaled (Vaswani et al. 2017), soft-capped (Gemma 2, 2024), additive (Bahdanau et al.
2015), bilinear or multiplicative (Luong et al. 2015), reduced rank (as the heads of Vaswani et al. 2017, here as
a score of its own).

Each score prepares queries and keys one by one, then compares all pairs. Except for the additive score the comparison
is a dot product, so fused kernels can be used.
"""

from dataclasses import dataclass
from math import sqrt

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.config import Config, Count, Kinds, Positive
from regard.errors import ConfigError

Vectors = Float[Tensor, "B _H _T _E"]


class Score(nn.Module):
    """A score that ends in scale * q.k, capped softly at `cap` if there is one: cap * tanh(score / cap)."""

    is_dot = True

    def __init__(self, scale: float, cap: float | None = None) -> None:
        super().__init__()
        self.scale = scale
        self.cap = cap

    def query(self, query: Vectors) -> Vectors:
        """Prepare the queries."""
        return query

    def key(self, key: Vectors) -> Vectors:
        """Prepare the keys."""
        return key

    def forward(self, query: Float[Tensor, "B H T E"], key: Float[Tensor, "B H S E"]) -> Float[Tensor, "B H T S"]:
        """Compare all prepared queries with all prepared keys."""
        return self.soften(query @ key.transpose(-1, -2) * self.scale)

    def pair_flops(self, key_dim: int) -> int | None:
        """Count the FLOPs of comparing one query with one key of width `key_dim`; None: not known."""
        return 2 * key_dim if self.is_dot else None

    def soften(self, score: Tensor) -> Tensor:
        """Apply the soft cap."""
        return score if self.cap is None else self.cap * torch.tanh(score / self.cap)


class Dot(Score):
    """e = scale * q.k, with scale 1/sqrt(E) unless given."""

    def __init__(self, dim: int, scale: float | None = None, cap: float | None = None) -> None:
        super().__init__(1 / sqrt(dim) if scale is None else scale, cap)


class Cosine(Score):
    """e = cos(q, k): the dot product of vectors scaled to unit length; it has no parameters."""

    def __init__(self) -> None:
        super().__init__(scale=1.0)

    def query(self, query: Vectors) -> Vectors:
        """Return q / |q|."""
        return nn.functional.normalize(query, dim=-1)

    def key(self, key: Vectors) -> Vectors:
        """Return k / |k|."""
        return nn.functional.normalize(key, dim=-1)


class Bilinear(Score):
    """e = q^T W k."""

    def __init__(self, query_dim: int, key_dim: int) -> None:
        super().__init__(scale=1.0)
        self.weight = nn.Linear(query_dim, key_dim, bias=False)

    def query(self, query: Vectors) -> Vectors:
        """Return q^T W."""
        return self.weight(query)


class ReducedRank(Score):
    """e = (U q).(V k): a bilinear form whose matrix U^T V has a low rank."""

    def __init__(self, query_dim: int, key_dim: int, rank: int) -> None:
        super().__init__(scale=1.0)
        self.reduce_query = nn.Linear(query_dim, rank, bias=False)
        self.reduce_key = nn.Linear(key_dim, rank, bias=False)

    def query(self, query: Vectors) -> Vectors:
        """Return U q."""
        return self.reduce_query(query)

    def key(self, key: Vectors) -> Vectors:
        """Return V k."""
        return self.reduce_key(key)

    def pair_flops(self, key_dim: int) -> int:
        """Count (U q).(V k)."""
        return 2 * self.reduce_key.out_features


class Additive(Score):
    """e = v . tanh(W q + U k + b): a small network that sees both."""

    is_dot = False

    def __init__(self, query_dim: int, key_dim: int, hidden: int) -> None:
        super().__init__(scale=1.0)
        self.from_query = nn.Linear(query_dim, hidden, bias=False)
        self.from_key = nn.Linear(key_dim, hidden)
        self.energy = nn.Linear(hidden, 1, bias=False)

    def query(self, query: Vectors) -> Vectors:
        """Return W q."""
        return self.from_query(query)

    def key(self, key: Vectors) -> Vectors:
        """Return U k + b: the same for every query, so computed once."""
        return self.from_key(key)

    def forward(self, query: Float[Tensor, "B H T F"], key: Float[Tensor, "B H S F"]) -> Float[Tensor, "B H T S"]:
        """Compare all prepared queries with all prepared keys."""
        return self.energy(torch.tanh(query[:, :, :, None] + key[:, :, None])).squeeze(-1)

    def pair_flops(self, key_dim: int) -> int:
        """Count v . tanh(...)."""
        return 2 * self.energy.in_features

    def tokens_through(self, child: nn.Module, tokens: int, keys: int) -> int:
        """Return how many vectors pass through a child: v is counted with the pairs."""
        return 0 if child is self.energy else tokens


class ScoreConfig(Config):
    """Base of the configs of scores."""

    def build(self, query_dim: int, key_dim: int) -> Score:
        """Build the score for queries and keys of these widths."""
        raise NotImplementedError


@dataclass(frozen=True)
class DotConfig(ScoreConfig):
    """e = scale * q.k: the scaled dot product (Vaswani et al. 2017)."""

    scale: float | None = None
    """Factor of the dot product; absent: 1/sqrt(width) (Vaswani et al. 2017); 1.0 is the unscaled product (Luong et
    al. 2015)."""
    cap: Positive | None = None
    """Soft limit of the scores: cap * tanh(score / cap) (Gemma 2, 2024)."""

    def build(self, query_dim: int, key_dim: int) -> Score:
        """Build the score for queries and keys of one width."""
        _require_equal_widths(query_dim, key_dim)
        return Dot(query_dim, self.scale, self.cap)


@dataclass(frozen=True)
class CosineConfig(ScoreConfig):
    """e = cos(q, k): the cosine of the angle between query and key."""

    def build(self, query_dim: int, key_dim: int) -> Score:
        """Build the score for queries and keys of one width."""
        _require_equal_widths(query_dim, key_dim)
        return Cosine()


def _require_equal_widths(query_dim: int, key_dim: int) -> None:
    if query_dim != key_dim:
        rule = f"queries of width {query_dim} and keys of width {key_dim} have no dot product"
        raise ConfigError(f"{rule}; use a bilinear, reduced-rank or additive score")


@dataclass(frozen=True)
class BilinearConfig(ScoreConfig):
    """e = q^T W k: bilinear or multiplicative (Luong et al. 2015)."""

    def build(self, query_dim: int, key_dim: int) -> Score:
        """Build the score."""
        return Bilinear(query_dim, key_dim)


@dataclass(frozen=True)
class ReducedRankConfig(ScoreConfig):
    """e = (U q).(V k): bilinear of low rank."""

    rank: Count | None = None
    """Width in which queries and keys are compared; absent: half the width of the query."""

    def build(self, query_dim: int, key_dim: int) -> Score:
        """Build the score."""
        return ReducedRank(query_dim, key_dim, self.rank or max(query_dim // 2, 1))


@dataclass(frozen=True)
class AdditiveConfig(ScoreConfig):
    """e = v.tanh(W q + U k + b): a small network (Bahdanau et al. 2015)."""

    hidden: Count | None = None
    """Width of the hidden layer; absent: that of the query."""

    def build(self, query_dim: int, key_dim: int) -> Score:
        """Build the score."""
        return Additive(query_dim, key_dim, self.hidden or query_dim)


SCORES = Kinds(
    "score",
    ScoreConfig,
    {
        "dot": DotConfig,
        "cosine": CosineConfig,
        "bilinear": BilinearConfig,
        "reduced-rank": ReducedRankConfig,
        "additive": AdditiveConfig,
    },
)
