"""Attention: one class for self, cross, causal, grouped and windowed (Bahdanau et al. 2015; Vaswani et al. 2017).

Five questions, five answers. What are q, k, v? `heads`. Where is a token? `position`. How similar are two? `score`. Who
may look at whom? `mask`. What is remembered? `state`. With a `memory` it is cross-attention, without one
self-attention.
"""

from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.config import Count, Rate
from regard.errors import ConfigError, InputError, at
from regard.parts.attend import Terms, share_blocks
from regard.parts.cache import Cache, CacheView, Kept, Memo, Uncached, View, memoize
from regard.parts.heads import Heads, HeadsConfig
from regard.parts.linear import Linear
from regard.parts.mask import MaskConfig, Rule, Window, explicit_positions
from regard.parts.mixer import Mixer, MixerConfig
from regard.parts.position import Relative, RelativeConfig, RopeConfig, Rotation, identity
from regard.parts.score import DotConfig, Score, ScoreConfig
from regard.parts.state import Memory
from regard.parts.watch import Watchable


class Gate(nn.Module):
    """sigmoid(W x + b) for every feature of every head (Jumper et al. 2021, supplement, Algorithm 7)."""

    def __init__(self, dim: int, heads: int, head_dim: int) -> None:
        super().__init__()
        self.heads = heads
        self.linear = Linear(dim, heads * head_dim)

    def forward(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B H T E"]:
        """Return the factors of the heads' outputs."""
        return torch.sigmoid(self.linear(x)).unflatten(2, (self.heads, -1)).transpose(1, 2)


class Attention(Watchable, Mixer):
    """Y = softmax(score(Q, K)) V, then the heads are merged; with a `gate`, first multiplied by sigmoid(W_g x + b_g).

    A `window` narrows every mask to keys less than that many positions away, and turns the cache into a ring. A `rule`
    is added to every mask.
    """

    follows_documents = True
    uses_memo = True

    def __init__(
        self,
        heads: Heads,
        score: Score,
        position: Relative | None = None,
        window: int | None = None,
        dropout: float = 0.0,
        rule: Rule | None = None,
        gate: Gate | None = None,
    ) -> None:
        super().__init__()
        self.heads = heads
        self.score = score
        self.position = position or Relative()
        self.window = window
        self.dropout = dropout
        self.rule = rule
        self.gate = gate
        self.pattern = f"window {window}, rule {rule}"  # attentions with the same one have the same mask

    def forward(
        self,
        x: Float[Tensor, "B T D"],
        *,
        memory: Float[Tensor, "B S M"] | None = None,
        mask: Rule | None = None,
        positions: Int[Tensor, "B T"] | None = None,
        memory_positions: Int[Tensor, "B S"] | None = None,
        state: CacheView | Memory | None = None,
        memo: Memo | None = None,
        pair: Float[Tensor, "_b H T S"] | None = None,
        first: int | None = None,
    ) -> Float[Tensor, "B _T _D"]:
        """Attend from x to itself, to `memory`, or to the tokens in `state`; from the `first` tokens only, if given.

        The view of a cache has the mask and the positions of its step; the arguments are ignored then. Attentions with
        the same mask and positions may share a `memo`. `pair` is added to the scores.
        """
        if memory is not None:
            if state is not None:
                raise InputError("attention takes a memory or a state, not both; leave one of them out")
            state = self.remember(memory, memory_positions)
        if isinstance(state, Memory):  # cross-attention: keys and values were computed once
            query = self.heads.query(x, self.rotation(x, positions))
            view = state.view(self.narrow(mask), positions, memo)
            key, value = view.kept
        elif first is not None:  # all tokens are keys, but few are queries
            view = Uncached(self.narrow(mask), positions).extend(self.heads.keep(x, self.rotation(x, positions)))
            x, positions = x[:, :first], None if positions is None else positions[:, :first]
            query, view = self.heads.query(x, self.rotation(x, positions)), view._replace(query_positions=positions)
            key, value = self.expand(view.kept)
        else:  # self-attention: project, then write to the cache
            cache = state or Uncached(self.narrow(mask), positions, memo)
            query, kept = self.heads.project(x, self.rotation(x, cache.positions, cache.memo))
            view = cache.extend(kept)
            key, value = self.expand(view.kept)
        query = view.fold(self.score.query(query))
        terms = self.terms(view)._replace(pair=pair, blocks=None if memo is None else memo.get(self.pattern))
        query, key, terms = self.heads.compare(query, key, terms)
        mixed = view.unfold(self.attend(query, key, value, terms, view.memo))
        return self.heads.merge(mixed if self.gate is None else self.gate(x) * mixed)

    def share(self, memo: Memo, x: Float[Tensor, "B T D"], mask: Rule | None, positions: Tensor | None) -> None:
        """Compute what this and other layers of a pass need of its mask, for the memo that they share."""
        if self.pattern not in memo:
            blocks = share_blocks(x, self.terms(Uncached(self.narrow(mask), positions).extend(())))
            if blocks is not None:
                memo[self.pattern] = blocks

    def remember(self, memory: Float[Tensor, "B S M"], positions: Int[Tensor, "B S"] | None) -> Memory:
        """Compute keys and values of a source once, for all later steps."""
        key, value = self.expand(self.heads.keep(memory, self.rotation(memory, positions)))
        fixed = self.window is None and self.rule is None and not self.position.has_bias
        return Memory(key, value, positions, mask_is_fixed=fixed)

    def expand(self, kept: Kept) -> tuple[Float[Tensor, "B _k S E"], Float[Tensor, "B K S G"]]:
        """Compute keys and values from what is kept, and prepare the keys for the score."""
        key, value = self.heads.expand(kept)
        return self.score.key(key), value

    def rotation(
        self, x: Float[Tensor, "B T D"], positions: Int[Tensor, "B T"] | None, memo: Memo | None = None
    ) -> Rotation:
        """Return the function that rotates the queries or keys of x to their positions."""
        position = self.position
        if not position.has_rotation:
            return identity
        found: Rotation = memoize(
            memo, position, lambda: position.rotation(explicit_positions(positions, x.shape[1], x.device))
        )
        return found

    def narrow(self, mask: Rule | None) -> Rule | None:
        """Narrow a mask to the window, if there is one."""
        return mask if self.window is None else Window(self.window) & mask

    def terms(self, view: View) -> Terms:
        """Return the score, mask and positions with which queries attend to a view."""
        dropout = self.dropout if self.training else 0.0
        mask = view.mask if self.rule is None else self.rule & view.mask
        return Terms(self.score, mask, self.position, view.query_positions, view.key_positions, dropout)

    def start(self, batch: int, capacity: int | None = None) -> Cache:
        """Return the empty cache of a causal self-attention."""
        return Cache(capacity, self.window)

    def flops(self, tokens: int, keys: int) -> int | None:
        """Count the comparison of queries with keys and the weighted sum of values, in all heads."""
        compared = self.score.pair_flops(self.heads.key_dim)
        seen = keys if self.window is None else min(keys, self.window)
        return None if compared is None else tokens * seen * self.heads.heads * (compared + 2 * self.heads.value_dim)

    def tokens_through(self, child: nn.Module, tokens: int, keys: int) -> int:
        """Return how many vectors pass through a child: the score gets those of every head."""
        return tokens * self.heads.heads if child is self.score else tokens

    def summary(self) -> str:
        """Return the number and width of heads, and the window."""
        window = "" if self.window is None else f", window {self.window}"
        heads = "1 head" if self.heads.heads == 1 else f"{self.heads.heads} heads"
        return f"{heads} of {self.heads.query_dim}{window}"


@dataclass(frozen=True)
class AttentionConfig(MixerConfig):
    """Attention: heads, score, relative positions and masks."""

    heads: HeadsConfig
    """How queries, keys and values are made."""
    score: ScoreConfig = field(default_factory=DotConfig)
    """How a query is compared with a key; by default the scaled dot product."""
    position: RelativeConfig | None = None
    """Relative positions, by rotation or by a bias on the scores; absent: none."""
    window: Count | None = None
    """See only keys less than this many positions away (Beltagy et al. 2020); absent: all of them."""
    mask: MaskConfig | None = None
    """A further rule on who may look at whom, in addition to the mask of the model."""
    dropout: Rate = 0.0
    """Share of the attention weights that training sets to zero."""
    gate: bool = False
    """Whether the output of every head is multiplied by sigmoid(W x + b) (Jumper et al. 2021; Qiu et al. 2025)."""

    def build(self, dim: int, memory_dim: int | None = None, shared: dict[Any, Relative] | None = None) -> Attention:
        """Build the attention of width `dim`. Attentions with the same `shared` dict share equal position modules."""
        with at("heads"):
            heads = self.heads.build(dim, memory_dim or dim)
        with at("score"):
            score = self.score.build(heads.query_dim, heads.key_dim)
        position = None
        if self.position is not None:
            shared = {} if shared is None else shared
            with at("position"):
                if isinstance(self.position, RopeConfig) and heads.query_dim != heads.key_dim:
                    widths = f"queries of width {heads.query_dim} and keys of width {heads.key_dim}"
                    raise ConfigError(f"{widths} cannot both be rotated; use another position, or equal widths")
                name = (self.position, heads.rope_dim, heads.heads)
                if name not in shared:
                    shared[name] = self.position.build(heads.rope_dim, heads.heads)
            position = shared[name]
        rule = None if self.mask is None else self.mask.build()
        gate = Gate(dim, heads.heads, heads.value_dim) if self.gate else None
        return Attention(heads, score, position, self.window, self.dropout, rule, gate)
