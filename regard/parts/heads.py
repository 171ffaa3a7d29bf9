"""What are q, k and v, and how are the heads merged?

MultiHeads: multi-head (Vaswani et al. 2017), multi-query (Shazeer 2019) and grouped (Ainslie et al. 2023) by the
number of key heads; LatentHeads: keys and values from a small shared vector (MLA, DeepSeek-V2 2024); BareHeads: the
vectors themselves, as in the attention of recurrent seq2seq; AgentHeads: other queries and keys for tokens of the same
agent than for those of other agents (AgentFormer, Yuan et al. 2021).

`keep` computes what a cache stores of a token; `expand` computes keys and values from that.
"""

from dataclasses import dataclass, field, replace
from typing import Literal

import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor, nn

from regard.config import Config, Count, Kinds
from regard.errors import ConfigError, InputError
from regard.parts.attend import Terms
from regard.parts.cache import Kept
from regard.parts.linear import Linear, Product, Repackable, is_hooked, linears
from regard.parts.mask import Agents
from regard.parts.norm import NormConfig, RMSNormConfig
from regard.parts.position import Rotation

Sequence = Float[Tensor, "B T D"]
PerHead = Float[Tensor, "B H T E"]


class Heads(nn.Module):
    """How queries, keys and values are made from vectors, and heads are merged into vectors again."""

    heads: int  # of queries
    query_dim: int  # width of a query
    key_dim: int  # width of a key
    value_dim: int  # width of a value
    rope_dim: int  # width that rotary positions rotate

    def query(self, x: Sequence, rotate: Rotation) -> PerHead:
        """Compute the queries."""
        raise NotImplementedError

    def keep(self, x: Sequence, rotate: Rotation) -> Kept:
        """Compute what is kept of each token, per key head."""
        raise NotImplementedError

    def project(self, x: Sequence, rotate: Rotation) -> tuple[PerHead, Kept]:
        """Compute the queries, and what is kept, from the same vectors."""
        return self.query(x, rotate), self.keep(x, rotate)

    def expand(self, kept: Kept) -> tuple[Float[Tensor, "B _k S E"], Float[Tensor, "B K S G"]]:
        """Compute keys and values from what was kept."""
        keys, values = kept
        return keys, values

    def compare(
        self, query: Float[Tensor, "B _h T E"], key: Float[Tensor, "B _k S E"], terms: Terms
    ) -> tuple[PerHead, Float[Tensor, "B K S E"], Terms]:
        """Return the queries and keys to compare, and how; heads with several kinds of scores choose here."""
        return query, key, terms

    def merge(self, mixed: PerHead) -> Sequence:
        """Join the heads: concatenate, then project."""
        raise NotImplementedError


PROJECTIONS = ("to_query", "to_key", "to_value")


