"""The gated recurrence: GRU (Cho et al. 2014) and its mutations MUT1 to MUT3 (Jozefowicz et al. 2015).

They are one family, r = σ(x_r + W_r h), z = σ(x_z + W_z f(h)), n = tanh(x_n + W_n (r * h)), h' = h + z * (n - h), and
differ in what x_r, x_z and x_n are made of. The loop over time is in `recurrence.py`. It runs in the dtype of its
weights; autocast lowers only the products with the input.
"""

from typing import Any, ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.errors import ConfigError
from regard.parts.cache import Memo
from regard.parts.recurrence import gated_states, gates
from regard.parts.recurrent import KEEPING_GATE, TAKING_GATE, Recurrent, RecurrentConfig, after_last_real


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
        out = gated_states(*self._given(x, start)).transpose(0, 1)
        return out, (after_last_real(out, start[0].to(out.dtype), lengths),)

    def _given(self, x: Tensor, start: tuple[Tensor, ...]) -> tuple[Any, ...]:
        """Return what `gated_states` computes from."""
        dtype = self.W_hr.weight.dtype
        products = (product.to(dtype) for product in self.products(x.transpose(0, 1)))
        weights = self.W_hr.weight, self.update_weight(), self.W_hh.weight
        return *products, start[0].to(dtype), *weights, self.squash

    def trace(self, x: Tensor, start: tuple[Tensor, ...], memo: Memo | None = None) -> tuple[Tensor, ...]:
        """See `Mixer.trace`; z is the share of the candidate."""
        x_r, x_z, x_n, first, *rest = self._given(x, start)
        h = gated_states(x_r, x_z, x_n, first, *rest)
        r, z, n = gates(x_r, x_z, x_n, torch.cat((first[None], h[:-1])), *rest)
        return tuple(values.transpose(0, 1) for values in (h, z, r, n))


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

    def trace(self, x: Tensor, start: tuple[Tensor, ...], memo: Memo | None = None) -> tuple[Tensor, ...]:
        """See `Mixer.trace`; z is the share of the old state here."""
        h, z, r, n = super().trace(x, start, memo)
        return h, 1 - z, r, n


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


class GRUConfig(RecurrentConfig):
    """Gated recurrent unit (Cho et al. 2014)."""

    layer = GRU


class MUT1Config(RecurrentConfig):
    """First of three mutated GRUs found by search (Jozefowicz et al. 2015)."""

    layer = MUT1


class MUT2Config(RecurrentConfig):
    """Second mutated GRU (Jozefowicz et al. 2015)."""

    layer = MUT2


class MUT3Config(RecurrentConfig):
    """Third mutated GRU (Jozefowicz et al. 2015)."""

    layer = MUT3
