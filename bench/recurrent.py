"""Speed of the recurrent layers, forward and backward, as ratios of medians in one run: `python -m bench.recurrent`.

Elman, LSTM and TorchGRU against torch's modules (both eager). GRU and the MUTs, eager and compiled, against a plain
loop over time that leaves the gradient to autograd.
"""

import argparse
from collections.abc import Callable

import torch
from torch import Tensor, nn

from bench.timing import Row, milliseconds, show
from regard.parts.recurrent import GRU, LSTM, MUT1, MUT2, MUT3, Elman, Gated, TorchGRU

TORCH = {Elman: nn.RNN, LSTM: nn.LSTM, TorchGRU: nn.GRU}
GATED = [GRU, MUT1, MUT2, MUT3]
SIZES = {"cpu": (16, 64, 128), "cuda": (64, 128, 512)}  # B, T, D


def plain_loop(layer: Gated) -> Callable[[Tensor], Tensor]:
    """Return a function that computes the equations of `gated_recurrence` token by token."""

    def call(x: Tensor) -> Tensor:
        W_r, W_z, W_n = layer.W_hr.weight, layer.update_weight(), layer.W_hh.weight
        h, states = x.new_zeros(x.shape[0], layer.hidden), []
        for x_r, x_z, x_n in zip(*(part.unbind(0) for part in layer.products(x.transpose(0, 1))), strict=True):
            r = torch.sigmoid(x_r + h @ W_r.t())
            if W_z is not None:
                x_z = x_z + (h.tanh() if layer.squash else h) @ W_z.t()
            h = torch.lerp(h, torch.tanh(x_n + (r * h) @ W_n.t()), torch.sigmoid(x_z))
            states.append(h)
        return torch.stack(states, 1)

    return call


def forward_backward(call: Callable[[Tensor], Tensor], x: Tensor) -> Callable[[], object]:
    """Return a function that runs one forward and backward pass."""

    def once() -> None:
        out = call(x)
        (out if isinstance(out, Tensor) else out[0]).sum().backward()

    return once


def rows(device: str = "cpu") -> list[Row]:
    """Return all comparisons on one device."""
    torch.set_num_threads(1)  # with several, another process on one core stalls all of them
    B, T, D = SIZES[device]
    x = torch.randn(B, T, D, device=device)
    result = []
    for layer, reference in TORCH.items():
        ours, theirs = layer(D, D).to(device), reference(D, D, batch_first=True).to(device)
        result += compare(layer.__name__, {"eager": ours, f"torch.nn.{reference.__name__}": theirs}, x, 1.05)
    for layer in GATED:
        ours = layer(D, D).to(device)
        calls = {"eager": ours, "compiled": torch.compile(ours, fullgraph=True), "plain loop": plain_loop(ours)}
        result += compare(layer.__name__, calls, x, 1.0)
    return result


def compare(name: str, calls: dict[str, Callable[[Tensor], Tensor]], x: Tensor, goal: float) -> list[Row]:
    """Return rows that compare every call with the last one."""
    timed = {key: forward_backward(call, x) for key, call in calls.items()}
    medians = milliseconds(timed, x.device.type, repeats=41)
    *ours, theirs = medians
    return [Row("recurrent", f"{name} {key}", theirs, medians[key], medians[theirs], goal) for key in ours]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=SIZES, default="cpu")
    show(rows(parser.parse_args().device))
