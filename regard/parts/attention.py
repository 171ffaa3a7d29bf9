"""Attention: the one class for self, cross, masked, grouped, windowed (Bahdanau et al. 2015; Vaswani et al. 2017).

Five questions, five answers: what are q, k, v? `heads`. Where am I? `position`. How alike? `score`. Who may look?
`mask`. What is remembered? `state`. Self or cross is only whether `memory` is given.
"""

from dataclasses import dataclass, field
from typing import Any

from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.config import Count, Rate
from regard.errors import ConfigError, InputError, at
from regard.parts.attend import Terms, Watchable
from regard.parts.cache import Cache, Memo, apart, once, together
from regard.parts.heads import Heads, HeadsConfig
from regard.parts.mask import Documents, Padding, Rule, Window, explicit_positions, includes
from regard.parts.mixer import Mixer, MixerConfig
from regard.parts.position import Relative, RelativeConfig, RopeConfig, Rotation, identity
from regard.parts.score import DotConfig, Score, ScoreConfig
from regard.parts.state import Memory


class Attention(Watchable, Mixer):
    """Y = softmax(score(Q, K)) V, heads joined.

    A `window` narrows every mask to keys less than that many positions away, and turns its cache into a ring.
    """

    follows_documents = True

    def __init__(
        self,
        heads: Heads,
        score: Score,
        position: Relative | None = None,
        window: int | None = None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.heads = heads
        self.score = score
        self.position = position
        self.window = window
        self.dropout = dropout

    def forward(
        self,
        x: Float[Tensor, "B T D"],
        *,
        memory: Float[Tensor, "B S M"] | None = None,
        mask: Rule | None = None,
        positions: Int[Tensor, "B T"] | None = None,
        memory_positions: Int[Tensor, "B S"] | None = None,
        state: Cache | Memory | None = None,
    ) -> Float[Tensor, "B T _D"]:
        """Let x look at itself, or at `memory`, or at what `state` remembers."""
        if memory is not None:
            if state is not None:
                raise InputError("attention looks at a memory or at what a state remembers; give one or the other")
            state = self.remember(memory, memory_positions)
        if isinstance(state, Memory):
            return self.heads.merge(self.look_at(state, x, mask, positions))
        return self.heads.merge(self.look_back(state, x, mask, positions))

    def look_at(
        self, memory: Memory, x: Float[Tensor, "B T D"], mask: Rule | None, positions: Int[Tensor, "B T"] | None
    ) -> Float[Tensor, "B H T E"]:
        """Attend to a source. BeamMask share it and ask together, as if they were more queries of one row."""
        query = self.score.query(self.heads.query(x, self.rotation(x, positions, None)))
        if memory.positions is not None:
            mask = Padding() & mask
        if self.window is not None:
            mask = Window(self.window) & mask
        if memory.share > 1:
            query = together(query, memory.share)
            positions = None if positions is None else positions.reshape(len(query), -1)
        lasting = mask == Padding() and not self.has_bias  # then the mask is the same at every step
        terms = self.terms(mask, positions, memory.positions, memory.memo if lasting else None)
        mixed = self.attend(query, memory.keys, memory.values, terms)
        return apart(mixed, memory.share) if memory.share > 1 else mixed

    def look_back(
        self, cache: Cache | None, x: Float[Tensor, "B T D"], mask: Rule | None, positions: Int[Tensor, "B T"] | None
    ) -> Float[Tensor, "B H T E"]:
        """Attend to x itself, and to what the cache remembers; siblings share one, and ask together."""
        share = 1 if cache is None else cache.places.share
        memo = cache.places.memo if cache is not None and cache.places.shared else None
        query, kept = self.heads.project(x, self.rotation(x, positions, memo))
        key_positions = positions
        if cache is not None:
            seen, key_positions = cache.update(kept, self.step_positions(positions, mask))
            if cache.places.begins and not includes(mask, Padding):
                positions = key_positions = None  # the new tokens see only themselves, which the causal kernel can do
            else:
                kept = seen
            if key_positions is None and not cache.places.begins:  # a single new token in each row, which sees all
                mask = None
                positions = positions if self.has_bias else None
            if cache.places.siblings is not None and positions is not None:
                query, positions = together(query, share), positions.view(-1, share)
                mask = cache.places.siblings & mask
        if positions is not None and key_positions is not None:
            mask = Padding() & mask
        if self.window is not None:
            mask = Window(self.window) & mask
        key, value = self.heads.expand(kept)
        terms = self.terms(mask, positions, key_positions, memo)
        mixed = self.attend(self.score.query(query), self.score.key(key), value, terms)
        return apart(mixed, share) if share > 1 else mixed

    @property
    def has_bias(self) -> bool:
        """Whether the position adds something to the scores."""
        return self.position is not None and self.position.has_bias

    def terms(
        self,
        mask: Rule | None,
        positions: Int[Tensor, "_b T"] | None,
        key_positions: Int[Tensor, "_c S"] | None,
        memo: Memo | None,
    ) -> Terms:
        """Give the terms on which queries at `positions` look at keys."""
        dropout = self.dropout if self.training else 0.0
        return Terms(self.score, mask, self.position, positions, key_positions, dropout, memo)

    def remember(self, memory: Float[Tensor, "B S M"], positions: Int[Tensor, "B S"] | None) -> Memory:
        """Make keys and values of a source once, for all steps to come."""
        key, value = self.heads.expand(self.heads.keep(memory, self.rotation(memory, positions, None)))
        return Memory(self.score.key(key), value, positions)

    def rotation(self, x: Float[Tensor, "B T D"], positions: Int[Tensor, "B T"] | None, memo: Memo | None) -> Rotation:
        """Give the function that turns queries or keys made of x to their positions."""
        if self.position is None:
            return identity
        position = self.position
        found: Rotation = once(
            memo, position, lambda: position.rotation(explicit_positions(positions, x.shape[1], x.device))
        )
        return found

    def step_positions(self, positions: Int[Tensor, "B T"] | None, mask: Rule | None) -> Int[Tensor, "B T"]:
        """Give the positions of a step, or refuse what a cache cannot do."""
        if positions is None:
            raise InputError("attention with a cache needs the positions of its tokens")
        if includes(mask, Documents):
            raise InputError("a cache holds one document per row; packed documents are for whole passes only")
        return positions

    def start(self, batch: int, capacity: int | None = None) -> Cache:
        """Give the empty cache of a causal self-attention."""
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
    """Attention by the five questions; the mask is the model's, but for the `window`."""

    heads: HeadsConfig
    score: ScoreConfig = field(default_factory=DotConfig)
    position: RelativeConfig | None = None
    window: Count | None = None
    dropout: Rate = 0.0

    def build(self, dim: int, memory_dim: int | None = None, shared: dict[Any, Relative] | None = None) -> Attention:
        """Make it for width `dim`. Positions described alike are one module for all that use the `shared` dict."""
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
                    raise ConfigError(f"{widths} cannot be turned alike")
                name = (self.position, heads.rope_dim, heads.heads)
                if name not in shared:
                    shared[name] = self.position.build(heads.rope_dim, heads.heads)
            position = shared[name]
        return Attention(heads, score, position, self.window, self.dropout)
