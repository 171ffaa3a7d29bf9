"""Recurrence, convolution and attention on sequences of growing length: time, memory and sequential steps.

Vaswani et al. 2017, table 1: a layer of width d costs O(N d^2) and N sequential steps (recurrence), O(k N d^2) and
O(1) steps, but N/k layers until the ends of a sequence meet (convolution), or O(N^2 d) and O(1) steps (attention). The
memory of attention is O(N^2) if the weights are kept, and O(N) with a fused kernel (Dao et al. 2022).
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import ceil
from statistics import median
from time import perf_counter
from typing import Any

import torch
from torch import Tensor, nn

from regard import draw
from regard.lab.experiment import Experiment, Lab, Picture, Row, Verdict
from regard.lab.exponent import fit_exponent
from regard.lab.spread import over_seeds
from regard.parts.attend import explicit
from regard.parts.attention import Attention
from regard.parts.mask import Causal
from regard.parts.recurrent import Recurrent

RECURRENCE, CONVOLUTION, EXPLICIT, FUSED = "recurrence", "convolution", "attention, explicit", "attention, fused"
LAYERS = (RECURRENCE, CONVOLUTION, EXPLICIT, FUSED)
TOLERANCE = 0.2  # of the exponents of memory
FITTED = 3  # the largest lengths that an exponent is fitted to


@dataclass(frozen=True)
class _Settings:
    lengths: tuple[int, ...] = (64, 128, 256, 512, 1024, 2048)
    width: int = 64
    heads: int = 4
    repeats: int = 3


class _ExplicitAttention(Attention):
    """Attention by its definition, with all weights in memory."""

    def attend(self, query: Tensor, key: Tensor, value: Tensor, terms: Any, memo: Any = None) -> Tensor:
        return explicit(query, key, value, terms)


def _measure(lab: Lab, settings: _Settings) -> Iterator[Row]:
    layers = _layers(lab, settings)
    reach = {name: _reach(layer, settings.width) for name, layer in layers.items()}
    for number, length in enumerate(settings.lengths):
        lab.progress(f"length {length:,}", number / len(settings.lengths))
        x = torch.randn(1, length, settings.width, device=lab.device, requires_grad=True)
        for layer in layers.values():
            _update(layer, x)  # the first call plans and allocates
        seconds: dict[str, list[float]] = {name: [] for name in layers}
        for _ in range(settings.repeats):  # interleaved, so that other programs disturb all alike
            for name, layer in layers.items():
                seconds[name].append(_seconds(layer, x))
        for name, layer in layers.items():
            deep = 1 if reach[name] is None else max(ceil((length - 1) / reach[name]), 1)
            yield {
                "layer": name,
                "length": length,
                "seconds": median(seconds[name]),
                "bytes kept": _bytes_kept(layer, x),
                "layers to see all": deep,
                "sequential steps": deep * (length if isinstance(layer, Recurrent) else 1),
            }


def _layers(lab: Lab, settings: _Settings) -> dict[str, nn.Module]:
    """Return the mixers of the recipes lstm, conv and gpt2, the last one also by its definition."""
    sizes = [f"model.dim={settings.width}", "model.depth=1", "model.vocabulary=10"]
    heads = f"model.layers.block.mixer.heads.heads={settings.heads}"
    models: list[Any] = [lab.build("lstm", *sizes), lab.build("conv", *sizes), lab.build("gpt2", *sizes, heads)]
    recurrence, convolution, fused = (model.stack.layers[0].mixer.eval() for model in models)
    plain = _ExplicitAttention(fused.heads, fused.score, fused.position)
    return {RECURRENCE: recurrence, CONVOLUTION: convolution, EXPLICIT: plain.eval(), FUSED: fused}


def _reach(layer: nn.Module, width: int) -> Any:
    """Return how far back the output of one layer depends on its input; None if to the beginning."""
    parameter = next(layer.parameters())
    x = torch.randn(1, 32, width, device=parameter.device, requires_grad=True)
    layer(x, mask=Causal())[0, -1].sum().backward()
    assert x.grad is not None
    seen = x.grad[0].abs().sum(-1).nonzero()
    first = int(seen.min())
    return None if first == 0 else 31 - first


def _update(layer: nn.Module, x: Tensor) -> None:
    """Compute the layer and its gradient, and wait for the result."""
    layer(x, mask=Causal()).sum().backward()
    if x.device.type != "cpu":
        torch.accelerator.synchronize()


def _seconds(layer: nn.Module, x: Tensor) -> float:
    started = perf_counter()
    _update(layer, x)
    return perf_counter() - started


def _bytes_kept(layer: nn.Module, x: Tensor) -> int:
    """Count the memory that the forward pass keeps for the backward pass, except weights and the input."""
    known = {weight.untyped_storage().data_ptr() for weight in (*layer.parameters(), x)}
    kept: dict[int, Tensor] = {}  # tensors by the address of their memory; holding them keeps addresses distinct

    def note(tensor: Tensor) -> Tensor:
        if tensor.untyped_storage().data_ptr() not in known:
            kept[tensor.untyped_storage().data_ptr()] = tensor.detach()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        layer(x, mask=Causal())
    return sum(tensor.untyped_storage().nbytes() for tensor in kept.values())


def _draw(rows: Sequence[Row]) -> Iterable[Picture]:
    yield Picture(
        "memory",
        "Memory that one layer keeps for its backward pass. A line twice as steep grows with the square of the length.",
        draw.lines(rows, x="length", y="bytes kept", by="layer", log="xy", title="Memory"),
    )
    yield Picture(
        "time",
        "Time of the forward and backward pass of one layer on this machine.",
        draw.lines(rows, x="length", y="seconds", by="layer", log="xy", title="Time"),
    )
    yield Picture(
        "steps",
        "Steps that must wait for each other until the last output has seen the first input: one for each token in "
        "recurrence, one for each layer that is needed in convolution, one in attention.",
        draw.lines(rows, x="length", y="sequential steps", by="layer", log="xy", title="Sequential steps"),
    )


def _exponent(rows: Sequence[Row], layer: str, column: str) -> float:
    return fit_exponent(rows, "length", column, {"layer": layer}, largest=FITTED)


def _table(rows: Sequence[Row]) -> list[Row]:
    longest = max(row["length"] for row in rows)
    return [
        {
            "layer": layer,
            "memory grows as": f"length^{_exponent(rows, layer, 'bytes kept'):.2f}",
            "time grows as": f"length^{_exponent(rows, layer, 'seconds'):.1f}",
            **{
                f"{column} at {longest:,}": over_seeds(rows, column, {"layer": layer, "length": longest}).mean
                for column in ("bytes kept", "seconds", "sequential steps")
            },
        }
        for layer in LAYERS
    ]


def _judge(rows: Sequence[Row]) -> Verdict:
    memory = {layer: _exponent(rows, layer, "bytes kept") for layer in LAYERS}
    time = {layer: _exponent(rows, layer, "seconds") for layer in LAYERS}
    longest = max(row["length"] for row in rows)
    steps = {layer: over_seeds(rows, "sequential steps", {"layer": layer, "length": longest}).mean for layer in LAYERS}
    squared = abs(memory[EXPLICIT] - 2) < TOLERANCE
    linear = all(abs(memory[layer] - 1) < TOLERANCE for layer in (RECURRENCE, CONVOLUTION, FUSED))
    return Verdict(
        squared and linear and steps[FUSED] == 1 and steps[RECURRENCE] == longest,
        f"Memory grows as length^{memory[EXPLICIT]:.2f} for explicit attention, but as length^{memory[FUSED]:.2f} for "
        f"the fused kernel. At length {longest:,} recurrence needs {steps[RECURRENCE]:,.0f} sequential steps, "
        f"convolution {steps[CONVOLUTION]:,.0f} layers and attention one. On this machine, time grows as "
        f"length^{time[RECURRENCE]:.1f} in recurrence and as length^{time[FUSED]:.1f} in fused attention.",
    )


EXPERIMENT = Experiment(
    name="three-ways",
    title="Three ways to process a sequence: recurrence, convolution, attention",
    claim="""RNNs are not parallelizable: they need to compute hidden states sequentially. 1-D convolutions need many
