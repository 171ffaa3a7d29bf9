"""Recurrent layers that run in torch's own kernels: Elman, LSTM, and torch's variant of the GRU.

Elman (Elman 1990), LSTM (Hochreiter and Schmidhuber 1997, with the forget gate of Gers et al. 2000), GRU (Cho et al.
2014). How the kernels are called is in `recurrence.py`. They run in the dtype of their weights, also under autocast.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.backends.cudnn import rnn as cudnn_rnn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from regard.config import Count, Rate
from regard.parts.cache import Memo
from regard.parts.linear import Linear
from regard.parts.mask import Rule
from regard.parts.mixer import Signal
from regard.parts.precision import without_autocast
from regard.parts.recurrence import KERNELS, fused_recurrence, run_kernel
from regard.parts.recurrent import KEEPING_GATE, Recurrent, RecurrentConfig, after_last_real
from regard.parts.state import Hidden


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

    def __init__(self, input_dim: int, hidden: int, output: int | None = None) -> None:
        super().__init__(input_dim, hidden)
        self.to_output = None if output is None else Linear(hidden, output, bias=False)

    def forward(
        self,
        x: Float[Tensor, "B T D"],
        *,
        mask: Rule | None = None,
        positions: Int[Tensor, "B T"] | None = None,
        state: Hidden | None = None,
    ) -> Float[Tensor, "B T _H"]:
        """See `Recurrent.forward`; y_t = W h_t if there is an output matrix, otherwise h_t."""
        h = super().forward(x, mask=mask, positions=positions, state=state)
        return h if self.to_output is None else self.to_output(h)

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


class ElmanConfig(RecurrentConfig):
    """h_t = tanh(W x_t + U h_t-1 + b) (Elman 1990)."""

    layer = Elman


@dataclass(frozen=True)
class LSTMConfig(RecurrentConfig):
    """Long short-term memory (Hochreiter, Schmidhuber 1997)."""

    layer = LSTM

    weight_dropout: Rate = 0.0
    """Share of the weights from state to state that an update of training sets to zero (Merity et al. 2018)."""
    hidden: Count | None = None
    """Width of the state; a matrix then maps it to the width of the model (as Sak et al. 2014, but outside of the
    recurrence). Absent: the width of the model, and no such matrix."""

    def build_layer(self, input_dim: int, hidden: int) -> LSTM:
        """Build the layer of one direction."""
        layer = LSTM(input_dim, hidden) if self.hidden is None else LSTM(input_dim, self.hidden, hidden)
        layer.weight_dropout = self.weight_dropout
        return layer


class TorchGRUConfig(RecurrentConfig):
    """GRU as cuDNN computes it: the reset gate acts after the product; fused on accelerators."""

    layer = TorchGRU
