"""Speed of the recurrent layers, forward and backward, as ratios of medians in one run: `python -m bench.recurrent`.

Elman, LSTM and TorchGRU against torch's modules (both eager). GRU and the MUTs, eager and compiled, against a plain
loop over time that leaves the gradient to autograd.
"""

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor, nn

from regard.parts.recurrent import GRU, LSTM, MUT1, MUT2, MUT3, Elman, Gated, TorchGRU

TORCH = {Elman: nn.RNN, LSTM: nn.LSTM, TorchGRU: nn.GRU}
GATED = [GRU, MUT1, MUT2, MUT3]
SIZES = {"cpu": (16, 64, 128), "cuda": (64, 128, 512)}  # B, T, D
REPEATS = {"cpu": 15, "cuda": 15}
GOAL = 1.05


def plain_loop(layer: Gated) -> Callable[[Tensor], Tensor]:
    """The equations of `gated_recurrence`, one token after the other."""

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


def milliseconds(call: Callable[[Tensor], Tensor], x: Tensor) -> float:
    """One forward and backward."""
    start = time.perf_counter()
    out = call(x)
    (out if isinstance(out, Tensor) else out[0]).sum().backward()
    if x.is_cuda:
        torch.cuda.synchronize()
    return 1000 * (time.perf_counter() - start)


def compare(name: str, calls: dict[str, Callable[[Tensor], Tensor]], x: Tensor) -> list[dict[str, object]]:
    """Rows for every call against the last one; the calls take turns, so that all meet the same load."""
    for _ in range(2):
        for call in calls.values():
            milliseconds(call, x)
    times: dict[str, list[float]] = {key: [] for key in calls}
    for _ in range(REPEATS[x.device.type]):
        for key, call in calls.items():
            times[key].append(milliseconds(call, x))
    medians = {key: statistics.median(values) for key, values in times.items()}
    *ours, reference = medians
    return [
        {
            "bench": "recurrent",
            "layer": name,
            "what": f"{key} / {reference}",
            "ms": medians[key],
            "reference_ms": medians[reference],
            "ratio": medians[key] / medians[reference],
            "goal": GOAL if reference == "torch" else 1.0,
        }
        for key in ours
    ]


def rows(device: str = "cpu") -> list[dict[str, object]]:
    """All comparisons on one device."""
    torch.set_num_threads(1)  # with several, a neighbour's load on one core stalls all of them
    B, T, D = SIZES[device]
    x = torch.randn(B, T, D, device=device)
    result = []
    for layer, reference in TORCH.items():
        ours, theirs = layer(D, D).to(device), reference(D, D, batch_first=True).to(device)
        result += compare(layer.__name__, {"eager": ours, "torch": theirs}, x)
    for layer in GATED:
        ours = layer(D, D).to(device)
        calls = {"eager": ours, "compiled": torch.compile(ours, fullgraph=True), "loop": plain_loop(ours)}
        result += compare(layer.__name__, calls, x)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=SIZES, default="cpu")
    device = parser.parse_args().device
    print(f"torch {torch.__version__}, {device}, B T D = {SIZES[device]}, forward and backward, medians")
    print(f"{'layer':10}{'what':20}{'ms':>9}{'against':>9}{'ratio':>7}{'goal':>7}")
    for row in rows(device):
        print("{layer:10}{what:20}{ms:9.2f}{reference_ms:9.2f}{ratio:7.2f}{goal:7.2f}".format(**row))


if __name__ == "__main__":
    main()
