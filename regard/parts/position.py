"""Where is a token? Relative positions, which act inside every attention.

Rotary (Su et al. 2021) rotates queries and keys, with the scalings of Llama 3 and YaRN (Peng et al. 2023, used by Qwen
and DeepSeek); ALiBi (Press et al. 2022) and T5's relative bias (Raffel et al. 2020) add a number to each score.
Positions that are added to the embeddings are in `absolute_position.py`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil, log, log2, pi
from typing import Literal

import torch
from einops import rearrange
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.config import Config, Count, Kinds, Positive
from regard.errors import ConfigError
from regard.parts.constant import Constant

Rotation = Callable[[Tensor], Tensor]


def identity(vectors: Tensor) -> Tensor:
    """Return the vectors as they are: no rotation."""
    return vectors


class Relative(nn.Module):
    """How positions act in attention: by a rotation of queries and keys, by a bias on the scores, or, as here, not.

    A subclass defines `rotation` or `bias`; `has_rotation` and `has_bias` follow from that.
    """

    has_rotation = False
    has_bias = False

    def __init_subclass__(cls) -> None:
        cls.has_rotation = cls.rotation is not Relative.rotation
        cls.has_bias = cls.bias is not Relative.bias

    def rotation(self, positions: Int[Tensor, "_b T"]) -> Rotation:
        """Return the function that rotates vectors (B, heads, T, width) at `positions`."""
        return identity

    def bias(self, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        """Return what is added to the score of a head for a query and a key position; broadcasts, like a mask rule."""
        raise NotImplementedError


class Rope(Relative):
    """Rotate each pair of features by an angle that grows with the position: R(a)^T R(b) = R(b - a).

    (x, y) -> (x cos a - y sin a, x sin a + y cos a), a = pos * frequency. Pairs are (i, i + width/2) in the layout
    `halves`, neighbours (2i, 2i+1) in the layout `interleaved`. Only the first `width` features are rotated.
    """

    def __init__(
        self,
        frequencies: Float[Tensor, "half"],
        layout: Literal["halves", "interleaved"] = "halves",
        magnitude: float = 1.0,
    ) -> None:
        super().__init__()
        self.width = 2 * len(frequencies)
        self.layout = layout
        self.magnitude = magnitude
        self.frequencies = Constant(frequencies)

    def rotation(self, positions: Int[Tensor, "_b T"]) -> Rotation:
        """Return the rotation; its angles are computed once for queries and keys."""
        angles = (positions[..., None] * self.frequencies.values)[:, None]
        cos, sin = angles.cos() * self.magnitude, angles.sin() * self.magnitude

        def rotate(vectors: Float[Tensor, "B _H T E"]) -> Float[Tensor, "B _H T E"]:
            rotated, rest = vectors[..., : self.width], vectors[..., self.width :]
            c, s = cos.to(vectors.dtype), sin.to(vectors.dtype)
            if self.layout == "halves":
                x, y = rotated.chunk(2, -1)
                rotated = torch.cat((x * c - y * s, x * s + y * c), -1)
            else:
                x, y = rearrange(rotated, "B H T (half pair) -> pair B H T half", pair=2)
                rotated = torch.stack((x * c - y * s, x * s + y * c), -1).flatten(-2)
            return torch.cat((rotated, rest), -1) if rest.shape[-1] else rotated

        return rotate


class Alibi(Relative):
    """Add -slope_h * |query - key|: far keys count less, at a different rate for every head."""

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.slopes = Constant(self.make_slopes(heads))

    @staticmethod
    def make_slopes(heads: int) -> Tensor:
        """Return 2^(-8h/H) if H is a power of two; otherwise add every second slope of the next power of two."""
        below = 2 ** int(log2(heads))
        slopes = [2 ** (-8 * (h + 1) / below) for h in range(below)]
        between = [2 ** (-8 * (h + 1) / (2 * below)) for h in range(0, 2 * below, 2)]
        return torch.tensor((slopes + between)[:heads], dtype=torch.float64, device="cpu")

    def bias(self, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        """Return -slope * distance."""
        return -self.slopes.values[head] * (query - key).abs()


class RelativeBias(Relative):
    """Add a learned number per head and bucket of key - query; buckets grow with the distance.

    Half of the buckets are exact small distances, the other half grow logarithmically up to `distance`; looking both
    ways, keys before and after the query have separate buckets.
    """

    def __init__(self, heads: int, buckets: int, distance: int, both_ways: bool) -> None:
        super().__init__()
        self.buckets, self.distance, self.both_ways = buckets, distance, both_ways
        self.table = nn.Embedding(buckets, heads)

    def bias(self, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        """Return table[bucket(key - query), head]."""
        return self.table.weight[self.bucket(key - query), head]

    def bucket(self, offset: Int[Tensor, "*pairs"]) -> Int[Tensor, "*pairs"]:
        """Return the number of the bucket of each offset."""
        if self.both_ways:
            buckets = self.buckets // 2
            first = torch.where(offset > 0, buckets, 0)
            away = offset.abs()
        else:
            buckets, first, away = self.buckets, torch.zeros_like(offset), (-offset).clamp(min=0)
        exact = buckets // 2
        growth = torch.log(away.clamp(min=1) / exact) / log(self.distance / exact)
        far = (exact + (growth * (buckets - exact)).to(offset.dtype)).clamp(max=buckets - 1)
        return first + torch.where(away < exact, away, far)


class ScalingConfig(Config):
    """Base of the configs that stretch rotary positions for texts longer than those of training."""

    def scale(self, frequencies: Tensor, base: float) -> tuple[Tensor, float]:
        """Return the new frequencies, and a factor for the length of rotated vectors."""
        raise NotImplementedError


@dataclass(frozen=True)
class Llama3Scaling(ScalingConfig):
    """Scaling of Llama 3.1: slow waves are stretched by `factor`, fast ones are kept, those between are blended."""

    factor: Positive
    """By how much slow waves are stretched."""
    original_length: Count
    """Length of the texts in the original training, in tokens."""
    low: Positive = 1.0
    """Waves with fewer rotations than this within the original length are stretched completely."""
    high: Positive = 4.0
    """Waves with more rotations than this are kept; those between are blended."""

    def validate(self) -> None:
        """Check the rules between values."""
        if self.low >= self.high:
            raise ConfigError(f"low={self.low} must be below high={self.high}")

    def scale(self, frequencies: Tensor, base: float) -> tuple[Tensor, float]:
        """Return the new frequencies, and the magnitude, which does not change here."""
        rotations = self.original_length * frequencies / (2 * pi)
        keep = ((rotations - self.low) / (self.high - self.low)).clamp(0, 1)
        return frequencies * (keep + (1 - keep) / self.factor), 1.0


@dataclass(frozen=True)
class YarnScaling(ScalingConfig):
    """YaRN (Peng et al. 2023): like Llama 3's, but blended linearly over the features, with a larger magnitude."""

    factor: Positive
    """By how much slow waves are stretched."""
    original_length: Count
    """Length of the texts in the original training, in tokens."""
    fast: Positive = 32.0
    """Waves with more rotations than this within the original length are kept."""
    slow: Positive = 1.0
    """Waves with fewer rotations than this are stretched completely; those between are blended."""
    magnitude: float | None = None
    """Factor of the length of rotated vectors; absent: 0.1 log(factor) + 1."""

    def validate(self) -> None:
        """Check the rules between values."""
        if self.slow >= self.fast:
            raise ConfigError(f"slow={self.slow} must be below fast={self.fast}")

    def scale(self, frequencies: Tensor, base: float) -> tuple[Tensor, float]:
        """Return the new frequencies, and the magnitude: 0.1 log(factor) + 1 unless given."""
        half = len(frequencies)

        def feature(rotations: float) -> float:
            return half * log(self.original_length / (rotations * 2 * pi)) / log(base)

        first, last = max(int(feature(self.fast)), 0), min(ceil(feature(self.slow)), 2 * half - 1)
        steps = torch.arange(half, dtype=frequencies.dtype, device="cpu")
        stretch = ((steps - first) / max(last - first, 1e-3)).clamp(0, 1)
        magnitude = 0.1 * log(max(self.factor, 1)) + 1 if self.magnitude is None else self.magnitude
        return frequencies * ((1 - stretch) + stretch / self.factor), magnitude


