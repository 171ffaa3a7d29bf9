"""Gradient flow: how much of the gradient at the last token arrives at a token some steps before it.

In an Elman network dh_t/dh_(t-1) = diag(tanh'(a_t)) W_hh, the same matrix at every step, so the gradient over a
distance d is about (tanh' * rho)^d with rho the spectral radius of W_hh: it vanishes or explodes (Hochreiter 1991;
Bengio et al. 1994; Pascanu et al. 2013). In an LSTM dc_t/dc_(t-1) = f_t: it stays where the forget gate is open
(Hochreiter, Schmidhuber 1997; Gers et al. 2000). Attention reaches every token in one step.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import log10
from statistics import fmean, geometric_mean
from typing import Any

import torch
from torch import Tensor

from regard import draw
from regard.lab.experiment import Experiment, Lab, Picture, Row, Verdict
from regard.lab.spread import over_seeds
from regard.models.language import LanguageModel
from regard.parts.mask import Causal

FIRST, FAR = 10, 100  # distances between which the factor per step is measured
ORDERS = 3.0  # orders of magnitude by which the LSTM must exceed the Elman network
LEVEL = 10.0  # the gradient of attention may change by this factor over the distance

# Where the bias of the gate is that decides how much of the state is kept: its parameter, which of the blocks of rows
# it is, and the sign with which it keeps (in a MUT, z weighs the new state).
KEEP_GATES = {
    "lstm": ("b_x", 1, 1.0),
    "gru": ("W_x.bias", 1, 1.0),
    "mut1": ("W_x.bias", 1, -1.0),
    "mut2": ("W_x.bias", 0, -1.0),
    "mut3": ("W_x.bias", 1, -1.0),
}


@dataclass(frozen=True)
class _Settings:
    width: int = 64
    length: int = 151  # tokens of a row
    every: int = 5  # tokens between two distances that are kept
    rows: int = 16
    radii: tuple[float, ...] = (0.5, 0.8, 1.0, 1.2, 1.5, 2.0, 3.0)  # spectral radii of W_hh
    gates: tuple[float, ...] = (0.0, 2.0, 5.0)  # biases of the gate that keeps the state: sigmoid(5) = 0.993


def _measure(lab: Lab, settings: _Settings) -> Iterator[Row]:
    width = f"model.dim={settings.width}"
    for radius in settings.radii:
        model = lab.build("elman", width, "model.vocabulary=64")
        singular = _set_radius(model, radius)
        facts = {"cell": "Elman", "spectral radius": radius, "largest singular value": singular}
        yield from _gradients(lab, settings, model, {"model": f"Elman, radius {radius:g}", **facts})
        silent = {"model": f"Elman, radius {radius:g}, no input", **facts}
        yield from _gradients(lab, settings, model, silent, loudness=0.0)
    for recipe in KEEP_GATES:
        for bias in settings.gates:
            model = lab.build(recipe, width, "model.vocabulary=64", "model.depth=1")
            _open_gate(model, recipe, bias)
            name = recipe.upper()
            yield from _gradients(
                lab, settings, model, {"model": f"{name}, gate bias {bias:g}", "cell": name, "gate bias": bias}
            )
    size = (width, "model.vocabulary=64", "model.depth=1", f"model.embed.position.length={settings.length}")
    block = ("model.layers.block.mixer.heads.heads=4", f"model.layers.block.feedforward.hidden={4 * settings.width}")
    yield from _gradients(lab, settings, lab.build("gpt2", *size, *block), {"model": "attention", "cell": "attention"})


def _gradients(lab: Lab, settings: _Settings, model: Any, facts: Row, loudness: float = 1.0) -> Iterator[Row]:
    """Yield |d(u.y_T)/dx_(T-d)| for random directions u, with inputs x scaled by `loudness`.

    One backward pass in float64, since float32 would underflow; geometric mean over the rows of a batch.
    """
    assert isinstance(model, LanguageModel)
    model = model.eval().double()
    lab.progress(str(facts["model"]), 0.5)
    tokens = torch.randint(64, (settings.rows, settings.length), device=lab.device)
    x = (loudness * model.embed(tokens, None)).detach().requires_grad_()
    y = model.stack(x, mask=Causal())[:, -1]
    directions = torch.nn.functional.normalize(torch.randn_like(y), dim=-1)
    (gradient,) = torch.autograd.grad((directions * y).sum(), x)
    norms = gradient.norm(dim=-1).clamp(min=1e-300).log().mean(0).exp().flip(0)
    for distance in (1, *range(settings.every, settings.length, settings.every)):
        yield {
            **facts,
            "input": "tokens" if loudness else "none",
            "distance": distance,
            "gradient norm": norms[distance],
            "relative gradient": norms[distance] / norms[1],
        }


@torch.no_grad()
def _set_radius(model: Any, radius: float) -> float:
    """Scale W_hh to this spectral radius; return its largest singular value."""
    matrix: Tensor = model.stack.layers[0].mixer.W_h
    matrix *= radius / torch.linalg.eigvals(matrix).abs().max()
    return float(torch.linalg.matrix_norm(matrix, 2))


@torch.no_grad()
def _open_gate(model: Any, recipe: str, bias: float) -> None:
    """Set the bias of the gate so that it keeps sigmoid(bias) of the state, as far as inputs do not change it."""
    name, block, sign = KEEP_GATES[recipe]
    mixer = model.stack.layers[0].mixer
    rows = slice(block * mixer.hidden, (block + 1) * mixer.hidden)
    mixer.get_parameter(name)[rows] = sign * bias


def _summary(rows: Sequence[Row]) -> list[Row]:
    """Return a row for each model and seed: the factor per step, and the gradient at the far distance."""
    found: list[Row] = []
    for name in dict.fromkeys(row["model"] for row in rows):
        for seed in dict.fromkeys(row["seed"] for row in rows):
            norms = {
                row["distance"]: row["relative gradient"]
                for row in rows
                if row["model"] == name and row["seed"] == seed
            }
            first = next(row for row in rows if row["model"] == name)
            kept = ("model", "cell", "input", "spectral radius", "largest singular value", "gate bias")
            far = max(distance for distance in norms if distance <= FAR)
            factor = (norms[far] / norms[FIRST]) ** (1 / (far - FIRST))
            facts = {key: first[key] for key in kept if key in first}
            found.append({"seed": seed, **facts, "factor per step": factor, "far": norms[far]})
    return found


def _table(rows: Sequence[Row]) -> list[Row]:
    """Return the table of the page: one row for each model."""
    summary = _summary(rows)
    return [
        {
            "model": name,
            "factor per step": str(over_seeds(summary, "factor per step", {"model": name})),
            f"gradient at distance {FAR}, relative to 1": f"{_typical(summary, name):.1e}",
        }
        for name in dict.fromkeys(row["model"] for row in summary)
    ]


def _far(summary: Sequence[Row], name: str) -> list[float]:
    """Return the gradient at the far distance for each seed."""
    return [row["far"] for row in summary if row["model"] == name]


def _typical(summary: Sequence[Row], name: str) -> float:
    """Return its geometric mean."""
    return geometric_mean(_far(summary, name))


def _draw(rows: Sequence[Row]) -> Iterable[Picture]:
    elman = [row for row in rows if row["cell"] == "Elman"]
    yield Picture(
        "elman",
        "Elman network: gradient at the last token with respect to earlier tokens, relative to distance 1, for several "
        "spectral radii of the recurrent matrix. A straight line is a constant factor per step.",
        draw.lines(
            [{**row, "series": f"radius {row['spectral radius']:g}"} for row in elman if row["input"] == "tokens"],
            x="distance", y="relative gradient", by="series", log="y", title="Elman: it vanishes or explodes",
        ),
    )  # fmt: skip
    summary = _summary(rows)
    factors = [
        {**row, "series": "with inputs" if row["input"] == "tokens" else "without inputs"}
        for row in summary
        if row["cell"] == "Elman"
    ]
    edge = [{**row, "factor per step": 1.0, "series": "neither vanishes nor explodes"} for row in factors]
    yield Picture(
        "radius",
        "The factor by which the gradient of an Elman network changes at every step. Without inputs tanh is linear, "
        "and the factor is the spectral radius; with inputs it saturates, and tanh' < 1 makes the factor smaller.",
        draw.lines(
            [*factors, *edge], x="spectral radius", y="factor per step", by="series",
            styles={"neither vanishes nor explodes": "--"}, title="Factor per step against the spectral radius",
        ),
    )  # fmt: skip
    widest = _widest_gate(rows)
    shown = [_best_elman(summary), *(name for name in _names(rows) if name.endswith(f"bias {widest:g}")), "attention"]
    yield Picture(
        "cells",
        f"Gradient against distance: the Elman network whose factor is closest to 1, gated cells whose gate keeps "
        f"sigmoid({widest:g}) of the state, and one layer of attention.",
        draw.lines(
            [row for row in rows if row["model"] in shown], x="distance", y="relative gradient", by="model", log="y",
            title="Gates and attention",
        ),
    )  # fmt: skip
    lstm = [{**row, "series": f"bias {row['gate bias']:g}"} for row in rows if row["cell"] == "LSTM"]
    yield Picture(
        "gates",
        "LSTM: the forget gate decides. With bias 0 it is half closed, and the gradient vanishes as in an Elman "
        "network; training can open it.",
        draw.lines(lstm, x="distance", y="relative gradient", by="series", log="y", title="LSTM: the forget gate"),
    )


def _widest_gate(rows: Sequence[Row]) -> float:
    """Return the bias of the gates that are open most."""
    return float(max(row.get("gate bias", 0.0) for row in rows))


def _names(rows: Sequence[Row]) -> list[str]:
    return list(dict.fromkeys(row["model"] for row in rows))


def _best_elman(summary: Sequence[Row]) -> str:
    """Return the Elman network with inputs whose factor per step is closest to 1, over all seeds."""
    elman = [row for row in summary if row["cell"] == "Elman" and row["input"] == "tokens"]

    def away(name: str) -> float:
        return fmean(abs(row["factor per step"] - 1) for row in elman if row["model"] == name)

    return min(_names(elman), key=away)


def _judge(rows: Sequence[Row]) -> Verdict:
    summary = _summary(rows)
    elman = [row for row in summary if row["cell"] == "Elman"]
    silent = [row for row in elman if row["input"] == "none" and row["spectral radius"] != 1]
    by_radius = all((row["factor per step"] < 1) == (row["spectral radius"] < 1) for row in silent)
    with_input = [row for row in elman if row["input"] == "tokens"]
    exploding = sorted({row["spectral radius"] for row in with_input if row["factor per step"] > 1})
    limit = f"only from radius {exploding[0]:g} on" if exploding else "at none of these radii"
    stable = {row["model"] for row in with_input if row["spectral radius"] <= 1}
    best, widest = _best_elman(summary), _widest_gate(rows)
    lstm, closed = f"LSTM, gate bias {widest:g}", "LSTM, gate bias 0"
    attention = over_seeds(summary, "far", {"model": "attention"})
    if not stable or closed not in _names(summary):
        return Verdict(
            None,
            f"Over {FAR} steps the gradient of an LSTM with gates of bias {widest:g} changes by the factor "
            f"{_typical(summary, lstm):.2g}, that of {_in_words(best)} by {_typical(summary, best):.2g}, and that of "
            f"attention by {attention}. To decide the claim, give a radius of at most 1 and the bias 0 as well.",
        )
    nearest = max(stable, key=lambda name: _typical(summary, name))
    gain = [log10(one / other) for one, other in zip(_far(summary, lstm), _far(summary, nearest), strict=True)]
    orders = [f"10^{each:.0f}" for each in (fmean(gain), min(gain), max(gain))]
    times = orders[0] if orders[1] == orders[2] else f"{orders[0]} ({orders[1]} to {orders[2]})"
    level = attention.low > 1 / LEVEL and attention.high < LEVEL
    return Verdict(
        by_radius and min(gain) > ORDERS and level,
        f"Over {FAR} steps the gradient of an LSTM with open forget gates (bias {widest:g}) changes by the factor "
        f"{_typical(summary, lstm):.2g}, and that of attention by {attention}. In {_in_words(nearest)} it becomes "
        f"{times} times smaller than in that LSTM. Without "
        f"inputs an Elman gradient shrinks below spectral radius 1 and grows above it; with inputs, which saturate "
        f"tanh, it grows {limit}. In an LSTM whose forget gates are half closed (bias 0) the factor is "
        f"{_typical(summary, closed):.0e}, and in {_in_words(best)}, near the edge, {_typical(summary, best):.0e}: "
        f"gates can keep the gradient, they do not guarantee it.",
    )


def _in_words(name: str) -> str:
    """Return the name of an Elman network for a sentence."""
    return f"an Elman network of {name.removeprefix('Elman, ')}"


EXPERIMENT = Experiment(
    name="vanishing",
    title="Gradients vanish in an Elman network; gates and attention keep them",
    claim="Backpropagation through an Elman network multiplies by the same matrix at every step: the gradient vanishes "
    "where its largest eigenvalue is below 1, explodes where it is above 1, and tanh' is always below 1. In an LSTM "
    "the gradient of the cell is only multiplied by the forget gate, which training can open; but an LSTM does not "
    "guarantee that gradients neither vanish nor explode. In self-attention every output sees all inputs after one "
    "layer.",
    source="Lecture from RNNs to Transformers: vanilla RNN gradient flow, LSTM gradient flow, three ways of processing "
    "sequences. Hochreiter 1991; Bengio et al. 1994; Hochreiter, Schmidhuber 1997; Gers et al. 2000; Pascanu et al. "
    "2013; the cells MUT1 to MUT3 are those of Jozefowicz et al. 2015.",
    method="""One layer with random weights reads random tokens. We take a random direction u of the last output y_T and
