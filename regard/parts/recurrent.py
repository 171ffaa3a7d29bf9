"""Recurrent layers: they read a row token by token and carry a hidden state.

Elman (Elman 1990), LSTM (Hochreiter and Schmidhuber 1997, with the forget gate of Gers et al. 2000), GRU (Cho et
al. 2014), torch's variant of the GRU, MUT1 to MUT3 (Jozefowicz et al. 2015), and Bidirectional (Schuster and
Paliwal 1997).

Elman, LSTM and TorchGRU run in torch's own kernels. GRU and the three MUTs are one family, the "gated" recurrence. The
loops over time are in `recurrence.py`.

The recurrence runs in the dtype of its weights; autocast lowers only the input products of the gated family.

Shapes: B batch, T time, D width of the input, H width of the hidden state.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.backends.cudnn import rnn as cudnn_rnn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from regard.config import Kinds, Rate
from regard.errors import ConfigError, InputError
from regard.parts.cache import Memo
from regard.parts.mask import Documents, Padding, Prefix, Rule, includes
from regard.parts.mixer import Mixer, MixerConfig, Signal
from regard.parts.precision import without_autocast
from regard.parts.recurrence import KERNELS, fused_recurrence, gated_recurrence, run_kernel
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


# --- Elman, LSTM, TorchGRU: torch's kernels --------------------------------------------------------------------------


class Fused(Recurrent):
    """A layer that runs in torch's kernels. Its weights are laid out as those of torch.nn.RNNBase.

    It does not hold an nn.LSTM, because torch.compile cannot trace one.
    """

    kind: ClassVar[str]
    gates: ClassVar[int]

    def __init__(self, input_dim: int, hidden: int) -> None:
        super().__init__(input_dim, hidden)
        rows = self.gates * hidden
        self.W_x = nn.Parameter(torch.empty(rows, input_dim))
        self.W_h = nn.Parameter(torch.empty(rows, hidden))
        self.b_x = nn.Parameter(torch.empty(rows))
        self.b_h = nn.Parameter(torch.empty(rows))
        for weight in self.parameters():
            nn.init.uniform_(weight, -(hidden**-0.5), hidden**-0.5)
        self._flatten()

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "Fused":
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self._flatten()
        return self

    def flops(self, tokens: int, keys: int) -> int:
        """Count the products with the input and with the state."""
        return 2 * tokens * (self.W_x.numel() + self.W_h.numel())

    def __setstate__(self, state: dict[str, Any]) -> None:  # the weights of a copy are not in one block
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        self._flatten()

    def _load_from_state_dict(self, *arguments: Any) -> None:  # loading may replace the weights
        super()._load_from_state_dict(*arguments)
        self._flatten()

    def _flatten(self) -> None:
        """Put the weights into one block of memory, as cuDNN needs them; otherwise it copies them at every call."""
        if self.W_x.is_cuda and torch._use_cudnn_rnn_flatten_weight():
            mode = cudnn_rnn.get_cudnn_mode(self.kind)
            with torch.no_grad():
                torch._cudnn_rnn_flatten_weight(
                    self.weights(), 4, self.input_dim, mode, self.hidden, 0, 1, False, False
                )

    def weights(self) -> tuple[Tensor, ...]:
        """Return the weights in the order of torch's kernels."""
        return self.W_x, self.W_h, self.b_x, self.b_h

    def weights_used(self) -> tuple[Tensor, ...]:
        """Return the weights of one call."""
        return self.weights()

    def run(
        self, x: Float[Tensor, "B T D"], start: tuple[Tensor, ...], lengths: Int[Tensor, "B"] | None
    ) -> tuple[Float[Tensor, "B T H"], tuple[Tensor, ...]]:
        """See `Recurrent.run`."""
        time_major = x.transpose(0, 1).to(self.W_x.dtype)
        start = tuple(value.to(self.W_x.dtype) for value in start)
        if torch.compiler.is_compiling() or x.is_meta:  # on meta, torch would loop over time for nothing
            c = start[1] if len(start) == 2 else None
            out, last_c = fused_recurrence(self.kind, time_major, start[0], c, *self.weights_used())
            last = (out[-1], last_c)[: len(start)]
        else:
            out, last = run_kernel(self.kind, time_major, start, self.weights_used())
        out = out.transpose(0, 1)
        return out, (after_last_real(out, start[0], lengths), *last[1:])


class Elman(Fused):
    """h_t = tanh(W [h_{t-1}; x_t] + b), where W = [W_h, W_x] and b = b_x + b_h."""

    kind = "RNN_TANH"
    gates = 1


