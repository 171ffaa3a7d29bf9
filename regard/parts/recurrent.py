"""Recurrent layers: they read a row token by token and carry a hidden state.

This is what all of them share: the call, the state, and reading a row in both directions (Bidirectional, Schuster and
Paliwal 1997). The layers themselves are in `fused_cells.py` (torch's own kernels) and `gated_cells.py` (GRU and its
mutations); `cells.py` lists them by name.

Shapes: B batch, T time, D width of the input, H width of the hidden state.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.errors import ConfigError, InputError
from regard.parts.cache import Memo
from regard.parts.mask import Documents, Padding, Prefix, Rule, includes
from regard.parts.mixer import Mixer, MixerConfig, Signal
from regard.parts.state import Hidden


def gated_signals(update: str) -> dict[str, Signal]:
    """Return the signals of GRU and MUT; `update` says what the update gate is a share of."""
    return {
        "h": Signal("hidden state"),
        "z": Signal(f"update gate: how much of the {update}", True),
        "r": Signal("reset gate: how much of the old state the candidate sees", True),
        "h~": Signal("candidate"),
    }


KEEPING_GATE, TAKING_GATE = gated_signals("old state stays"), gated_signals("candidate is taken")


class Recurrent(Mixer):
    """What all recurrent layers share: the call and the hidden state. A layer supplies `run`."""

    carries_state = True
    signals: ClassVar[Mapping[str, Signal]] = {"h": Signal("hidden state")}
    state_names: ClassVar[tuple[str, ...]] = ("h",)

    def __init__(self, input_dim: int, hidden: int) -> None:
        super().__init__()
        self.input_dim = input_dim
        self.hidden = hidden

    def start(self, batch: int, capacity: int | None = None) -> Hidden:
        """Return the state before the first token: zeros, of a size that never grows."""
        like = next(self.parameters())
        shape = (batch, self.hidden)  # not `like.new_zeros`: where weights are spread over processes, the state is not
        return Hidden(tuple(torch.zeros(shape, dtype=like.dtype, device=like.device) for _ in self.state_names))

    def forward(
        self,
        x: Float[Tensor, "B T D"],
        *,
        mask: Rule | None = None,
        positions: Int[Tensor, "B T"] | None = None,
        state: Hidden | None = None,
    ) -> Float[Tensor, "B T H"]:
        """Return the hidden state after each token. A recurrence looks only back, so `mask` matters only for padding.

        `positions` is -1 at padding, which is on the right. The recurrence starts from `state`, which afterwards holds
        the state after each row's last real token.
        """
        check_looks_back(mask)
        if state is None:
            out, _ = self.run(x, self.start(x.shape[0]).values, None)
            return out
        lengths = real_lengths(positions, mask)
        out, last = self.run(x, state.values, lengths)
        # Under autocast x may have another dtype than the state; the state keeps its own.
        state.values = tuple(new.to(old.dtype) for new, old in zip(last, state.values, strict=True))
        return out

    def run(
        self, x: Float[Tensor, "B T D"], start: tuple[Tensor, ...], lengths: Int[Tensor, "B"] | None
    ) -> tuple[Float[Tensor, "B T H"], tuple[Tensor, ...]]:
        """Return the hidden states, and the state after each row's first `lengths` tokens (None: after all)."""
        raise NotImplementedError

    def trace(self, x: Tensor, start: tuple[Tensor, ...], memo: Memo | None = None) -> tuple[Tensor, ...]:
        """See `Mixer.trace`."""
        return (self.run(x, start, None)[0],)

    def flops(self, tokens: int, keys: int) -> int | None:
        """Return 0: all products are counted in the children."""
        return 0

    def summary(self) -> str:
        """Return the widths of the input and of the state."""
        return f"{self.input_dim} -> {self.hidden}"


def check_looks_back(mask: Rule | None) -> None:
    """Reject masks that a recurrence cannot follow."""
    if includes(mask, Documents) or includes(mask, Prefix):
        raise InputError("a recurrence only looks back along its row; packed documents and prefixes need attention")


def real_lengths(positions: Int[Tensor, "B T"] | None, mask: Rule | None) -> Int[Tensor, "B"] | None:
    """Return the number of real tokens in each row; None if the mask does not hide padding."""
    return (positions >= 0).sum(1) if positions is not None and includes(mask, Padding) else None


def after_last_real(
    out: Float[Tensor, "B T H"], start: Float[Tensor, "B H"], lengths: Int[Tensor, "B"] | None
) -> Float[Tensor, "B H"]:
    """Return h after each row's last real token; a row without any keeps its start."""
    if lengths is None:
        return out[:, -1]
    last = out.take_along_dim((lengths - 1).clamp(min=0)[:, None, None], dim=1).squeeze(1)
    return torch.where(lengths[:, None] > 0, last, start)


class Bidirectional(Mixer):
    """[forward layer over x_1..x_n ; backward layer over x_n..x_1], for encoders: n is each row's own length."""

    def __init__(self, forward_layer: Recurrent, backward_layer: Recurrent) -> None:
        super().__init__()
        self.forward_layer = forward_layer
        self.backward_layer = backward_layer

    def flops(self, tokens: int, keys: int) -> int:
        """Return 0: all products are counted in the children."""
        return 0

    def forward(
        self,
        x: Float[Tensor, "B T D"],
        *,
        mask: Rule | None = None,
        positions: Int[Tensor, "B T"] | None = None,
        state: Hidden | None = None,
    ) -> Float[Tensor, "B T H"]:
        """Return the hidden states of both directions side by side. A state is rejected: the whole row is needed."""
        if state is not None:
            raise ConfigError(
                "bidirectional = true: the layer reads each row to its end and cannot continue from a state;"
                " use it in encoders only, and bidirectional = false where tokens are generated"
            )
        ahead = self.forward_layer(x)
        lengths = real_lengths(positions, mask)
        if lengths is None:
            return torch.cat([ahead, self.backward_layer(x.flip(1)).flip(1)], -1)
        # Reverse the real part of each row and leave the padding on the right.
        time = torch.arange(x.shape[1], device=x.device)
        ends = lengths[:, None]
        reverse = torch.where(time < ends, ends - 1 - time, time).unsqueeze(-1)
        back = self.backward_layer(x.take_along_dim(reverse, dim=1)).take_along_dim(reverse, dim=1)
        return torch.cat([ahead, back], -1)


@dataclass(frozen=True)
class RecurrentConfig(MixerConfig):
    """Base of the configs of recurrent cells, which are mixers."""

    layer: ClassVar[type[Recurrent]]

    bidirectional: bool = False
    """Whether a second layer reads from the end (Schuster, Paliwal 1997); each then has half of the width."""

    def build(self, dim: int, input_dim: int | None = None) -> Mixer:
        """Build the layer; `input_dim` is the width of its input, `dim` unless given."""
        width = dim if input_dim is None else input_dim
        if not self.bidirectional:
            return self.build_layer(width, dim)
        if dim % 2:
            raise ConfigError(f"bidirectional = true, dim {dim}: dim must be even, each direction has half of it")
        return Bidirectional(self.build_layer(width, dim // 2), self.build_layer(width, dim // 2))

    def build_layer(self, input_dim: int, hidden: int) -> Recurrent:
        """Build the layer of one direction."""
        return self.layer(input_dim, hidden)
