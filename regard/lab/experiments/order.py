"""Self-attention does not see order: f(s(x)) = s(f(x)) for every permutation s; a positional encoding breaks this.

The error is |f(s(x)) - s(f(x))| / |f(x)|. Encodings: linear a*pos + b; sinusoidal (Vaswani et al. 2017); learned;
rotary (Su et al. 2021); ALiBi (Press et al. 2022); T5's relative bias (Raffel et al. 2020). So does a causal mask.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch

from regard import draw
from regard.errors import ConfigError
from regard.lab.experiment import Experiment, Lab, Picture, Row, Verdict
from regard.lab.spread import over_seeds
from regard.models.model import Model

EQUAL, DIFFERENT = 1e-6, 1e-3  # an error below the first is rounding; one above the second is not

NONE = "none"
ABSOLUTE, RELATIVE = "model.embed.position", "model.layers.block.mixer.position"
ENCODINGS = {  # what is changed in BERT, which has learned positions
    NONE: (f"{ABSOLUTE}=none",),
    "linear": (f"{ABSOLUTE}.kind=linear",),
    "sinusoidal": (f"{ABSOLUTE}.kind=sinusoidal",),
    "learned": (),
    "rotary": (f"{ABSOLUTE}=none", f"{RELATIVE}.kind=rope"),
    "ALiBi": (f"{ABSOLUTE}=none", f"{RELATIVE}.kind=alibi"),
    "T5 bias": (f"{ABSOLUTE}=none", f"{RELATIVE}.kind=relative-bias", f"{RELATIVE}.both_ways=true"),
}
NORMED = "linear, normed"
CAUSAL = "none, causal mask"


@dataclass(frozen=True)
class _Settings:
    width: int = 64
    heads: int = 4
    depth: int = 4
    tokens: int = 32
    permutations: int = 20


def _measure(lab: Lab, settings: _Settings) -> Iterator[Row]:
    if settings.tokens < 2:
        raise ConfigError(f"tokens={settings.tokens} must be at least 2")
    sizes = [f"model.dim={settings.width}", f"model.depth={settings.depth}", "model.vocabulary=100"]
    sizes += [f"model.layers.block.mixer.heads.heads={settings.heads}"]
    tokens = torch.randint(100, (1, settings.tokens))
    orders = [torch.randperm(settings.tokens) for _ in range(settings.permutations)]
    plain = "model.embed.norm=none"  # a norm of the embedding would remove the linear encoding: see NORMED
    models = {name: lab.build("bert", *sizes, plain, *changes) for name, changes in ENCODINGS.items()}
    models[NORMED] = lab.build("bert", *sizes, *ENCODINGS["linear"])
    models[CAUSAL] = lab.build("gpt2", *sizes, f"{ABSOLUTE}=none")
    for number, (name, model) in enumerate(models.items()):
        lab.progress(name, number / len(models))
        error = _equivariance_error(model.double().eval(), tokens.to(lab.device), orders)
        yield {"encoding": name, "equivariance error": error}


@torch.no_grad()
def _equivariance_error(model: Model, tokens: torch.Tensor, orders: Sequence[torch.Tensor]) -> float:
    """Return the mean of |f(s(x)) - s(f(x))| / |f(x)| over permutations s."""
    for weight in model.parameters():  # the initial weights are small, and some of positions are zero
        weight.add_(torch.randn_like(weight), alpha=weight.shape[-1] ** -0.5)
    result = model(tokens)[0]
    errors = [(model(tokens[:, order])[0] - result[order]).norm() / result.norm() for order in orders]
    return float(torch.stack(errors).mean())


def _draw(rows: Sequence[Row]) -> Iterable[Picture]:
    yield Picture(
        "error",
        "How far the output for shuffled words is from the shuffled output (1 is as large as the output itself). "
        "Without an encoding it is rounding in double precision.",
        draw.bars(rows, x="encoding", y="equivariance error", log="y", title="Does the order of words matter?"),
    )


def _judge(rows: Sequence[Row]) -> Verdict:
    error = {name: over_seeds(rows, "equivariance error", {"encoding": name}) for name in (*ENCODINGS, NORMED, CAUSAL)}
    least = min((name for name in ENCODINGS if name != NONE), key=lambda name: error[name].low)
    return Verdict(
        error[NONE].high < EQUAL and error[least].low > DIFFERENT,
        f"Without positions the equivariance error is at most {error[NONE].high:.2g}. With them it is at least "
        f"{error[least].low:.2g} ({least}). A causal mask alone gives {error[CAUSAL]}: a decoder sees order even "
        f"without positions. But a layer norm right after the linear encoding removes it: {error[NORMED].high:.2g}.",
    )


EXPERIMENT = Experiment(
    name="order",
    title="Self-attention does not see the order of words; positions break the symmetry",
    claim="""The input is observed as a set: shuffling the order of the tokens gives the same outputs, only in the same
shuffled order (self-attention is permutation equivariant). The solution is to add positions to the input.""",
    source="Slides on self-attention, 'Transformers lack sensitivity to the order of the input tokens'; notes from NMT "
    "to Transformers, 10.3.",
    method="""A BERT encoder with random weights, in double precision, reads random tokens, then the same tokens in
another order. We compare its outputs f(s(x)) with the reordered outputs s(f(x)): the norm of the difference divided by
that of the output, averaged over random permutations s. An error below 1e-6 counts as none, one above 1e-3 as broken.

The encoder is built without positions, and with each encoding, without the norm that BERT has after its embedding. Two
more bars: with that norm, the linear encoding, which adds the same number to all features, is removed again, since a
layer norm subtracts the mean; and a GPT-2 without positions, whose causal mask is not symmetric.""",
    vary="""Fewer permuted tokens, deeper models, or more heads:

    regard lab order tokens=4 --out lab/order-short
    regard lab order depth=12 --out lab/order-deep""",
    scales={
        "tiny": _Settings(width=16, heads=2, depth=1, tokens=12, permutations=3),
        "default": _Settings(),
        "full": _Settings(width=256, heads=8, depth=12, tokens=256, permutations=50),
    },
    measure=_measure,
    draw=_draw,
    judge=_judge,
)