class TorchGRU(Fused):
    """The GRU with the reset after the product, as torch's kernels compute it (bias b_h inside the reset).

    r, z = σ(W_x x_t + W_h h_{t-1} + b); h~ = tanh(W_xh x_t + b_xh + r * (W_hh h_{t-1} + b_hh));
    h_t = z * h_{t-1} + (1 - z) * h~. The rows of the weights are in the order r, z, h~.
    """

    kind = "GRU"
    gates = 3
    signals = KEEPING_GATE

    def trace(self, x: Tensor, start: tuple[Tensor, ...], memo: Memo | None = None) -> tuple[Tensor, ...]:
        """See `Mixer.trace`."""
        W_x, W_h, b_x, b_h = self.weights()
        h, found = start[0], []
        for product in (x.to(W_x.dtype) @ W_x.t() + b_x).unbind(1):
            own_r, own_z, own_n = product.chunk(3, -1)
            by_r, by_z, by_n = (h @ W_h.t() + b_h).chunk(3, -1)
            r, z = (own_r + by_r).sigmoid(), (own_z + by_z).sigmoid()
            n = (own_n + r * by_n).tanh()
            h = torch.lerp(n, h, z)
            found.append((h, z, r, n))
        return tuple(torch.stack(values, 1) for values in zip(*found, strict=True))


class LSTM(Fused):
    """i, f, o = σ(W [h_{t-1}; x_t] + b), g = tanh(W [h_{t-1}; x_t] + b).

    c_t = f * c_{t-1} + i * g; h_t = o * tanh(c_t); b = b_x + b_h. The rows of the weights are in the order i, f, g, o.
    """

    kind = "LSTM"
    gates = 4
    signals: ClassVar[Mapping[str, Signal]] = {
        "h": Signal("hidden state"),
        "c": Signal("cell state"),
        "i": Signal("input gate: how much of the candidate is added", True),
        "f": Signal("forget gate: how much of the cell state stays", True),
        "o": Signal("output gate: how much of the cell state is shown", True),
        "g": Signal("candidate"),
    }
    state_names = ("h", "c")
    weight_dropout = 0.0

    def trace(self, x: Tensor, start: tuple[Tensor, ...], memo: Memo | None = None) -> tuple[Tensor, ...]:
        """See `Mixer.trace`."""
        W_x, W_h, b_x, b_h = self.weights()
        (h, c), found = start, []
        for product in (x.to(W_x.dtype) @ W_x.t() + b_x + b_h).unbind(1):
            i, f, g, o = (product + h @ W_h.t()).chunk(4, -1)
            i, f, g, o = i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()
            c = f * c + i * g
            h = o * c.tanh()
            found.append((h, c, i, f, o, g))
        return tuple(torch.stack(values, 1) for values in zip(*found, strict=True))

    def weights_used(self) -> tuple[Tensor, ...]:
        """Return the weights of one call: in training, some of those from state to state are zero."""
        if not self.training or not self.weight_dropout:
            return self.weights()
        return self.W_x, nn.functional.dropout(self.W_h, self.weight_dropout), self.b_x, self.b_h

    def run(
        self, x: Float[Tensor, "B T D"], start: tuple[Tensor, ...], lengths: Int[Tensor, "B"] | None
    ) -> tuple[Float[Tensor, "B T H"], tuple[Tensor, ...]]:
        """See `Recurrent.run`. Rows of unequal lengths are packed, because the kernel returns only the last c."""
        if lengths is None:
            return super().run(x, start, None)
        if x.shape[1] == 1:
            out, last = super().run(x, start, None)
        else:
            out, last = self._run_packed(x, start, lengths)
        real = lengths[:, None] > 0
        return out, tuple(torch.where(real, new, old) for new, old in zip(last, start, strict=True))

    def _run_packed(
        self, x: Float[Tensor, "B T D"], start: tuple[Tensor, ...], lengths: Int[Tensor, "B"]
    ) -> tuple[Float[Tensor, "B T H"], tuple[Tensor, ...]]:
        """Run packed rows. Lengths are copied to the host, so this is not used in compiled graphs: prompts only."""
        packed = pack_padded_sequence(
            x.to(self.W_x.dtype), lengths.clamp(min=1).cpu(), batch_first=True, enforce_sorted=False
        )
        hidden = [value.to(self.W_x.dtype)[None, packed.sorted_indices] for value in start]
        weights, keep = self.weights_used(), torch.is_grad_enabled()
        with without_autocast(x):
            data, *last = KERNELS["LSTM"](packed.data, packed.batch_sizes, hidden, weights, True, 1, 0.0, keep, False)
        out, _ = pad_packed_sequence(packed._replace(data=data), batch_first=True, total_length=x.shape[1])
        return out, tuple(value[0, packed.unsorted_indices] for value in last)


