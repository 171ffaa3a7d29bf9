"""Recurrences with a matrix for each head: linear attention, gated DeltaNet, Mamba-2.

All three are `state_recurrence` with other decays and removals, and so train in chunks and decode with a state of
constant size. Linear attention (Katharopoulos et al. 2020) only adds; Mamba-2 (Dao, Gu 2024) lets all of a head decay
at once; gated DeltaNet (Yang et al. 2025) also removes what a key has stored before it stores something else there.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import log
from typing import ClassVar

import torch
import torch.nn.functional as F
from einops import rearrange
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from regard.config import Count
from regard.errors import ConfigError
from regard.parts.cache import Memo
from regard.parts.conv import DepthwiseConvolution
from regard.parts.linear import Linear, linears
from regard.parts.linear_recurrence import state_recurrence
from regard.parts.mask import Rule
from regard.parts.mixer import Mixer, MixerConfig, Signal
from regard.parts.norm import RMSNorm
from regard.parts.precision import at_least_float32
from regard.parts.recurrent import check_looks_back, real_lengths
from regard.parts.state import Hidden

SLOWEST, QUICKEST = 0.001, 0.1  # the time steps that heads start with, from long memories to short ones
MOST_DECAY = 16.0  # how much faster the last head decays than the first, for the same time step

MATRIX_LENGTH = Signal("state: the length of the matrix of each head, how much it holds")
DECAY = Signal("decay: the share of the matrix that stays", True)
SHARE = Signal("share: how much of what the key has stored is replaced", True)


class MatrixMemory(Mixer):
    """What these recurrences share: S_t = S_{t-1} (w_t + a_t b_t') + v_t k_t', read as o_t = S_t q_t.

    The state is a matrix S for each head, and the last inputs of the convolution over neighbours where there is one.
    """

    carries_state = True
    signals: ClassVar[Mapping[str, Signal]] = {"S": MATRIX_LENGTH}
    signal_unit = "head"

    def __init__(self, dim: int, heads: int, key: int, value: int, kernel: int | None, bias: bool = False) -> None:
        super().__init__()
        self.heads, self.key, self.value = heads, key, value  # widths are those of a head
        self.conv = None if kernel is None else DepthwiseConvolution(self.mixed(), kernel, bias)
        self.to_output = Linear(heads * value, dim, bias=False)

    def mixed(self) -> int:
        """Return how many features of neighbouring tokens are mixed by the convolution: queries, keys and values."""
        return self.heads * (2 * self.key + self.value)

    def rows(self) -> int:
        """Return the rows of a matrix: the width of a value."""
        return self.value

    @property
    def residual_outputs(self) -> list[Tensor]:
        """Return the matrix whose product is added to the residual stream (see `models/init.py`)."""
        return [self.to_output.weight]

    def start(self, batch: int, capacity: int | None = None) -> Hidden:
        """Return the state before the first token, of a size that never grows."""
        like = next(self.parameters(), torch.empty(0))  # int8 matrices, which are on a CPU, are not parameters
        dtype = torch.promote_types(like.dtype, torch.float32)
        matrix = like.new_zeros((batch, self.heads, self.rows(), self.key), dtype=dtype)
        return Hidden((matrix,) if self.conv is None else (matrix, *self.conv.start(batch).values))

    def forward(
        self,
        x: Float[Tensor, "B T D"],
        *,
        mask: Rule | None = None,
        positions: Int[Tensor, "B T"] | None = None,
        state: Hidden | None = None,
    ) -> Float[Tensor, "B T D"]:
        """Mix each token with those before it. It looks only back, so `mask` matters only for padding."""
        check_looks_back(mask)
        before = self.start(len(x)).values if state is None else state.values
        matrix, *past = before
        recent, mixed = Hidden(tuple(past)), self.project(x)
        if self.conv is not None:
            mixed = F.silu(self.conv(mixed, mask=mask, positions=positions, state=recent))
        lengths = real_lengths(positions, mask)
        real = None if lengths is None else torch.arange(x.shape[1], device=x.device) < lengths[:, None]
        out, matrix = self.run(x, mixed, matrix, real)
        if state is not None:
            after = (matrix, *recent.values)
            state.values = tuple(new.to(old.dtype) for new, old in zip(after, before, strict=True))
        result: Tensor = self.to_output(out)
        return result

    def project(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B T _F"]:
        """Return the features that the convolution mixes."""
        raise NotImplementedError

    def run(
        self,
        x: Float[Tensor, "B T D"],
        mixed: Float[Tensor, "B T _F"],
        matrix: Float[Tensor, "B H V K"],
        real: Bool[Tensor, "B T"] | None,
    ) -> tuple[Float[Tensor, "B T _O"], Float[Tensor, "B H V K"]]:
        """Return what all heads read, and the matrices after each row's last real token."""
        raise NotImplementedError

    def trace(self, x: Tensor, start: tuple[Tensor, ...], memo: Memo | None = None) -> tuple[Tensor, ...]:
        """See `Mixer.trace`; a number for each head."""
        matrix, *past = start
        mixed = self.project(x)
        if self.conv is not None:
            mixed = F.silu(self.conv(mixed, state=Hidden(tuple(past))))
        lengths = []
        for time in range(x.shape[1]):
            _, matrix = self.run(x[:, time : time + 1], mixed[:, time : time + 1], matrix, None)
            lengths.append(matrix[:, :, : self.value].norm(dim=(2, 3)))
        return torch.stack(lengths, 1), *self.gates(x)

    def gates(self, x: Float[Tensor, "B T D"]) -> tuple[Float[Tensor, "B T H"], ...]:
        """Return the other signals of each head; by default there are none."""
        return ()

    def split(self, x: Float[Tensor, "B T _F"]) -> Float[Tensor, "B T H _E"]:
        """Split features into those of the heads."""
        return rearrange(x, "B T (H E) -> B T H E", H=self.heads)

    def summary(self) -> str:
        """Return the number of matrices and their size."""
        return f"{self.heads} heads of {self.rows()} x {self.key}"

    def flops(self, tokens: int, keys: int) -> int:
        """Count the products with the matrices: addition and reading."""
        return 4 * tokens * self.heads * self.key * self.rows()


def hide(x: Float[Tensor, "B T H _E"], real: Bool[Tensor, "B T"] | None) -> Float[Tensor, "B T H _E"]:
    """Return x with zeros at padding, which then changes no state."""
    return x if real is None else x * real[:, :, None, None]


def _positive(x: Tensor) -> Tensor:
    """Return elu(x) + 1; the compiler mistakes the strides of the gradients of torch's own elu and softplus."""
    return torch.where(x > 0, x + 1, x.clamp(max=0).exp())


class LinearAttention(MatrixMemory):
    """o_t = sum_{i<=t} (f(q_t) . f(k_i)) v_i / sum_{i<=t} f(q_t) . f(k_i), with f(x) = elu(x) + 1.

    Attention whose softmax is replaced by a product of positive features, so that the sums over i can be kept instead
    of the tokens: S = sum v_i f(k_i)', whose last row, of values 1, holds the denominator.
    """

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__(dim, heads, dim // heads, dim // heads, kernel=None)
        self.to_query, self.to_key, self.to_value = (Linear(dim, dim, bias=False) for _ in range(3))

    def rows(self) -> int:
        """Return the rows of a matrix: those of a value, and the denominator."""
        return self.value + 1

    def project(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B T D"]:
        """Return the tokens: there is no convolution."""
        return x

    def run(self, x: Tensor, mixed: Tensor, matrix: Tensor, real: Tensor | None) -> tuple[Tensor, Tensor]:
        """See `MatrixMemory.run`."""
        query, key, value = (self.split(product) for product in linears(x, self.to_query, self.to_key, self.to_value))
        query, key = (_positive(at_least_float32(features)) for features in (query, key))
        decay = torch.zeros_like(query[..., :1])
        out, matrix = state_recurrence(query, decay, hide(key, real), F.pad(value, (0, 1), value=1.0), None, matrix)
        out = out[..., :-1] / out[..., -1:].clamp(min=torch.finfo(out.dtype).tiny)  # 0 before the first real token
        return rearrange(out, "B T H E -> B T (H E)").to(x.dtype), matrix


class Decaying(MatrixMemory):
    """A memory whose heads decay by w_t = e^{-Δ_t e^A}, where the time step Δ_t = log(1 + e^{W x_t + b}) follows from
    the token.
    """

    signals: ClassVar[Mapping[str, Signal]] = {"S": MATRIX_LENGTH, "w": DECAY}

    def __init__(self, dim: int, heads: int, key: int, value: int, kernel: int, bias: bool = False) -> None:
        super().__init__(dim, heads, key, value, kernel, bias)
        self.to_mixed = Linear(dim, self.mixed(), bias=False)
        self.to_gate = Linear(dim, heads * value, bias=False)
        self.to_step = Linear(dim, heads)
        self.decay = nn.Parameter(torch.empty(heads))

    def start_values(self) -> None:
        """Spread the heads from long to short memories."""
        place = torch.linspace(0, 1, self.heads)
        step = (log(SLOWEST) + place * log(QUICKEST / SLOWEST)).exp()
        self.to_step.bias.copy_(step.expm1().log())
        self.decay.copy_((1 + place * (MOST_DECAY - 1)).log())

    def project(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B T _F"]:
        """Return queries, keys and values of all heads."""
        mixed: Tensor = self.to_mixed(x)
        return mixed

    def steps(self, x: Float[Tensor, "B T D"]) -> tuple[Float[Tensor, "B T H 1"], Float[Tensor, "B T H 1"]]:
        """Return the time steps, and the logarithms of the decays."""
        logits = at_least_float32(self.to_step(x))
        step = torch.logaddexp(logits, torch.zeros_like(logits))[..., None]  # softplus; see `_positive`
        return step, -at_least_float32(self.decay).exp()[:, None] * step

    def gates(self, x: Float[Tensor, "B T D"]) -> tuple[Float[Tensor, "B T H"], ...]:
        """Return the decays."""
        return (self.steps(x)[1].exp()[..., 0],)


class GatedDeltaNet(Decaying):
    """S_t = w_t S_{t-1} (1 - β_t k_t k_t') + β_t v_t k_t': what k_t has stored is replaced, by a share β_t = σ(W x_t).

    Queries, keys and values are mixed with those of the tokens before by a convolution; queries and keys have the
    length 1. The output is W_o (norm(S_t q_t / sqrt(K)) * silu(W_g x_t)).
    """

    signals: ClassVar[Mapping[str, Signal]] = {**Decaying.signals, "β": SHARE}

    def __init__(self, dim: int, heads: int, key: int, value: int, kernel: int) -> None:
        super().__init__(dim, heads, key, value, kernel)
        self.to_share = Linear(dim, heads, bias=False)
        self.norm = RMSNorm(value, eps=1e-6)

    def run(self, x: Tensor, mixed: Tensor, matrix: Tensor, real: Tensor | None) -> tuple[Tensor, Tensor]:
        """See `MatrixMemory.run`."""
        keys = self.heads * self.key
        query, key, value = (self.split(part) for part in mixed.split((keys, keys, self.heads * self.value), -1))
        query, key = (_with_length_one(at_least_float32(vectors)) for vectors in (query, key))
        _, log_w = self.steps(x)
        share = hide(self.shares(x)[..., None], real)
        log_w = hide(log_w, real)
        removal = (-log_w.exp() * share * key, None)
        out, matrix = state_recurrence(query * self.key**-0.5, log_w, key, share * value, removal, matrix)
        out = self.norm(out).to(x.dtype) * F.silu(self.split(self.to_gate(x)))
        return rearrange(out, "B T H E -> B T (H E)"), matrix

    def shares(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B T H"]:
        """Return β of each head."""
        return at_least_float32(self.to_share(x)).sigmoid()

    def gates(self, x: Float[Tensor, "B T D"]) -> tuple[Float[Tensor, "B T H"], ...]:
        """Return the decays and the shares."""
        return *super().gates(x), self.shares(x)

    def flops(self, tokens: int, keys: int) -> int:
        """Count the products with the matrices: removal, addition, reading."""
        return 8 * tokens * self.heads * self.key * self.value


class Mamba2(Decaying):
    """S_t = w_t S_{t-1} + Δ_t v_t k_t', o_t = S_t q_t + D v_t, where all heads have the same k and q.

    A state space model whose matrix is a multiple of 1: v is the input, k and q are called B and C. Both and the values
    are mixed with those of the tokens before by a convolution. The output is W_o norm(o_t * silu(W_g x_t)).
    """

    def __init__(self, dim: int, heads: int, state: int, value: int, kernel: int) -> None:
        super().__init__(dim, heads, state, value, kernel, bias=True)
        self.skip = nn.Parameter(torch.empty(heads))
        self.norm = RMSNorm(heads * value, eps=1e-5)

    def mixed(self) -> int:
        """Return how many features the convolution mixes: the values of all heads, and k and q, which they share."""
        return self.heads * self.value + 2 * self.key

    def start_values(self) -> None:
        """Set the skip to 1, so that each value also reaches the output directly."""
        super().start_values()
        self.skip.fill_(1.0)

    def run(self, x: Tensor, mixed: Tensor, matrix: Tensor, real: Tensor | None) -> tuple[Tensor, Tensor]:
        """See `MatrixMemory.run`."""
        value, key, query = mixed.split((self.heads * self.value, self.key, self.key), -1)
        value = self.split(value)
        key, query = (shared[:, :, None].expand(-1, -1, self.heads, -1) for shared in (key, query))
        step, log_w = self.steps(x)
        out, matrix = state_recurrence(query, hide(log_w, real), key, hide(step * value, real), None, matrix)
        out = rearrange(out + self.skip[:, None] * value, "B T H E -> B T (H E)")
        return self.norm(out * F.silu(self.to_gate(x))).to(x.dtype), matrix


def _with_length_one(x: Float[Tensor, "*rows K"]) -> Float[Tensor, "*rows K"]:
    return x * (x.square().sum(-1, keepdim=True) + 1e-6).rsqrt()


def _width(dim: int, heads: int) -> int:
    """Return the width of a head."""
    if dim % heads:
        raise ConfigError(f"heads={heads} must divide dim={dim}")
    return dim // heads


@dataclass(frozen=True)
class LinearAttentionConfig(MixerConfig):
    """Linear attention: a product of positive features instead of a softmax (Katharopoulos et al. 2020)."""

    heads: Count
    """Number of heads; each has a matrix of about (dim / heads)^2 numbers as its state."""

    def build(self, dim: int) -> LinearAttention:
        """Build the mixer for vectors of width `dim`."""
        _width(dim, self.heads)
        return LinearAttention(dim, self.heads)


@dataclass(frozen=True)
class GatedDeltaNetConfig(MixerConfig):
    """Gated DeltaNet: heads that decay, and replace what a key has stored (Yang et al. 2025)."""

    heads: Count
    """Number of heads; each has a matrix of expand (dim / heads)^2 numbers as its state."""
    expand: Count = 1
    """Width of the values of a head, as a multiple of dim / heads."""
    kernel: Count = 4
    """Number of neighbouring tokens that queries, keys and values are mixed from."""

    def build(self, dim: int) -> GatedDeltaNet:
        """Build the mixer for vectors of width `dim`."""
        width = _width(dim, self.heads)
        return GatedDeltaNet(dim, self.heads, width, self.expand * width, self.kernel)


@dataclass(frozen=True)
class Mamba2Config(MixerConfig):
    """Mamba-2: a state space model whose heads decay as a whole (Dao, Gu 2024)."""

    heads: Count
    """Number of heads; each has a matrix of state_width x (expand dim / heads) numbers as its state."""
    state_width: Count = 128
    """Width of the keys and queries, which all heads share."""
    expand: Count = 2
    """Width of the values of a head, as a multiple of dim / heads."""
    kernel: Count = 4
    """Number of neighbouring tokens that queries, keys and values are mixed from."""

    def build(self, dim: int) -> Mamba2:
        """Build the mixer for vectors of width `dim`."""
        return Mamba2(dim, self.heads, self.state_width, self.expand * _width(dim, self.heads), self.kernel)
