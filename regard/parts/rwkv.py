"""RWKV: recurrent layers that train in parallel over time and decode with a state of constant size.

Version 4 (Peng et al. 2023, RWKV: Reinventing RNNs for the Transformer Era) averages values with weights that decay
with distance. Version 7 (Peng et al. 2025, RWKV-7 "Goose") keeps a matrix for each head, from which it can also remove
what it has stored. Each layer of a model has two such parts: one that mixes tokens (`RWKV4`, `RWKV7`), and a
feed-forward that also sees the token before (`ChannelMix`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import exp, log
from typing import ClassVar, NamedTuple

import torch
import torch.nn.functional as F
from einops import rearrange
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.config import Count
from regard.errors import ConfigError
from regard.parts.cache import Memo
from regard.parts.linear import Linear
from regard.parts.linear_recurrence import state_recurrence, weighted_average
from regard.parts.mask import Rule
from regard.parts.mixer import Mixer, MixerConfig, Signal
from regard.parts.precision import at_least_float32
from regard.parts.recurrent import after_last_real, check_looks_back, real_lengths
from regard.parts.state import Hidden

EMPTY_SUM = -1e38  # the logarithm of the weight of no token
SHORTEST = -exp(-0.5)  # the logarithm of the fastest decay of RWKV-7, which bounds ratios of decays
# mixtures of a token and the one before: for queries, decays, keys, values, rates, gates
MIXTURES = ("r", "w", "k", "v", "a", "g")


class Shifting(Mixer):
    """What all parts of RWKV share: each token is mixed with the one before it, which a state keeps.

    The first tensor of the state is the last token of each row; a subclass keeps its own sums in the others.
    """

    carries_state = True

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.dim = dim

    def start(self, batch: int, capacity: int | None = None) -> Hidden:
        """Return the state before the first token, of a size that never grows."""
        like = next(self.parameters())
        zeros = torch.zeros((batch, self.dim), dtype=like.dtype, device=like.device)
        return Hidden((zeros, *self.start_sums(batch, at_least_float32(zeros))))

    def start_sums(self, batch: int, zeros: Float[Tensor, "B D"]) -> tuple[Tensor, ...]:
        """Return what a subclass keeps beside the last token."""
        return ()

    def forward(
        self,
        x: Float[Tensor, "B T D"],
        *,
        mask: Rule | None = None,
        positions: Int[Tensor, "B T"] | None = None,
        state: Hidden | None = None,
        memo: Memo | None = None,
    ) -> Float[Tensor, "B T D"]:
        """Mix each token with those before it. It looks only back, so `mask` matters only for padding."""
        check_looks_back(mask)
        values = self.start(len(x)).values if state is None else state.values
        last, *sums = values
        lengths = real_lengths(positions, mask)
        before = torch.cat((last[:, None].to(x.dtype), x[:, :-1]), 1)
        out, sums = self.run(x, before, sums, lengths, memo)
        if state is not None:
            new = (after_last_real(x, last.to(x.dtype), lengths), *sums)
            state.values = tuple(value.to(old.dtype) for value, old in zip(new, values, strict=True))
        return out

    def run(
        self,
        x: Float[Tensor, "B T D"],
        before: Float[Tensor, "B T D"],
        sums: list[Tensor],
        lengths: Int[Tensor, "B"] | None,
        memo: Memo | None,
    ) -> tuple[Float[Tensor, "B T D"], list[Tensor]]:
        """Return the outputs, and what is kept after each row's last real token."""
        raise NotImplementedError

    def flops(self, tokens: int, keys: int) -> int | None:
        """Return 0: all products are counted in the children."""
        return 0


