"""What all models share, and the step protocol of those that write token by token.

Decoding sees only `start(...) -> state`, `step(tokens, state) -> logits, state` and `state.reorder(index)`, so sampling
and beam search are written once, for LSTM and Transformer alike.
"""

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.config import Config
from regard.models.head import Logits
from regard.models.init import InitConfig
from regard.models.stack import Stack
from regard.parts.embed import Embedding
from regard.parts.mask import Causal, Padding, Rule, padded_positions
from regard.parts.position import Absolute
from regard.parts.state import State, check_lengths


class Model(nn.Module):
    """A model with the config that made it."""

    config: Any = None  # what a recipe says; a model put together by hand has none

    def longest(self) -> int | None:
        """How many tokens the model can take: as many as its position tables have, or any number (None)."""
        lengths = [part.length for part in self.modules() if isinstance(part, Absolute) and part.length is not None]
        return min(lengths, default=None)


class ModelConfig(Config):
    """Base of the configs of models: what the `[model]` table of a recipe says."""

    dim: int
    init: InitConfig

    def build(self) -> Model:
        """Build the model."""
        raise NotImplementedError


class StepModel(Model):
    """A model that writes: it scores what follows, and goes on from where it was."""

    embed: Embedding
    head: Logits

    def decode(
        self, tokens: Int[Tensor, "B T"], mask: Rule, positions: Int[Tensor, "B T"] | None, state: State | None
    ) -> Float[Tensor, "B T D"]:
        """Give the vectors below the head, for tokens that follow those in `state`."""
        raise NotImplementedError

    def logits(self, x: Float[Tensor, "*rows D"]) -> Float[Tensor, "*rows V"]:
        """Score the vocabulary."""
        return self.head(x, self.embed.tokens.table.weight)

    def step(
        self, tokens: Int[Tensor, "B T"], state: State, lengths: Int[Tensor, "B"] | None = None
    ) -> tuple[Float[Tensor, "B V"], State]:
        """Read more tokens (the first `lengths` of each row) and score what follows the last of each row.

        The state is changed in place, and returned for convenience.
        """
        positions = state.advance(tokens, lengths)
        mask: Rule = Causal() if lengths is None else Causal() & Padding()
        x = self.decode(tokens, mask, positions, state)
        return self.logits(last(x, lengths)), state


class EncoderDecoder(StepModel):
    """A model that writes about a source. Without `source_embed`, both sides share one embedding."""

    source_embed: Embedding | None
    encoder: Stack

    def start(
        self,
        source: Int[Tensor, "B S"],
        source_lengths: Int[Tensor, "B"] | None = None,
        capacity: int | None = None,
    ) -> State:
        """Encode the source and give the state before the first target token."""
        raise NotImplementedError

    def encode(self, source: Int[Tensor, "B S"], *, lengths: Int[Tensor, "B"] | None = None) -> Float[Tensor, "B S D"]:
        """Give the contextual vector of every source token; rows are padded on the right beyond `lengths`."""
        positions = row_positions(source, lengths)
        mask = None if positions is None else Padding()
        embed = self.source_embed or self.embed
        return self.encoder(embed(source, positions), mask=mask, positions=positions)


def last(x: Float[Tensor, "B T D"], lengths: Int[Tensor, "B"] | None) -> Float[Tensor, "B D"]:
    """Take the last real vector of each row."""
    if lengths is None:
        return x[:, -1]
    return x[torch.arange(len(x), device=x.device), lengths - 1]


def row_positions(tokens: Int[Tensor, "B T"], lengths: Int[Tensor, "_B"] | None) -> Int[Tensor, "B T"] | None:
    """Positions of rows padded on the right beyond `lengths`: -1 at the padding; None if there is none."""
    check_lengths(tokens, lengths, least=1)
    return padded_positions(lengths, tokens.shape[1])


def beginning(batch: int, device: torch.device) -> Int[Tensor, "B"]:
    """No row has seen a token yet."""
    return torch.zeros(batch, dtype=torch.long, device=device)