measure the norm of d(u.y_T)/dx_(T-d), the gradient at the input d tokens before, in float64, by one backward pass;
geometric mean over the rows of a batch. All numbers are relative to distance 1, since the cells differ in scale. The
factor per step is measured between the distances 10 and 100.

Elman network: its recurrent matrix is scaled to several spectral radii. (The largest singular value of such a random
matrix is about twice its spectral radius; `results.csv` has both.) It is measured with inputs, and without any: then
all states are 0, tanh is the identity, and the gradient is a power of the matrix, as in the lecture's 'what if we
assumed no non-linearity'.

Gated cells (LSTM, GRU, MUT1 to MUT3): the gate that keeps the state gets the biases 0, 2 and 5, so that it keeps about
0.5, 0.88 and 0.993 of it; this is what training can learn, and 0 is how it starts here.

Attention: one pre-norm layer of GPT-2.""",
    vary="""A wider network has a sharper edge between vanishing and exploding; other radii and biases:

    regard lab vanishing width=512 --out lab/vanishing-wide
    regard lab vanishing 'radii=[1.1, 1.3, 1.5, 1.7]' 'gates=[1.0, 8.0]' --out lab/vanishing-edge""",
    scales={
        "tiny": _Settings(width=16, length=106, rows=4, radii=(0.5, 1.5), gates=(0.0, 5.0)),
        "default": _Settings(),
        "full": _Settings(width=512, length=501, rows=32),
    },
    measure=_measure,
    draw=_draw,
    judge=_judge,
    table=_table,
)