class RWKV4(Shifting):
    """o = W_o (σ(r) * wkv), where r, k, v are projections of mixtures mu x_t + (1 - mu) x_{t-1}.

    wkv_t is the average of all values, with the weight e^{k_i - (t-1-i) e^d} for token i and e^{u + k_t} for t itself.
    """

    signals: ClassVar[Mapping[str, Signal]] = {
        "wkv": Signal("state: the average of the values so far"),
        "r": Signal("receptance, σ(r): how much of the state is shown", True),
        "k": Signal("key: the logarithm of the token's own weight"),
        "v": Signal("value"),
    }

    def __init__(self, dim: int) -> None:
        super().__init__(dim)
        self.mix_r, self.mix_k, self.mix_v = (nn.Parameter(torch.empty(dim)) for _ in range(3))
        self.decay, self.bonus = nn.Parameter(torch.empty(dim)), nn.Parameter(torch.empty(dim))
        self.to_gate, self.to_key, self.to_value = (Linear(dim, dim, bias=False) for _ in range(3))
        self.to_output = Linear(dim, dim, bias=False)

    @property
    def residual_outputs(self) -> list[Tensor]:
        """Return the matrix whose product is added to the residual stream (see `models/init.py`)."""
        return [self.to_output.weight]

    def start_values(self) -> None:
        """Spread the channels from long to short memories, as the authors do in the middle of a model."""
        place = torch.linspace(0, 1, self.dim)
        self.decay.copy_(-5 + 8 * place**1.35)
        self.bonus.copy_(log(0.3) + 0.5 * ((torch.arange(self.dim) + 1) % 3 - 1))
        self.mix_k.copy_(place**0.5)
        self.mix_v.copy_(place**0.5 + 0.15)
        self.mix_r.copy_(0.5 * place**0.5)

    def start_sums(self, batch: int, zeros: Float[Tensor, "B D"]) -> tuple[Tensor, ...]:
        """Return the sums over no tokens."""
        return zeros + EMPTY_SUM, zeros, zeros

    def run(
        self, x: Tensor, before: Tensor, sums: list[Tensor], lengths: Tensor | None, memo: Memo | None
    ) -> tuple[Tensor, list[Tensor]]:
        """See `Shifting.run`."""
        r, k, v = self._projections(x, before)
        average, after = self._average(k, v, sums, lengths)
        return self.to_output(r.sigmoid() * average.to(r.dtype)), list(after)

    def _projections(self, x: Tensor, before: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the gate before its sigmoid, the keys and the values."""
        r, k, v = (
            project(torch.lerp(before, x, mix.to(x.dtype)))
            for project, mix in (
                (self.to_gate, self.mix_r),
                (self.to_key, self.mix_k),
                (self.to_value, self.mix_v),
            )
        )
        return r, k, v

    def _average(
        self, k: Tensor, v: Tensor, sums: Sequence[Tensor], lengths: Tensor | None
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Return wkv, and the sums after each row's last real token."""
        m, total, weight = sums
        decay = at_least_float32(self.decay).exp()
        return weighted_average(k, v, decay, self.bonus, (m, total, weight), lengths)

    def trace(self, x: Tensor, start: tuple[Tensor, ...], memo: Memo | None = None) -> tuple[Tensor, ...]:
        """See `Mixer.trace`."""
        r, k, v = self._projections(x, torch.cat((start[0][:, None].to(x.dtype), x[:, :-1]), 1))
        average, _ = self._average(k, v, start[1:], None)
        return average, r.sigmoid(), k, v


class LowRank(nn.Module):
    """x -> W_2 W_1 x + b, with few features in between, to which RWKV-7 applies tanh or a sigmoid in some places."""

    def __init__(self, dim: int, rank: int, bias: bool = True) -> None:
        super().__init__()
        self.down, self.up = Linear(dim, rank, bias=False), Linear(rank, dim, bias=bias)

    def forward(self, x: Float[Tensor, "*rows D"]) -> Float[Tensor, "*rows D"]:
        """Return W_2 W_1 x + b."""
        return self.up(self.down(x))


class RWKV7Parts(NamedTuple):
    """What RWKV-7 computes from each token."""

    queries: Float[Tensor, "B T D"]
    keys: Float[Tensor, "B T D"]
    values: Float[Tensor, "B T D"]
    log_w: Float[Tensor, "B T D"]
    rate: Float[Tensor, "B T D"]
    direction: Float[Tensor, "B T H E"]
    gate: Float[Tensor, "B T D"]


class RWKV7(Shifting):
    """A matrix S for each head: S_t = S_{t-1} (diag(w_t) - κ_t (a_t * κ_t)') + v_t k_t';  o_t = S_t r_t.

    κ is the normalised direction that is removed, a how much of it, w the decay of each channel, between e^{-0.61} and
    1; all follow from the token. The output is W_o (g * (norm(o) + (r . ρ k) v)). A layer with a `value_rank` mixes its
    values with those of the first layer.
    """

    uses_memo = True
    signals: ClassVar[Mapping[str, Signal]] = {
        "S": Signal("state: the length of each row of the matrices"),
        "w": Signal("decay: how much of the state stays", True),
        "a": Signal("rate: how much of the old value is replaced", True),
        "g": Signal("gate of the output"),
    }

    def __init__(self, dim: int, heads: int, rank: int, gate_rank: int, value_rank: int | None) -> None:
        super().__init__(dim)
        self.heads = heads
        self.mix = nn.ParameterDict({name: nn.Parameter(torch.empty(dim)) for name in MIXTURES})
        self.to_query, self.to_key, self.to_value = (Linear(dim, dim, bias=False) for _ in range(3))
        self.decay, self.rate = LowRank(dim, rank), LowRank(dim, rank)
        self.gate = LowRank(dim, gate_rank, bias=False)
        self.first_share = None if value_rank is None else LowRank(dim, value_rank)
        self.removal_scale, self.rate_scale, self.bonus = (nn.Parameter(torch.empty(dim)) for _ in range(3))
        self.norm = nn.GroupNorm(heads, dim, eps=64e-5)
        self.to_output = Linear(dim, dim, bias=False)

    @property
    def residual_outputs(self) -> list[Tensor]:
        """Return the matrix whose product is added to the residual stream (see `models/init.py`)."""
        return [self.to_output.weight]

    def start_values(self) -> None:
        """Spread the channels from long to short memories, as the authors do in the middle of a model."""
        place = torch.linspace(0, 1, self.dim)
        for name, power in {"r": 0.1, "w": 0.45, "k": 0.35, "v": 0.35, "a": 0.45, "g": 0.1}.items():
            self.mix[name].copy_(place**power)
        self.decay.up.bias.copy_(-6 + 5 * place**1.35 + 0.5)
        self.removal_scale.fill_(0.85)
        self.rate_scale.fill_(1.0)
        if self.first_share is not None:
            self.first_share.up.bias.fill_(1.0)

    def start_sums(self, batch: int, zeros: Float[Tensor, "B D"]) -> tuple[Tensor, ...]:
        """Return empty matrices."""
        width = self.dim // self.heads
        return (zeros.new_zeros((batch, self.heads, width, width)),)

    def run(
        self, x: Tensor, before: Tensor, sums: list[Tensor], lengths: Tensor | None, memo: Memo | None
    ) -> tuple[Tensor, list[Tensor]]:
        """See `Shifting.run`."""
        parts = self._parts(x, before, memo)
        log_w, keys, direction = parts.log_w, parts.keys, parts.direction
        if lengths is not None:  # padding changes no state
            real = (torch.arange(x.shape[1], device=x.device) < lengths[:, None])[..., None]
            log_w, keys, direction = log_w * real, keys * real, direction * real[..., None]
        r, k, v = (self._split(part) for part in (parts.queries, keys, parts.values))
        removal = (-direction, direction * self._split(parts.rate))
        out, state = state_recurrence(r, self._split(log_w), k, v, removal, sums[0], SHORTEST)
        out = self.norm(rearrange(out, "B T H E -> (B T) (H E)").to(x.dtype)).reshape(x.shape)
        strength = (r * k * self._split(self.bonus)).sum(-1, keepdim=True)
        out = out + rearrange(strength * v, "B T H E -> B T (H E)").to(out.dtype)
        return self.to_output(out * parts.gate), [state]

    def _parts(self, x: Tensor, before: Tensor, memo: Memo | None) -> "RWKV7Parts":
        """Compute from each token what changes the matrices, and what reads them."""
        r, w, k, v, a, g = (torch.lerp(before, x, self.mix[name].to(x.dtype)) for name in MIXTURES)
        values = self._with_first(self.to_value(v), v, memo)
        queries, keys = self.to_query(r), self.to_key(k)
        log_w = SHORTEST * at_least_float32(self.decay.up(self.decay.down(w).tanh())).sigmoid()
        rate = self.rate(a).sigmoid()
        direction = F.normalize(at_least_float32(self._split(keys * self.removal_scale)), dim=-1)
        keys = keys * (1 + (rate - 1) * self.rate_scale)
        gate = self.gate.up(self.gate.down(g).sigmoid())
        return RWKV7Parts(queries, keys, values, log_w, rate, direction, gate)

    def trace(self, x: Tensor, start: tuple[Tensor, ...], memo: Memo | None = None) -> tuple[Tensor, ...]:
        """See `Mixer.trace`. Of the matrices S, the length of each row is shown."""
        parts = self._parts(x, torch.cat((start[0][:, None].to(x.dtype), x[:, :-1]), 1), memo)
        r, k, v, log_w, rate = map(self._split, (parts.queries, parts.keys, parts.values, parts.log_w, parts.rate))
        state, lengths = start[1], []
        for t in range(x.shape[1]):
            now = slice(t, t + 1)
            removal = (-parts.direction[:, now], parts.direction[:, now] * rate[:, now])
            one = (r[:, now], log_w[:, now], k[:, now], v[:, now])
            _, state = state_recurrence(*one, removal, state, SHORTEST)
            lengths.append(state.norm(dim=-1).flatten(1))
        return torch.stack(lengths, 1), parts.log_w.exp(), parts.rate, parts.gate

    def _with_first(self, values: Tensor, x: Tensor, memo: Memo | None) -> Tensor:
        """Mix the values with those of the first layer, which leaves them in the memo of the pass."""
        if self.first_share is None:
            if memo is not None:
                memo.setdefault("first values", values)
            return values
        if memo is None or "first values" not in memo:
            raise ConfigError("value_rank mixes the values with those of the first layer; the first must not have it")
        first: Tensor = memo["first values"]
        return torch.lerp(values, first, self.first_share(x).sigmoid().to(values.dtype))

    def _split(self, x: Tensor) -> Tensor:
        return rearrange(x, "... (H E) -> ... H E", H=self.heads)

    def flops(self, tokens: int, keys: int) -> int:
        """Count the products with the matrices: decay and removal, addition, reading."""
        return 8 * tokens * self.dim * (self.dim // self.heads)


class ChannelMix(Shifting):
    """W_v relu(W_k m_k)^2, gated by σ(W_r m_r) in version 4, where m is a mixture of x_t and x_{t-1}."""

    def __init__(self, dim: int, hidden: int, gated: bool) -> None:
        super().__init__(dim)
        self.mix_k = nn.Parameter(torch.empty(dim))
        self.up, self.down = Linear(dim, hidden, bias=False), Linear(hidden, dim, bias=False)
        self.mix_r = nn.Parameter(torch.empty(dim)) if gated else None
        self.to_gate = Linear(dim, dim, bias=False) if gated else None

    @property
    def residual_outputs(self) -> list[Tensor]:
        """Return the matrix whose product is added to the residual stream (see `models/init.py`)."""
        return [self.down.weight]

    def start_values(self) -> None:
        """Set the shares of the token before, which differ between channels."""
        place = torch.linspace(0, 1, self.dim)
        self.mix_k.copy_(place**0.5)
        if self.mix_r is not None:
            self.mix_r.copy_(place**0.5)

    def run(
        self, x: Tensor, before: Tensor, sums: list[Tensor], lengths: Tensor | None, memo: Memo | None
    ) -> tuple[Tensor, list[Tensor]]:
        """See `Shifting.run`."""
        out = self.down(F.relu(self.up(torch.lerp(before, x, self.mix_k.to(x.dtype)))).square())
        if self.to_gate is not None and self.mix_r is not None:
            out = self.to_gate(torch.lerp(before, x, self.mix_r.to(x.dtype))).sigmoid() * out
        return out, []


@dataclass(frozen=True)
class RWKV4Config(MixerConfig):
    """RWKV-4: an average of all values with weights that decay with distance (Peng et al. 2023)."""

    def build(self, dim: int) -> RWKV4:
        """Build the mixer for vectors of width `dim`."""
        return RWKV4(dim)


@dataclass(frozen=True)
class RWKV7Config(MixerConfig):
    """RWKV-7: a matrix for each head, to which every token adds and from which it removes (Peng et al. 2025)."""

    heads: Count
    """Number of heads; each has a matrix of (dim / heads)^2 numbers as its state."""
    rank: Count = 32
    """Features between a token and its decays and rates."""
    gate_rank: Count = 64
    """Features between a token and the gate of its output."""
    value_rank: Count | None = None
    """Features between a token and the share of the first layer's values in its own; absent: none, as in the first."""

    def build(self, dim: int) -> RWKV7:
        """Build the mixer for vectors of width `dim`."""
        if dim % self.heads:
            raise ConfigError(f"heads={self.heads} must divide dim={dim}")
        return RWKV7(dim, self.heads, self.rank, self.gate_rank, self.value_rank)
