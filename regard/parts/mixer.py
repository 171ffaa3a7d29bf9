"""Mixers: the sublayers in which tokens interact. Attention, recurrence and convolution are called alike."""

from collections.abc import Mapping
from typing import ClassVar, NamedTuple

from torch import Tensor, nn

from regard.config import Config
from regard.parts.cache import Memo
from regard.parts.mask import Rule
from regard.parts.state import LayerState


class Signal(NamedTuple):
    """What a vector is that a recurrence computes at each token."""

    about: str  # "forget gate: how much of the cell state stays"
    is_gate: bool = False  # whether its numbers are between 0 and 1


class Mixer(nn.Module):
    """A sublayer in which tokens interact: y_t depends on x_t and on the other tokens that the mask allows.

    Every mixer is called as `mixer(x, mask=..., positions=..., state=...)`: x is (B, T, D), and so is the result;
    `mask` is a rule or None; `positions` is (B, T), -1 at padding, or None for 0 .. T-1. `state` is None, or the view
    that `State.advance` makes of the result of `start`: then x continues the tokens in the state, and is added to it.
    A mixer that `uses_memo` is also given a `memo`, the same dict for all layers of a pass.

    A mixer counts its own arithmetic with `flops` (see `models/count.py`); without it, it is listed as uncounted.
    """

    follows_documents = False  # whether a mask of documents keeps the texts packed into a row apart
    uses_memo = False  # whether it keeps something for the layers above, such as what it makes of a mask
    signals: ClassVar[Mapping[str, Signal]] = {}  # the state and the gates of a recurrence, by name
    signal_unit = "unit"  # what each number of a signal belongs to
    carries_state = False  # whether training can carry its state from one window of a text to the next

    def share(self, memo: Memo, x: Tensor, mask: Rule | None, positions: Tensor | None) -> None:
        """Add to a memo what all layers of a compiled pass share, before the first of them; by default nothing."""

    def start(self, batch: int, capacity: int | None = None) -> LayerState:
        """Return the state before the first token; with a `capacity`, of static shape."""
        raise NotImplementedError

    def trace(self, x: Tensor, start: tuple[Tensor, ...], memo: Memo | None = None) -> tuple[Tensor, ...]:
        """Return the `signals` of a recurrence at each token, as (B, T, width), in their order.

        They are computed by the equations, from the input and the values of the state before it.
        """
        raise NotImplementedError

    def start_values(self) -> None:
        """Set initial values that differ from those of other parts (see `models/init.py`), such as rates of decay."""


class MixerConfig(Config):
    """Base of the configs of mixers."""

    def build(self, dim: int) -> Mixer:
        """Build the mixer for vectors of width `dim`."""
        raise NotImplementedError
