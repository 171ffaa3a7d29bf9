"""Attention: the one class for self, cross, masked, grouped, windowed (Bahdanau et al. 2015; Vaswani et al. 2017).

Five questions, five answers: what are q, k, v? `heads`. Where am I? `position`. How alike? `score`. Who may look?
`mask`. What is remembered? `state`. Self or cross is only whether `memory` is given.
"""

from dataclasses import dataclass, field
from typing import Any

from jaxtyping import Float, Int
from torch import Tensor

from regard.config import Count, Rate
from regard.errors import ConfigError, InputError, at
from regard.parts.attend import Terms, Watchable
from regard.parts.heads import Heads, HeadsConfig
from regard.parts.mask import Documents, Padding, Rule, Window, arrange, includes
from regard.parts.mixer import Mixer
from regard.parts.position import Relative, RelativeConfig, RopeConfig, Turn, stay
from regard.parts.score import DotConfig, Score, ScoreConfig
from regard.parts.state import Cache, Memory


class Attention(Watchable, Mixer):
    """Y = softmax(score(Q, K)) V, heads joined.

    A `window` narrows every mask to keys less than that many positions away, and turns its cache into a ring.
    """

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
        turn = self.turn(x, positions)
        query = self.score.query(self.heads.query(x, turn))
        if isinstance(state, Memory):
            key, value, key_positions = state.keys, state.values, state.positions
            mask = mask if key_positions is None else Padding() & mask
        else:
            kept, key_positions = self.heads.keep(x, turn), positions
            if state is not None:
                begins = state.tokens == 0 and not includes(mask, Padding)
                seen = state.update(kept, self.step_positions(positions, mask))
                if begins:  # nothing came before: the new tokens see only themselves, which the causal kernel can do
                    positions = key_positions = None
                else:
                    kept, key_positions = seen
            if positions is not None:
                mask = Padding() & mask
            key, value = self.heads.expand(kept)
            key = self.score.key(key)
        if self.window is not None:
            mask = Window(self.window) & mask
        dropout = self.dropout if self.training else 0.0
        terms = Terms(self.score, mask, self.position, positions, key_positions, dropout)
        return self.heads.merge(self.attend(query, key, value, terms))

    def remember(self, memory: Float[Tensor, "B S M"], positions: Int[Tensor, "B S"] | None) -> Memory:
        """Make keys and values of a source once, for all steps to come."""
        key, value = self.heads.expand(self.heads.keep(memory, self.turn(memory, positions)))
        return Memory(self.score.key(key), value, positions)

    def turn(self, x: Float[Tensor, "B T D"], positions: Int[Tensor, "B T"] | None) -> Turn:
        """Give the function that turns queries or keys made of x to their positions."""
        if self.position is None:
            return stay
        return self.position.turn(arrange(positions, x.shape[1], x.device))

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


@dataclass(frozen=True)
class AttentionConfig:
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
                name = (self.position, heads.turn_dim, heads.heads)
                if name not in shared:
                    shared[name] = self.position.build(heads.turn_dim, heads.heads)
            position = shared[name]
        return Attention(heads, score, position, self.window, self.dropout)