# --- GRU and MUT1 to MUT3: the gated recurrence ----------------------------------------------------------------------


class Gated(Recurrent):
    """A layer of the form of `gated_recurrence`; a subclass supplies `products` and `update_weight`."""

    squash: ClassVar[bool] = False
    signals = TAKING_GATE

    def __init__(self, input_dim: int, hidden: int) -> None:
        super().__init__(input_dim, hidden)
        self.W_hr = nn.Linear(hidden, hidden, bias=False)
        self.W_hh = nn.Linear(hidden, hidden, bias=False)

    def products(self, x: Float[Tensor, "T B D"]) -> tuple[Float[Tensor, "T B H"], ...]:
        """Return what the inputs of all time steps add to reset, update and candidate."""
        raise NotImplementedError

    def update_weight(self) -> Float[Tensor, "H H"] | None:
        """Return the matrix by which the update gate multiplies the hidden state, if there is one."""
        raise NotImplementedError

    def run(
        self, x: Float[Tensor, "B T D"], start: tuple[Tensor, ...], lengths: Int[Tensor, "B"] | None
    ) -> tuple[Float[Tensor, "B T H"], tuple[Tensor, ...]]:
        """See `Recurrent.run`."""
        out, *_ = self._recurrence(x, start)
        out = out.transpose(0, 1)
        return out, (after_last_real(out, start[0].to(out.dtype), lengths),)

    def _recurrence(self, x: Tensor, start: tuple[Tensor, ...]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return h, r, z and the candidate of all steps, time first; z is the share of the candidate."""
        dtype = self.W_hr.weight.dtype
        products = (product.to(dtype) for product in self.products(x.transpose(0, 1)))
        weights = self.W_hr.weight, self.update_weight(), self.W_hh.weight
        return gated_recurrence(*products, start[0].to(dtype), *weights, self.squash)

    def trace(self, x: Tensor, start: tuple[Tensor, ...], memo: Memo | None = None) -> tuple[Tensor, ...]:
        """See `Mixer.trace`."""
        h, r, z, n = (values.transpose(0, 1) for values in self._recurrence(x, start))
        return h, 1 - z if self.signals is KEEPING_GATE else z, r, n


class GRU(Gated):
    """The GRU with the reset before the product.

    r, z = σ(W_x x_t + W_h h_{t-1} + b); h~ = tanh(W_xh x_t + W_hh (r * h_{t-1}) + b); h_t = z * h_{t-1} + (1 - z) * h~.
    `W_x` holds the rows of r, z and h~ in this order.
    """

    signals = KEEPING_GATE

    def __init__(self, input_dim: int, hidden: int) -> None:
        super().__init__(input_dim, hidden)
        self.W_x = nn.Linear(input_dim, 3 * hidden)
        self.W_hz = nn.Linear(hidden, hidden, bias=False)

    def products(self, x: Float[Tensor, "T B D"]) -> tuple[Float[Tensor, "T B H"], ...]:
        """See `Gated.products`. Here z weighs the old state, in `gated_recurrence` the new one: 1 - σ(a) = σ(-a)."""
        reset, update, candidate = self.W_x(x).chunk(3, -1)
        return reset, -update, candidate

    def update_weight(self) -> Float[Tensor, "H H"] | None:
        """Return -W_hz; see `products` for the sign."""
        return -self.W_hz.weight


class MUT1(Gated):
    """z = σ(W_xz x + b_z); r = σ(W_xr x + W_hr h + b_r); h' = tanh(W_hh (r * h) + tanh(x) + b_h) * z + h * (1 - z).

    `W_x` holds the rows of r and z in this order.
    """

    def __init__(self, input_dim: int, hidden: int) -> None:
        super().__init__(input_dim, hidden)
        require_equal_widths("MUT1", input_dim, hidden)
        self.W_x = nn.Linear(input_dim, 2 * hidden)
        self.b_h = nn.Parameter(torch.zeros(hidden))

    def products(self, x: Float[Tensor, "T B D"]) -> tuple[Float[Tensor, "T B H"], ...]:
        """See `Gated.products`."""
        reset, update = self.W_x(x).chunk(2, -1)
        return reset, update, x.tanh() + self.b_h

    def update_weight(self) -> Float[Tensor, "H H"] | None:
        """Return None: the update gate sees only the input."""
        return None


class MUT2(Gated):
    """z = σ(W_xz x + W_hz h + b_z); r = σ(x + W_hr h + b_r); h' = tanh(W_hh (r * h) + W_xh x + b_h) * z + h * (1 - z).

    `W_x` holds the rows of z and h' in this order.
    """

    def __init__(self, input_dim: int, hidden: int) -> None:
        super().__init__(input_dim, hidden)
        require_equal_widths("MUT2", input_dim, hidden)
        self.W_x = nn.Linear(input_dim, 2 * hidden)
        self.b_r = nn.Parameter(torch.zeros(hidden))
        self.W_hz = nn.Linear(hidden, hidden, bias=False)

    def products(self, x: Float[Tensor, "T B D"]) -> tuple[Float[Tensor, "T B H"], ...]:
        """See `Gated.products`."""
        update, candidate = self.W_x(x).chunk(2, -1)
        return x + self.b_r, update, candidate

    def update_weight(self) -> Float[Tensor, "H H"] | None:
        """Return W_hz."""
        return self.W_hz.weight


class MUT3(Gated):
    """z = σ(W_xz x + W_hz tanh(h) + b_z); r = σ(W_xr x + W_hr h + b_r); h' as in MUT2.

    `W_x` holds the rows of r, z and h' in this order.
    """

    squash = True

    def __init__(self, input_dim: int, hidden: int) -> None:
        super().__init__(input_dim, hidden)
        self.W_x = nn.Linear(input_dim, 3 * hidden)
        self.W_hz = nn.Linear(hidden, hidden, bias=False)

    def products(self, x: Float[Tensor, "T B D"]) -> tuple[Float[Tensor, "T B H"], ...]:
        """See `Gated.products`."""
        return self.W_x(x).chunk(3, -1)

    def update_weight(self) -> Float[Tensor, "H H"] | None:
        """Return W_hz."""
        return self.W_hz.weight


def require_equal_widths(name: str, input_dim: int, hidden: int) -> None:
    """Check the widths of MUT1 and MUT2, which add the input itself to a vector as wide as the hidden state."""
    if input_dim != hidden:
        raise ConfigError(
            f"{name}: input_dim {input_dim}, hidden {hidden}: they must be equal, because {name} adds its input to"
            " the hidden state unprojected; use gru or mut3 where the widths differ"
        )


# --- Both directions --------------------------------------------------------------------------------------------


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


# --- Configs ----------------------------------------------------------------------------------------------------


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


class ElmanConfig(RecurrentConfig):
    """h_t = tanh(W x_t + U h_t-1 + b) (Elman 1990)."""

    layer = Elman


@dataclass(frozen=True)
class LSTMConfig(RecurrentConfig):
    """Long short-term memory (Hochreiter, Schmidhuber 1997)."""

    layer = LSTM

    weight_dropout: Rate = 0.0
    """Share of the weights from state to state that an update of training sets to zero (Merity et al. 2018)."""

    def build_layer(self, input_dim: int, hidden: int) -> LSTM:
        """Build the layer of one direction."""
        layer = LSTM(input_dim, hidden)
        layer.weight_dropout = self.weight_dropout
        return layer


class GRUConfig(RecurrentConfig):
    """Gated recurrent unit (Cho et al. 2014)."""

    layer = GRU


class TorchGRUConfig(RecurrentConfig):
    """GRU as cuDNN computes it: the reset gate acts after the product; fused on accelerators."""

    layer = TorchGRU


class MUT1Config(RecurrentConfig):
    """First of three mutated GRUs found by search (Jozefowicz et al. 2015)."""

    layer = MUT1


class MUT2Config(RecurrentConfig):
    """Second mutated GRU (Jozefowicz et al. 2015)."""

    layer = MUT2


class MUT3Config(RecurrentConfig):
    """Third mutated GRU (Jozefowicz et al. 2015)."""

    layer = MUT3


RECURRENT = Kinds(
    "cell",
    RecurrentConfig,
    {
        "elman": ElmanConfig,
        "lstm": LSTMConfig,
        "gru": GRUConfig,
        "torch-gru": TorchGRUConfig,
        "mut1": MUT1Config,
        "mut2": MUT2Config,
        "mut3": MUT3Config,
    },
)