class MultiHeads(Heads, Repackable):
    """Q = XW_Q, K = XW_K, V = XW_V, split into heads; output concat(heads) W_O.

    Each of the `kv_heads` key heads serves a group of neighbouring query heads. The optional norms are applied to every
    query and key before the positions.
    """

    def __init__(
        self,
        dim: int,
        heads: int,
        kv_heads: int | None = None,
        head_dim: int | None = None,
        bias: Literal["no", "qkv", "output", "all"] = "no",
        query_norm: nn.Module | None = None,
        key_norm: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.heads, self.kv_heads = heads, kv_heads or heads
        self.head_dim = self.query_dim = self.key_dim = self.rope_dim = head_dim or dim // heads
        self.value_dim = self.head_dim
        self.to_query = Linear(dim, self.heads * self.head_dim, bias=bias in ("qkv", "all"))
        self.to_key = Linear(dim, self.kv_heads * self.head_dim, bias=bias in ("qkv", "all"))
        self.to_value = Linear(dim, self.kv_heads * self.head_dim, bias=bias in ("qkv", "all"))
        self.output = Linear(self.heads * self.head_dim, dim, bias=bias in ("output", "all"))
        self.query_norm = query_norm or nn.Identity()
        self.key_norm = key_norm or nn.Identity()

    @property
    def residual_outputs(self) -> list[Tensor]:
        """The matrix whose product is added to the residual stream (see `models/init.py`)."""
        return [self.output.weight]

    def query(self, x: Sequence, rotate: Rotation) -> PerHead:
        """Compute Q = XW_Q."""
        return rotate(self.query_norm(self.split(self.to_query(x))))

    def keep(self, x: Sequence, rotate: Rotation) -> Kept:
        """Compute K = XW_K and V = XW_V."""
        key, value = map(self.split, linears(x, self.to_key, self.to_value))
        return rotate(self.key_norm(key)), value

    def project(self, x: Sequence, rotate: Rotation) -> tuple[PerHead, Kept]:
        """Compute all three, by one product if W_Q, W_K and W_V are packed."""
        product = self.joined_product()
        if product is None:
            query, key, value = map(self.split, linears(x, self.to_query, self.to_key, self.to_value))
        else:
            joined = self.split(product(x))
            query, key, value = joined.split((self.heads, self.kv_heads, self.kv_heads), 1)
        return rotate(self.query_norm(query)), (rotate(self.key_norm(key)), value)

    def joined_product(self) -> Product | None:
        """Return the product that computes all three; None if there is none, or if the parts must be called themselves.

        That is so if one of them or of their weights was replaced after packing, or has hooks.
        """
        product = self.current_product()
        if product is None or not self.sources or torch.compiler.is_compiling():
            return product
        for part in map(self._modules.get, PROJECTIONS):
            if part is None or is_hooked(part):
                return None
        return product

    def split(self, vectors: Float[Tensor, "B T _D"]) -> PerHead:
        """Split into heads: B T (H E) -> B H T E. Not with einops, whose overhead is noticeable in decode steps."""
        return vectors.view(*vectors.shape[:2], -1, self.head_dim).transpose(1, 2)

    def merge(self, mixed: PerHead) -> Sequence:
        """Return concat(heads) W_O."""
        return self.output(mixed.transpose(1, 2).flatten(2))


class LatentHeads(Heads):
    """Multi-head latent attention: only a small vector c and one rotated key per token are kept.

    c = norm(W_c x), k_rotated = RoPE(W_k x), shared by all heads;
    k_h = [W_uk c ; k_rotated], v_h = W_uv c; q_h = [q_plain ; RoPE(q_rotated)], from x or from its own latent vector.
    """

    def __init__(
        self,
        dim: int,
        heads: int,
        rank: int,
        query_rank: int | None,
        plain: int,
        turned: int,
        value: int,
        norm: nn.Module,
        query_norm: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.heads, self.rank, self.plain = heads, rank, plain
        self.query_dim = self.key_dim = plain + turned
        self.rope_dim, self.value_dim = turned, value
        self.squeeze_query = Linear(dim, query_rank, bias=False) if query_rank else nn.Identity()
        self.query_norm = query_norm or nn.Identity()
        self.to_query = Linear(query_rank or dim, heads * self.query_dim, bias=False)
        self.squeeze = Linear(dim, rank + turned, bias=False)
        self.norm = norm
        self.to_key_value = Linear(rank, heads * (plain + value), bias=False)
        self.output = Linear(heads * value, dim, bias=False)

    @property
    def residual_outputs(self) -> list[Tensor]:
        """The matrix whose product is added to the residual stream (see `models/init.py`)."""
        return [self.output.weight]

    def query(self, x: Sequence, rotate: Rotation) -> PerHead:
        """Compute q_h = [plain part ; rotated part]."""
        queries = self.to_query(self.query_norm(self.squeeze_query(x)))
        queries = rearrange(queries, "B T (H E) -> B H T E", E=self.query_dim)
        plain, rotated = queries.split((self.plain, self.rope_dim), -1)
        return torch.cat((plain, rotate(rotated)), -1)

    def keep(self, x: Sequence, rotate: Rotation) -> Kept:
        """Compute c and the shared rotated key, as one head each."""
        latent, rotated = self.squeeze(x)[:, None].split((self.rank, self.rope_dim), -1)
        return self.norm(latent), rotate(rotated)

    def expand(self, kept: Kept) -> tuple[Float[Tensor, "B H S E"], Float[Tensor, "B H S G"]]:
        """Compute k_h = [W_uk c ; k_rotated] and v_h = W_uv c."""
        latent, rotated = kept
        both = rearrange(self.to_key_value(latent), "B 1 S (H E) -> B H S E", H=self.heads)
        plain, values = both.split((self.plain, self.value_dim), -1)
        return torch.cat((plain, rotated.expand(-1, self.heads, -1, -1)), -1), values

    def merge(self, mixed: PerHead) -> Sequence:
        """Return concat(heads) W_O."""
        return self.output(rearrange(mixed, "B H T E -> B T (H E)"))


class BareHeads(Heads):
    """Q = X, K = V = the memory, without parameters: y = sum_i a_i h_i."""

    def __init__(self, query_dim: int, key_dim: int) -> None:
        super().__init__()
        self.heads = 1
        self.query_dim = query_dim
        self.key_dim = self.value_dim = self.rope_dim = key_dim

    def query(self, x: Sequence, rotate: Rotation) -> PerHead:
        """Return X as one head."""
        return rotate(x[:, None])

    def keep(self, x: Sequence, rotate: Rotation) -> Kept:
        """Return the vectors themselves, as keys and as values."""
        return rotate(x[:, None]), x[:, None]

    def merge(self, mixed: PerHead) -> Sequence:
        """Return the one head."""
        return mixed[:, 0]


class AgentHeads(Heads):
    """Agent-aware attention: tokens of the same agent are compared by other projections than those of other agents.

    A_ij = q_i.k_j if i and j are of the same agent, else q'_i.k'_j, where Q = XW_Q, K = XW_K, Q' = XW'_Q, K' = XW'_K;
    V = XW_V; output concat(heads) W_O (Yuan et al. 2021, equations 5 to 7). The mask says which agent a token is of: it
    has to include `Agents`.

    The score of a pair is kept as that between agents, with the difference as its bias where the agent is the same, so
    that all kernels and everything that reads scores work as for other heads.
    """

    def __init__(self, dim: int, heads: int, head_dim: int, bias: bool = False) -> None:
        super().__init__()
        self.heads = heads
        self.query_dim = self.key_dim = self.value_dim = self.rope_dim = head_dim
        self.to_query = Linear(dim, heads * head_dim, bias=bias)
        self.to_key = Linear(dim, heads * head_dim, bias=bias)
        self.to_other_query = Linear(dim, heads * head_dim, bias=bias)
        self.to_other_key = Linear(dim, heads * head_dim, bias=bias)
        self.to_value = Linear(dim, heads * head_dim, bias=bias)
        self.output = Linear(heads * head_dim, dim, bias=bias)

    @property
    def residual_outputs(self) -> list[Tensor]:
        """The matrix whose product is added to the residual stream (see `models/init.py`)."""
        return [self.output.weight]

    def query(self, x: Sequence, rotate: Rotation) -> Float[Tensor, "B _h T E"]:
        """Compute Q and Q', as twice the number of heads."""
        return rotate(self.split(torch.cat(linears(x, self.to_query, self.to_other_query), -1)))

    def keep(self, x: Sequence, rotate: Rotation) -> Kept:
        """Compute K and K', as twice the number of heads, and V."""
        key, other, value = linears(x, self.to_key, self.to_other_key, self.to_value)
        return rotate(self.split(torch.cat((key, other), -1))), self.split(value)

    def compare(
        self, query: Float[Tensor, "B _h T E"], key: Float[Tensor, "B _k S E"], terms: Terms
    ) -> tuple[PerHead, Float[Tensor, "B K S E"], Terms]:
        """Return Q' and K', and the difference of the scores of Q and K as a bias of pairs of the same agent."""
        rules = () if terms.mask is None else terms.mask.rules()
        agents = next((rule for rule in rules if isinstance(rule, Agents)), None)
        if agents is None:
            raise InputError("agent-aware heads need to know the agent of each token; use them in a trajectory model")
        (own, other), (own_key, other_key) = query.chunk(2, 1), key.chunk(2, 1)
        if terms.score.is_dot and terms.score.cap is None:  # q.k - q'.k' is one product: (q, -q').(k, k')
            more = terms.score(torch.cat((own, -other), -1), torch.cat((own_key, other_key), -1))
        else:
            more = terms.score(own, own_key) - terms.score(other, other_key)
        pair = torch.where(agents.is_same()[:, None], more, 0.0)
        return other, other_key, terms._replace(pair=pair if terms.pair is None else terms.pair + pair)

    def split(self, vectors: Float[Tensor, "B T _D"]) -> Float[Tensor, "B _h T E"]:
        """Split into heads."""
        return rearrange(vectors, "B T (H E) -> B H T E", E=self.query_dim)

    def merge(self, mixed: PerHead) -> Sequence:
        """Return concat(heads) W_O."""
        return self.output(rearrange(mixed, "B H T E -> B T (H E)"))

    def flops(self, tokens: int, keys: int) -> int:
        """Count the two comparisons of queries with keys in `compare`; attention counts its own."""
        return tokens * keys * self.heads * 4 * self.key_dim


class HeadsConfig(Config):
    """Base of the configs of heads."""

    def build(self, dim: int, memory_dim: int) -> Heads:
        """Build the heads for vectors of width `dim` that attend to vectors of width `memory_dim`."""
        raise NotImplementedError


@dataclass(frozen=True)
class MultiHeadsConfig(HeadsConfig):
    """Projected heads: multi-head, grouped-query and multi-query attention."""

    heads: Count
    """Number of query heads (Vaswani et al. 2017)."""
    kv_heads: Count | None = None
    """Number of key and value heads, each shared by a group of query heads (Ainslie et al. 2023); 1 is multi-query
    attention (Shazeer 2019). Absent: as many as `heads`."""
    head_dim: Count | None = None
    """Width of a head; absent: the width of the model divided by `heads`."""
    bias: Literal["no", "qkv", "output", "all"] = "no"
    """Which projections have a bias: none, those of queries, keys and values, that of the output, or all."""
    qk_norm: NormConfig | None = None
    """Norm of queries and keys (Dehghani et al. 2023)."""

    def validate(self) -> None:
        """Check the rules between values."""
        if self.kv_heads is not None and self.heads % self.kv_heads:
            raise ConfigError(f"heads={self.heads} must be a multiple of kv_heads={self.kv_heads}")

    def resolved(self, dim: int) -> "MultiHeadsConfig":
        """Return this config with the defaults for a model of width `dim` written out."""
        if self.head_dim is None and dim % self.heads:
            raise ConfigError(f"dim={dim} must be a multiple of heads={self.heads}; or give head_dim")
        return replace(self, kv_heads=self.kv_heads or self.heads, head_dim=self.head_dim or dim // self.heads)

    def build(self, dim: int, memory_dim: int) -> Heads:
        """Build the heads for vectors of width `dim`."""
        if memory_dim != dim:
            raise ConfigError(f"multi-head attention needs a memory of width {dim}, not {memory_dim}")
        sizes = self.resolved(dim)
        assert sizes.head_dim is not None
        norms = (None, None) if self.qk_norm is None else [self.qk_norm.build(sizes.head_dim) for _ in range(2)]
        return MultiHeads(dim, sizes.heads, sizes.kv_heads, sizes.head_dim, self.bias, *norms)


@dataclass(frozen=True)
class LatentHeadsConfig(HeadsConfig):
    """Multi-head latent attention (DeepSeek-V2, 2024): keys and values are computed from one small latent vector."""

    heads: Count
    """Number of heads."""
    rank: Count
    """Width of the latent vector from which keys and values are made, and which the cache keeps."""
    plain: Count
    """Width of the part of a key that carries no position."""
    turned: Count
    """Width of the part of a key that is rotated to its position; it is shared by all heads."""
    value: Count
    """Width of a value."""
    query_rank: Count | None = None
    """Width of a latent vector for queries; absent: queries are projected directly."""
    norm: NormConfig = field(default_factory=RMSNormConfig)
    """Norm of the latent vectors."""

    def build(self, dim: int, memory_dim: int) -> Heads:
        """Build the heads for vectors of width `dim`."""
        if memory_dim != dim:
            raise ConfigError(f"latent attention needs a memory of width {dim}, not {memory_dim}")
        query_norm = None if self.query_rank is None else self.norm.build(self.query_rank)
        sizes = (self.rank, self.query_rank, self.plain, self.turned, self.value)
        return LatentHeads(dim, self.heads, *sizes, self.norm.build(self.rank), query_norm)


@dataclass(frozen=True)
class BareHeadsConfig(HeadsConfig):
    """No projections: the vectors are queries, keys and values themselves."""

    def build(self, dim: int, memory_dim: int) -> Heads:
        """Build the head for queries of width `dim` and a memory of width `memory_dim`."""
        return BareHeads(dim, memory_dim)


@dataclass(frozen=True)
class AgentHeadsConfig(HeadsConfig):
    """Agent-aware heads (AgentFormer, Yuan et al. 2021): other queries and keys for the same agent than for others."""

    heads: Count
    """Number of heads."""
    head_dim: Count | None = None
    """Width of a head; absent: the width of the model divided by `heads`."""
    bias: bool = False
    """Whether the projections have a bias."""

    def build(self, dim: int, memory_dim: int) -> Heads:
        """Build the heads for vectors of width `dim`."""
        if memory_dim != dim:
            raise ConfigError(f"agent-aware attention needs a memory of width {dim}, not {memory_dim}")
        if self.head_dim is None and dim % self.heads:
            raise ConfigError(f"dim={dim} must be a multiple of heads={self.heads}; or give head_dim")
        return AgentHeads(dim, self.heads, self.head_dim or dim // self.heads, self.bias)


HEADS = Kinds(
    "heads",
    HeadsConfig,
    {"multi": MultiHeadsConfig, "latent": LatentHeadsConfig, "bare": BareHeadsConfig, "agent": AgentHeadsConfig},
)
