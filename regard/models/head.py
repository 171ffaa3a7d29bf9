"""The top of a model: logits over the vocabulary, scores of classes, or one vector of the whole input."""

from dataclasses import dataclass, field

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.config import Config, Count, Kinds, Positive, Rate
from regard.errors import ConfigError
from regard.parts.embed import Tokens
from regard.parts.feedforward import ACTIVATIONS, Activation
from regard.parts.linear import Repackable
from regard.parts.norm import NormConfig
from regard.parts.onednn import affine
from regard.parts.pool import First, FirstConfig, Mean, Pool, PoolConfig
from regard.parts.region import region


class Transform(nn.Module):
    """norm(g(Wx + b)): BERT puts one between the stack and its heads."""

    def __init__(self, dim: int, activation: Activation, norm: nn.Module | None = None) -> None:
        super().__init__()
        self.dense = nn.Linear(dim, dim)
        self.activation = ACTIVATIONS[activation]
        self.norm = norm or nn.Identity()

    def forward(self, x: Float[Tensor, "*rows D"]) -> Float[Tensor, "*rows D"]:
        """Return norm(g(Wx + b))."""
        return self.norm(self.activation(self.dense(x)))


class Logits(Repackable):
    """scale * W_u x + b over the vocabulary, softly capped if a cap is given. Tied: W_u is the token table itself."""

    classes = None

    def __init__(
        self,
        dim: int,
        vocabulary: int,
        tied: bool = True,
        bias: bool = False,
        cap: float | None = None,
        transform: nn.Module | None = None,
        scale: float = 1.0,
    ) -> None:
        super().__init__()
        self.dim, self.vocabulary, self.tied = dim, vocabulary, tied
        self.unembed = None if tied else nn.Linear(dim, vocabulary, bias=False)
        self.bias = nn.Parameter(torch.zeros(vocabulary)) if bias else None
        self.cap = cap
        self.transform = transform or nn.Identity()
        self.scale = scale

    def matrix(self, table: Float[Tensor, "V _token"]) -> Float[Tensor, "V D"]:
        """Return W_u: the embedding's `table` if the head is tied."""
        return table if self.unembed is None else self.unembed.weight

    @region
    def forward(self, x: Float[Tensor, "*rows D"], table: Float[Tensor, "V _token"]) -> Float[Tensor, "*rows V"]:
        """Score every token of the vocabulary; `table` is the embedding, used if the head is tied."""
        x, matrix = self.prepare(x), self.matrix(table)
        product = self.current_product()
        logits = affine(x, matrix, self.bias) if product is None else product(x)
        return logits if self.cap is None else self.cap * torch.tanh(logits / self.cap)

    def prepare(self, x: Float[Tensor, "*rows D"]) -> Float[Tensor, "*rows D"]:
        """Return what W_u multiplies: scale * transform(x)."""
        x = self.transform(x)
        return x if self.scale == 1.0 else self.scale * x

    def vector(self, x: Float[Tensor, "B T D"], positions: Int[Tensor, "B T"] | None = None) -> Float[Tensor, "B D"]:
        """Return one vector of each row: the mean, since this head does not pool."""
        return Mean()(x, positions)

    def flops(self, tokens: int, keys: int) -> int:
        """Count W_u x if the matrix is the embedding's; otherwise it is a part of its own."""
        return 2 * tokens * self.vocabulary * self.dim if self.tied else 0

    def summary(self) -> str:
        """Return that the matrix is the embedding's, if it is."""
        return "tied to embed" if self.tied else ""


class Pooled(nn.Module):
    """One vector of a row: pool, then a transform if there is one."""

    classes = None

    def __init__(self, pool: Pool, transform: nn.Module | None) -> None:
        super().__init__()
        self.pool = pool
        self.transform = transform or nn.Identity()

    def forward(self, x: Float[Tensor, "B T D"], positions: Int[Tensor, "B T"] | None = None) -> Float[Tensor, "B D"]:
        """Pool along T."""
        return self.transform(self.pool(x, positions))

    def vector(self, x: Float[Tensor, "B T D"], positions: Int[Tensor, "B T"] | None = None) -> Float[Tensor, "B D"]:
        """Return the pooled vector of each row."""
        return self(x, positions)

    @property
    def reads(self) -> int | None:
        """How many vectors of a row it reads, the first ones; None: all of them."""
        return 1 if type(self.pool) is First else None

    def tokens_through(self, child: nn.Module, tokens: int, keys: int) -> int:
        """Return how many vectors pass through a child: the transform gets one for each row."""
        return 1 if child is self.transform else tokens


