"""What stands on top of a stack: logits over the vocabulary, classes, or one vector of the whole input."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.config import Config, Count, Kinds, Positive, Rate
from regard.errors import ConfigError
from regard.parts.embed import Tokens
from regard.parts.feedforward import ACTIVATIONS, Activation
from regard.parts.linear import Product
from regard.parts.norm import NormConfig
from regard.parts.pool import FirstConfig, Pool, PoolConfig


class Transform(nn.Module):
    """norm(g(Wx + b)): BERT puts one between the stack and its heads."""

    def __init__(self, dim: int, activation: Activation, norm: nn.Module | None = None) -> None:
        super().__init__()
        self.dense = nn.Linear(dim, dim)
        self.activation = ACTIVATIONS[activation]
        self.norm = norm or nn.Identity()

    def forward(self, x: Float[Tensor, "*rows D"]) -> Float[Tensor, "*rows D"]:
        """norm(g(Wx + b))."""
        return self.norm(self.activation(self.dense(x)))


class Logits(nn.Module):
    """scale * W_u x + b over the vocabulary, softly capped if a cap is given. Tied: W_u is the token table itself."""

    def __init__(
        self,
        weight: nn.Linear | None,
        bias: int | None,
        cap: float | None,
        transform: nn.Module | None,
        scale: float = 1.0,
    ) -> None:
        super().__init__()
        self.unembed = weight
        self.bias = None if bias is None else nn.Parameter(torch.zeros(bias))
        self.cap = cap
        self.transform = transform or nn.Identity()
        self.scale = scale
        self.product: Product | None = None  # W_u x, where W_u is kept in another form

    def matrix(self, table: Float[Tensor, "V _token"]) -> Float[Tensor, "V D"]:
        """W_u, which is the embedding's `table` if the head is tied."""
        return table if self.unembed is None else self.unembed.weight

    def widen(self, table: Tensor, of: int) -> None:
        """Make W_u part of a matrix whose rows are a multiple of `of`: other numbers take a GPU several times as long.

        The parameter keeps its name and value; whoever moves the model undoes it.
        """
        weight = self.matrix(table)
        wide = F.pad(weight.detach(), (0, 0, 0, -len(weight) % of))
        weight.data = wide[: len(weight)]
        self.product = partial(first_rows, wide, len(weight))

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "Logits":
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self.product = None
        return self

    def forward(self, x: Float[Tensor, "*rows D"], table: Float[Tensor, "V _token"]) -> Float[Tensor, "*rows V"]:
        """Score every word of the vocabulary; `table` is the embedding, used if the head is tied."""
        x = self.transform(x)
        x = x if self.scale == 1.0 else self.scale * x
        if self.product is None:
            logits = F.linear(x, self.matrix(table), self.bias)
        else:
            logits = self.product(x)
            logits = logits if self.bias is None else logits + self.bias
        return logits if self.cap is None else self.cap * torch.tanh(logits / self.cap)


def first_rows(weight: Float[Tensor, "_wide D"], rows: int, x: Float[Tensor, "*rows D"]) -> Float[Tensor, "*rows V"]:
    """Wx for the first `rows` of W."""
    return F.linear(x, weight)[..., :rows]


class Pooled(nn.Module):
    """One vector of a row: pool, then a transform if there is one."""

    def __init__(self, pool: Pool, transform: nn.Module | None) -> None:
        super().__init__()
        self.pool = pool
        self.transform = transform or nn.Identity()

    def forward(self, x: Float[Tensor, "B T D"], positions: Int[Tensor, "B T"] | None = None) -> Float[Tensor, "B D"]:
        """Pool along T."""
        return self.transform(self.pool(x, positions))


class Classes(nn.Module):
    """A score for each class: W y + b of the pooled vector y."""

    def __init__(self, pooled: Pooled, classify: nn.Linear, dropout: float = 0.0) -> None:
        super().__init__()
        self.pooled = pooled
        self.dropout = nn.Dropout(dropout)
        self.classify = classify

    def forward(
        self, x: Float[Tensor, "B T D"], positions: Int[Tensor, "B T"] | None = None
    ) -> Float[Tensor, "B classes"]:
        """Pool, then classify."""
        return self.classify(self.dropout(self.pooled(x, positions)))


class HeadConfig(Config):
    """Base of the configs of heads of models."""


@dataclass(frozen=True)
class LogitsConfig(HeadConfig):
    """Logits over the vocabulary; `transform` names the activation of a dense layer before them.

    `scale` divides them by sqrt(dim), which T5 does with a tied table, that being made for vectors as long as tokens.
    """

    tied: bool = True
    bias: bool = False
    cap: Positive | None = None
    transform: Activation | None = None
    norm: NormConfig | None = None
    scale: bool = False

    def build(self, dim: int, tokens: Tokens) -> Logits:
        """Make it for width `dim` and the vocabulary of `tokens`."""
        vocabulary, token_dim = tokens.table.num_embeddings, tokens.table.embedding_dim
        if self.tied and token_dim != dim:
            raise ConfigError(f"tied=true needs token vectors as wide as dim={dim}, but they have {token_dim}")
        transform = None
        if self.transform is not None:
            transform = Transform(dim, self.transform, None if self.norm is None else self.norm.build(dim))
        return Logits(
            None if self.tied else nn.Linear(dim, vocabulary, bias=False),
            vocabulary if self.bias else None,
            self.cap,
            transform,
            dim**-0.5 if self.scale else 1.0,
        )


@dataclass(frozen=True)
class PooledHeadConfig(HeadConfig):
    """Base of the configs of heads that read one vector of the whole input."""

    pool: PoolConfig = field(default_factory=FirstConfig)
    transform: Activation | None = None

    def build(self, dim: int) -> Pooled | Classes:
        """Build the head for width `dim`."""
        raise NotImplementedError


@dataclass(frozen=True)
class VectorConfig(PooledHeadConfig):
    """One vector of the whole input; `transform` names the activation of a dense layer after pooling."""

    def build(self, dim: int) -> Pooled:
        """Make it for width `dim`."""
        return Pooled(self.pool.build(dim), None if self.transform is None else Transform(dim, self.transform))


@dataclass(frozen=True)
class ClassesConfig(VectorConfig):
    """A score for each of `classes`."""

    classes: Count = 2
    dropout: Rate = 0.0
    bias: bool = True

    def build(self, dim: int) -> Classes:  # type: ignore[override]
        """Make it for width `dim`."""
        return Classes(super().build(dim), nn.Linear(dim, self.classes, bias=self.bias), self.dropout)


POOLED_HEADS = Kinds("pooled head", PooledHeadConfig, {"vector": VectorConfig, "classes": ClassesConfig})
HEADS = Kinds("head", HeadConfig, {"tokens": LogitsConfig, **POOLED_HEADS})