layers for outputs to see the whole sequence. Self-attention is good at long sequences, after one layer each output
sees all inputs, and highly parallel, but very memory intensive.""",
    source="Lecture from RNNs to Transformers, 'Three ways of processing sequences'; Vaswani et al. 2017, table 1.",
    method="""One layer of each kind, from the recipes `lstm`, `conv` and `gpt2`, reads random sequences of growing
length; attention by its definition, with all weights in memory, and with the fused kernel that the package uses.

Memory is counted, not measured: the bytes of all tensors that the forward pass keeps for the backward pass. So it does
not depend on the machine. Time is that of the forward and backward pass, the median of some repetitions, which are
interleaved. How far one layer sees is measured by a gradient; from it follows the number of layers until the last
output depends on the first input, and with it the sequential steps. Exponents are fitted to the three largest lengths.

The verdict asks for a memory exponent within 0.2 of 2 for explicit attention, and of 1 for the others; times only
inform, since a machine may be busy.""",
    vary="""Longer sequences, where the memory lasts, or wider layers:

    regard lab three-ways "lengths=[512, 1024, 2048, 4096]" --out lab/three-ways-long
    regard lab three-ways width=256 heads=8 --out lab/three-ways-wide""",
    scales={
        "tiny": _Settings(lengths=(128, 256, 512), width=16),
        "default": _Settings(),
        "full": _Settings(lengths=(256, 512, 1024, 2048, 4096, 8192), width=256, heads=8, repeats=10),
    },
    measure=_measure,
    draw=_draw,
    judge=_judge,
    table=_table,
)
