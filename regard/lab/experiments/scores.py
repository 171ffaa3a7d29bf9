"""Score functions as the width grows: additive, dot, scaled dot, bilinear and reduced-rank bilinear.

The dot product of two random vectors of width d has the standard deviation sqrt(d). So without the factor 1/sqrt(d)
the softmax saturates and its gradient vanishes (Vaswani et al. 2017, 3.2.1). Additive: Bahdanau et al. 2015; bilinear:
Luong et al. 2015.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch

from regard import draw
from regard.lab.experiment import Experiment, Lab, Picture, Row, Verdict
from regard.lab.exponent import fit_exponent
from regard.lab.spread import over_seeds
from regard.models.init import XavierConfig, initialise
from regard.parts.attend import Terms, explain
from regard.parts.score import AdditiveConfig, BilinearConfig, DotConfig, ReducedRankConfig

DOT, SCALED = "dot", "scaled dot"
SCORES = {
    DOT: DotConfig(scale=1.0),
    SCALED: DotConfig(),
    "bilinear": BilinearConfig(),
    "reduced rank": ReducedRankConfig(),
    "additive": AdditiveConfig(),
}


@dataclass(frozen=True)
class _Settings:
    widths: tuple[int, ...] = (4, 16, 64, 256, 1024)
    queries: int = 128
    keys: int = 64


def _measure(lab: Lab, settings: _Settings) -> Iterator[Row]:
    for number, width in enumerate(settings.widths):
        lab.progress(f"width {width}", number / len(settings.widths))
        query = torch.randn(1, 1, settings.queries, width).to(lab.device)
        key = torch.randn(1, 1, settings.keys, width).to(lab.device)
        for name, config in SCORES.items():
            score = config.build(width, width)
            initialise(score, XavierConfig())
            score = score.to(lab.device)
            found = explain(score.query(query), score.key(key), Terms(score))
            scores, weights = found.scores.detach(), found.weights.detach()
            yield {
                "score": name,
                "width": width,
                "standard deviation of scores": scores.std(),
                "entropy in bits": -(weights * weights.clamp(min=1e-30).log2()).sum(-1).mean(),
                "gradient norm": _gradient(scores),
            }


def _gradient(scores: torch.Tensor) -> torch.Tensor:
    """Return how strongly the weights depend on the scores: the norm of d(a.u)/d(score) for random u, per query."""
    leaf = scores.clone().requires_grad_()
    weights = leaf.softmax(-1)
    (weights * torch.randn_like(weights)).sum().backward()
    assert leaf.grad is not None
    return leaf.grad.norm(dim=-1).mean()


def _draw(rows: Sequence[Row]) -> Iterable[Picture]:
    yield Picture(
        "entropy",
        "Entropy of the attention weights of a random query. Where it falls to zero, the softmax has chosen one key "
        "before anything is learned.",
        draw.lines(rows, x="width", y="entropy in bits", by="score", log="x", title="How sharp attention starts"),
    )
    yield Picture(
        "gradient",
        "Norm of the gradient that passes the softmax.",
        draw.lines(rows, x="width", y="gradient norm", by="score", log="xy", title="What is left to learn from"),
    )
    yield Picture(
        "size",
        "Standard deviation of the scores.",
        draw.lines(
            rows, x="width", y="standard deviation of scores", by="score", log="xy", title="How large scores are"
        ),
    )


def _judge(rows: Sequence[Row]) -> Verdict:
    size = "standard deviation of scores"
    fitted = {name: fit_exponent(rows, "width", size, {"score": name}) for name in (DOT, SCALED)}
    exponents = {name: round(exponent, 2) + 0.0 for name, exponent in fitted.items()}  # 0.0 + -0.0 is 0.0
    widest = max(row["width"] for row in rows)
    entropy = {name: over_seeds(rows, "entropy in bits", {"score": name, "width": widest}) for name in SCORES}
    gradient = {name: over_seeds(rows, "gradient norm", {"score": name, "width": widest}) for name in SCORES}
    ratio = gradient[SCALED].mean / gradient[DOT].mean
    holds = abs(exponents[DOT] - 0.5) < 0.1 and abs(exponents[SCALED]) < 0.1
    holds = holds and entropy[DOT].high < entropy[SCALED].low and gradient[DOT].high < gradient[SCALED].low
    sharp = [name for name in ("bilinear", "reduced rank", "additive") if entropy[name].mean < entropy[SCALED].mean / 2]
    others = f"Of the other scores, {' and '.join(sharp)} saturate as well." if sharp else "No other score saturates."
    return Verdict(
        holds,
        f"Dot products grow as width^{exponents[DOT]:.2f}, scaled ones as width^{exponents[SCALED]:.2f}. At width "
        f"{widest:,} the entropy is {entropy[DOT]} bits without the scale and {entropy[SCALED]} with it, and "
        f"{ratio:.2g} times as much gradient passes the softmax with it. {others}",
    )


EXPERIMENT = Experiment(
    name="scores",
    title="Why the dot product is scaled: score functions as the width grows",
    claim="The attention scores are scaled down by a function of the width, to stop them from being too large; this "
    "leads to better gradient signals.",
    source="Notes from NMT to Transformers, 8 (score functions) and 12.3; lecture on Transformers for LLMs, "
    "'Additional trick: scaling'; Vaswani et al. 2017, 3.2.1.",
    method="""Queries and keys are random vectors with independent entries of variance 1. For each score function, with
Xavier weights where it has any, we compute the scores of all pairs and their softmax over the keys. We measure the
standard deviation of the scores, the entropy of the weights, and the norm of the gradient of a random linear function
of the weights with respect to the scores.

    dot            q.k
    scaled dot     q.k / sqrt(d)
    bilinear       q W k
    reduced rank   (U q).(V k), rank d/2
    additive       v.tanh(W q + U k + b)""",
    vary="""Other widths, or more keys:

    regard lab scores "widths=[8, 32, 128]" keys=1000 --out lab/scores-keys""",
    scales={
        "tiny": _Settings(widths=(4, 16, 64, 256), queries=32, keys=32),
        "default": _Settings(),
        "full": _Settings(widths=(4, 16, 64, 256, 1024, 4096), queries=256, keys=256),
    },
    measure=_measure,
    draw=_draw,
    judge=_judge,
)
