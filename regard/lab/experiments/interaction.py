"""Where tokens meet: if one vector is changed, attention changes the others; norm and feed-forward do not.

For y = f(x), and x' which is x with another vector at one place j, the share of the change that reaches other tokens is
|y'_i - y_i|, i != j, over |y' - y|. It is 0 for a function that acts on each vector alone (Vaswani et al. 2017,
section 3.3: "position-wise"; layer norm: Ba et al. 2016), and not for batch norm, whose mean and variance are those of
all tokens (Ioffe, Szegedy 2015).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from regard import draw
from regard.errors import ConfigError
from regard.lab.experiment import Experiment, Lab, Picture, Row, Verdict
from regard.lab.spread import over_seeds

NOTHING, SOMETHING = 1e-12, 1e-3  # a share below the first is rounding; one above the second is not
ATTENTION, FEEDFORWARD, LAYER_NORM, BATCH_NORM = "attention", "feed-forward", "layer norm", "batch norm"
BLOCK, WITHOUT = "the whole block", "the block without attention"
ALONE, TOGETHER = (FEEDFORWARD, LAYER_NORM, WITHOUT), (ATTENTION, BLOCK)


@dataclass(frozen=True)
class _Settings:
    width: int = 64
    heads: int = 4
    rows: int = 4
    tokens: int = 16
    changes: int = 20


def _measure(lab: Lab, settings: _Settings) -> Iterator[Row]:
    if settings.tokens < 2:
        raise ConfigError(f"tokens={settings.tokens} must be at least 2")
    x = torch.randn(settings.rows, settings.tokens, settings.width, device=lab.device, dtype=torch.float64)
    for name, part in _parts(lab, settings).items():
        shares = [_share_of_others(part, x) for _ in range(settings.changes)]
        yield {"part": name, "change of other tokens": sum(shares) / len(shares)}


def _parts(lab: Lab, settings: _Settings) -> Mapping[str, Callable[[Tensor], Tensor]]:
    """Return the parts of a pre-norm block with random weights, by name."""
    block = "model.layers.block"
    sizes = [f"model.dim={settings.width}", "model.depth=1", "model.vocabulary=8"]
    sizes += [f"{block}.mixer.heads.heads={settings.heads}", f"{block}.feedforward.hidden={4 * settings.width}"]
    sizes += [f"{block}.dropout=0.0", f"{block}.mixer.dropout=0.0", "model.init.kind=xavier"]
    model: Any = lab.build("gpt2", *sizes).double().train()
    other: Any = lab.build("gpt2", *sizes, f"{block}.norm.kind=batch").double().train()
    layer, batch = model.stack.layers[0], other.stack.layers[0]
    return {
        ATTENTION: layer.mixer,
        FEEDFORWARD: layer.feedforward,
        LAYER_NORM: layer.residual.norms["mixer"],
        BATCH_NORM: batch.residual.norms["mixer"],
        WITHOUT: lambda x: layer.residual(x, {"feedforward": layer.feedforward}),
        BLOCK: layer,
    }


@torch.no_grad()
def _share_of_others(part: Callable[[Tensor], Tensor], x: Tensor) -> float:
    """Return how much of the change of the output is at other places than the change of the input, in the first row."""
    place = int(torch.randint(x.shape[1], ()))
    changed = x.clone()
    changed[0, place] = torch.randn_like(changed[0, place])
    change = part(changed) - part(x)
    others = change.clone()
    others[0, place] = 0
    return float(others.norm() / change.norm())


def _draw(rows: Sequence[Row]) -> Iterable[Picture]:
    yield Picture(
        "share",
        "One vector is changed. The bars show how much of the change of the output is in the vectors of other tokens.",
        draw.bars(rows, x="part", y="change of other tokens", title="Which parts let tokens see each other?"),
    )


def _judge(rows: Sequence[Row]) -> Verdict:
    names = (*ALONE, *TOGETHER, BATCH_NORM)
    share = {name: over_seeds(rows, "change of other tokens", {"part": name}) for name in names}
    most = max(share[name].high for name in ALONE)
    return Verdict(
        most < NOTHING and min(share[name].low for name in TOGETHER) > SOMETHING,
        f"If one vector is changed, the share of the change that reaches other tokens is {share[ATTENTION]} in "
        f"attention and {share[BLOCK]} in the whole block. In the feed-forward, in layer norm and in the block without "
        f"attention it is {most:.2g}. Batch norm, which averages over all tokens, gives {share[BATCH_NORM]}.",
    )


EXPERIMENT = Experiment(
    name="interaction",
    title="Tokens see each other in attention only; norm and feed-forward act on each alone",
    claim="In a Transformer block, self-attention is the only interaction between vectors: layer norm and the MLP work "
    "independently on each vector.",
    source="Lecture from RNNs to Transformers, 'The Transformer block'.",
    method="""One block of GPT-2 with random weights, without a mask and in double precision, reads random vectors. We
replace one of them by another random vector, and compare the outputs of each part of the block: the norm of the change
at all other places, divided by that of the whole change, averaged over changes. A share below 1e-12 counts as none.

Batch norm is measured in training mode, where its mean and variance are those of the batch.""",
    vary="""More tokens among which attention divides its weights:

    regard lab interaction tokens=256 --out lab/interaction-long""",
    scales={
        "tiny": _Settings(width=16, heads=2, rows=2, tokens=6, changes=3),
        "default": _Settings(),
        "full": _Settings(width=512, heads=8, rows=16, tokens=256, changes=50),
    },
    measure=_measure,
    draw=_draw,
    judge=_judge,
)