class Classes(nn.Module):
    """A score for each class: W y + b of the pooled vector y."""

    def __init__(self, pooled: Pooled, classify: nn.Linear, dropout: float = 0.0) -> None:
        super().__init__()
        self.pooled = pooled
        self.dropout = nn.Dropout(dropout)
        self.classify = classify

    @property
    def classes(self) -> int:
        """The number of classes."""
        return self.classify.out_features

    @property
    def reads(self) -> int | None:
        """How many vectors of a row it reads, the first ones; None: all of them."""
        return self.pooled.reads

    def forward(
        self, x: Float[Tensor, "B T D"], positions: Int[Tensor, "B T"] | None = None
    ) -> Float[Tensor, "B classes"]:
        """Pool, then classify."""
        return self.classify(self.dropout(self.pooled(x, positions)))

    def vector(self, x: Float[Tensor, "B T D"], positions: Int[Tensor, "B T"] | None = None) -> Float[Tensor, "B D"]:
        """Return the pooled vector of each row."""
        return self.pooled(x, positions)

    def tokens_through(self, child: nn.Module, tokens: int, keys: int) -> int:
        """Return how many vectors pass through a child: the classes are scored once for each row."""
        return 1 if child is self.classify else tokens


class HeadConfig(Config):
    """Base of the configs of model heads."""


@dataclass(frozen=True)
class LogitsConfig(HeadConfig):
    """Logits over the vocabulary; `transform` names the activation of a dense layer before them.

    `scale` divides by sqrt(dim), as T5 does, whose tied token vectors have about that length.
    """

    tied: bool = True
    """Whether the output matrix is the table of token vectors (Press, Wolf 2017)."""
    bias: bool = False
    """Whether every token has a bias."""
    cap: Positive | None = None
    """Soft limit of the logits: cap * tanh(logit / cap)."""
    transform: Activation | None = None
    """Activation of a dense layer before the logits, as BERT has; absent: no such layer."""
    norm: NormConfig | None = None
    """Norm after that dense layer."""
    scale: bool = False
    """Whether logits are divided by sqrt(dim), as T5 does with a tied table."""

    def build(self, dim: int, tokens: Tokens) -> Logits:
        """Build the head for width `dim` and the vocabulary of `tokens`."""
        vocabulary, token_dim = tokens.table.num_embeddings, tokens.table.embedding_dim
        if self.tied and token_dim != dim:
            raise ConfigError(f"tied=true needs token vectors as wide as dim={dim}, but they have {token_dim}")
        transform = None
        if self.transform is not None:
            transform = Transform(dim, self.transform, None if self.norm is None else self.norm.build(dim))
        scale = dim**-0.5 if self.scale else 1.0
        return Logits(dim, vocabulary, self.tied, self.bias, self.cap, transform, scale)


@dataclass(frozen=True)
class PooledHeadConfig(HeadConfig):
    """Base of the configs of heads that read one vector of the whole input."""

    pool: PoolConfig = field(default_factory=FirstConfig)
    """How the vectors of all tokens become one."""
    transform: Activation | None = None
    """Activation of a dense layer after pooling; absent: no such layer."""

    def build(self, dim: int) -> Pooled | Classes:
        """Build the head for width `dim`."""
        raise NotImplementedError


@dataclass(frozen=True)
class VectorConfig(PooledHeadConfig):
    """One vector of the whole input; `transform` names the activation of a dense layer after pooling."""

    def build(self, dim: int) -> Pooled:
        """Build the head for width `dim`."""
        return Pooled(self.pool.build(dim), None if self.transform is None else Transform(dim, self.transform))


@dataclass(frozen=True)
class ClassesConfig(VectorConfig):
    """A score for each of `classes`."""

    classes: Count = 2
    """Number of classes."""
    dropout: Rate = 0.0
    """Share of the features that training sets to zero before the classifier."""
    bias: bool = True
    """Whether every class has a bias."""

    def build(self, dim: int) -> Classes:  # type: ignore[override]
        """Build the head for width `dim`."""
        return Classes(super().build(dim), nn.Linear(dim, self.classes, bias=self.bias), self.dropout)


POOLED_HEADS = Kinds("pooled head", PooledHeadConfig, {"vector": VectorConfig, "classes": ClassesConfig})
HEADS = Kinds("head", HeadConfig, {"tokens": LogitsConfig}, POOLED_HEADS)