SCALINGS = Kinds("scaling", ScalingConfig, {"llama3": Llama3Scaling, "yarn": YarnScaling})


class RelativeConfig(Config):
    """Base of the configs of relative positions."""

    def build(self, head_dim: int, heads: int) -> Relative:
        """Build the position for `heads` heads of width `head_dim`."""
        raise NotImplementedError


@dataclass(frozen=True)
class RopeConfig(RelativeConfig):
    """Rotary positions (Su et al. 2021): queries and keys are rotated by an angle that grows with the position."""

    base: Positive = 10000.0
    """Base of the wavelengths: the larger, the slower the slowest wave."""
    layout: Literal["halves", "interleaved"] = "halves"
    """Which features are rotated together: those half a width apart (Llama), or neighbours (Su et al. 2021)."""
    width: Count | None = None
    """Number of features of a head that are rotated; absent: all."""
    scaling: ScalingConfig | None = None
    """Stretching of the waves for texts longer than those of training."""

    def validate(self) -> None:
        """Check the rules between values."""
        if self.base <= 1:
            raise ConfigError(f"base={self.base} must be above 1; otherwise all features rotate at the same speed")

    def build(self, head_dim: int, heads: int) -> Rope:
        """Build the rotation for heads of width `head_dim`."""
        width = self.width or head_dim
        if width % 2 or width > head_dim:
            raise ConfigError(f"width={width} must be even and at most the head width {head_dim}")
        frequencies = self.base ** -(torch.arange(0, width, 2, dtype=torch.float64, device="cpu") / width)
        magnitude = 1.0
        if self.scaling is not None:
            frequencies, magnitude = self.scaling.scale(frequencies, self.base)
        return Rope(frequencies, self.layout, magnitude)


@dataclass(frozen=True)
class AlibiConfig(RelativeConfig):
    """ALiBi (Press et al. 2022): scores fall linearly with the distance, in each head at its own slope."""

    def build(self, head_dim: int, heads: int) -> Alibi:
        """Build the bias for `heads` heads."""
        return Alibi(heads)


@dataclass(frozen=True)
class RelativeBiasConfig(RelativeConfig):
    """T5's relative bias (Raffel et al. 2020): a learned number for each head and bucket of distances."""

    buckets: Count = 32
    """Number of learned biases for each head."""
    distance: Count = 128
    """From this distance on, all tokens share the last bucket."""
    both_ways: bool = False
    """Whether keys after the query have buckets of their own, as an encoder needs."""

    def build(self, head_dim: int, heads: int) -> RelativeBias:
        """Build the bias for `heads` heads."""
        exact = self.buckets // (4 if self.both_ways else 2)
        if not 0 < exact < self.distance:
            values = f"buckets={self.buckets} and distance={self.distance}"
            raise ConfigError(
                f"{values} do not fit: the {exact} exact buckets must be at least 1, and fewer than distance"
            )
        return RelativeBias(heads, self.buckets, self.distance, self.both_ways)


RELATIVE = Kinds(
    "relative position",
    RelativeConfig,
    {"rope": RopeConfig, "alibi": AlibiConfig, "relative-bias": RelativeBiasConfig},
)
