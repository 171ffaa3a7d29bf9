"""Absolute positions: a vector for each position, added to the embeddings once, before the first layer.

Linear, sinusoidal (Vaswani et al. 2017), learned. Those that act inside every attention are in `position.py`.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.config import Config, Count, Kinds, Times
from regard.errors import ConfigError, InputError, too_long
from regard.parts.constant import Constant
from regard.parts.inputs import can_read
from regard.parts.mask import explicit_positions


class Absolute(nn.Module):
    """A vector for each position. `length` bounds the positions if there is a table."""

    length: int | None = None

    def forward(
        self, positions: Int[Tensor, "B T"] | None, tokens: int, device: torch.device
    ) -> Float[Tensor, "_ T D"]:
        """Return the vectors at `positions`, or at 0 .. tokens-1; padding (-1) counts as position 0."""
        if self.length is not None:
            self.check(positions, tokens, self.length)
        return self.vectors(explicit_positions(positions, tokens, device).clamp(min=0))

    def vectors(self, positions: Int[Tensor, "_b T"]) -> Float[Tensor, "_b T D"]:
        """Compute the encoding."""
        raise NotImplementedError

    def check(self, positions: Tensor | None, tokens: int, length: int) -> None:
        """Reject positions beyond the table, unless checking would synchronise with an accelerator."""
        if positions is not None:
            if not can_read(positions):
                return
            tokens = int(positions.max()) + 1 if positions.numel() else 0
        if tokens > length:
            raise InputError(too_long(tokens, length))


class LinearPosition(Absolute):
    """PE(pos) = slope * pos + offset, the same for every feature.

    It does not work: the value grows without bound, so that far positions dominate the token, and layer norm removes
    it, since it subtracts the mean of the features.
    """

    def __init__(self, dim: int, slope: float, offset: float) -> None:
        super().__init__()
        self.dim = dim
        self.line = Constant(torch.tensor((slope, offset), dtype=torch.float64, device="cpu"))

    def vectors(self, positions: Int[Tensor, "_b T"]) -> Float[Tensor, "_b T D"]:
        """Return slope * pos + offset."""
        slope, offset = self.line.values
        return (slope * positions + offset)[..., None].expand(-1, -1, self.dim)


class Sinusoidal(Absolute):
    """PE(pos, 2i) = sin(pos / 10000^(2i/D)), PE(pos, 2i+1) = cos(the same).

    The layout `halves` has all sines first and then all cosines, as Marian does.
    """

    def __init__(self, dim: int, layout: Literal["interleaved", "halves"] = "interleaved") -> None:
        super().__init__()
        self.layout = layout
        steps = torch.arange(0, dim, 2, dtype=torch.float64, device="cpu") / dim
        self.frequencies = Constant(10000.0**-steps)

    def vectors(self, positions: Int[Tensor, "_b T"]) -> Float[Tensor, "_b T D"]:
        """Compute sines and cosines."""
        angles = positions[..., None] * self.frequencies.values
        waves = (angles.sin(), angles.cos())
        return torch.cat(waves, -1) if self.layout == "halves" else torch.stack(waves, -1).flatten(-2)


class Learned(Absolute):
    """PE(pos) = W[pos + offset], a learned table; the rows before `offset` are unused."""

    def __init__(self, dim: int, length: int, offset: int = 0) -> None:
        super().__init__()
        self.length = length
        self.offset = offset
        self.table = nn.Embedding(length + offset, dim)

    def vectors(self, positions: Int[Tensor, "_b T"]) -> Float[Tensor, "_b T D"]:
        """Look up rows of the table."""
        return self.table(positions + self.offset)


class AbsoluteConfig(Config):
    """Base of the configs of absolute positions."""

    def build(self, dim: int) -> Absolute:
        """Build the position for vectors of width `dim`."""
        raise NotImplementedError


@dataclass(frozen=True)
class LinearPositionConfig(AbsoluteConfig):
    """slope * position + offset, the same for every feature."""

    slope: float = 1.0
    """Factor of the position."""
    offset: float = 0.0
    """Number added to the product."""

    def build(self, dim: int) -> Absolute:
        """Build the position for width `dim`."""
        return LinearPosition(dim, self.slope, self.offset)


@dataclass(frozen=True)
class SinusoidalConfig(AbsoluteConfig):
    """Sines and cosines of geometrically growing wavelengths (Vaswani et al. 2017)."""

    layout: Literal["interleaved", "halves"] = "interleaved"
    """Whether sines and cosines alternate (Vaswani et al. 2017) or each fill one half."""

    def build(self, dim: int) -> Absolute:
        """Build the position for width `dim`."""
        if dim % 2:
            raise ConfigError(f"sines and cosines come in pairs, so the width {dim} must be even")
        return Sinusoidal(dim, self.layout)


@dataclass(frozen=True)
class LearnedConfig(AbsoluteConfig):
    """A learned table of `length` positions; RoBERTa and BART keep `offset` unused rows before them."""

    length: Count
    """Number of positions in the table: no input can be longer."""
    offset: Times = 0
    """Unused rows before the first position, which RoBERTa and BART have."""

    def build(self, dim: int) -> Absolute:
        """Build the position for width `dim`."""
        return Learned(dim, self.length, self.offset)


ABSOLUTE = Kinds(
    "absolute position",
    AbsoluteConfig,
    {"linear": LinearPositionConfig, "sinusoidal": SinusoidalConfig, "learned": LearnedConfig},
)
