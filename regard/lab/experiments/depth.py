"""Residual connections and norms: what makes deep stacks trainable.

pre: x + f(norm(x)); post: norm(x + f(x)), as in 2017. Post-norm has large gradients near the output and needs a warm-up
of the learning rate, pre-norm does not (Xiong et al. 2020; Wang et al. 2019). Residual connections: He et al. 2016;
layer norm, over the features of a token: Ba et al. 2016; batch norm, over the batch: Ioffe, Szegedy 2015 (and why it
does worse in Transformers: Shen et al. 2020).
"""

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import log
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

from regard import draw
from regard.errors import RegardError
from regard.lab.experiment import Experiment, Lab, Picture, Row, Verdict
from regard.lab.spread import Spread, over_seeds

LETTERS = "abcdefghijklmnop"
LIKELY = 0.9  # probability of the letter that most often follows another
BLOCK = "model.layers.block"
PRE, POST, NEITHER = "pre-norm", "post-norm", "no residual, no norm"
WITHOUT, BATCH = "residual without norm", "pre-norm, batch norm"
STACKS = {  # how the recipe gpt2 is changed for each
    PRE: (),
    POST: (f"{BLOCK}.residual=post", "model.norm=none"),
    WITHOUT: (f"{BLOCK}.norm=none", "model.norm=none"),
    NEITHER: (f"{BLOCK}.residual=plain", f"{BLOCK}.norm=none", "model.norm=none"),
    BATCH: (f"{BLOCK}.norm.kind=batch", "model.norm.kind=batch"),
}
GONE = 0.01  # a gradient that is smaller, relative to the last layer, has vanished
LEARNED, LOST = 0.75, 0.25  # shares of what can be learned


@dataclass(frozen=True)
class _Settings:
    depths: tuple[int, ...] = (6, 12, 24, 48)  # for the gradients of random weights
    trained: tuple[int, ...] = (6, 24)
    stacks: tuple[str, ...] = tuple(STACKS)  # that are trained
    width: int = 32
    window: int = 32
    steps: int = 50
    tokens: int = 512
    rate: float = 0.002
    warmup: int = 0  # updates


def _changes(settings: _Settings, name: str, depth: int) -> list[str]:
    """Return the recipe gpt2 in a small size, with this residual, norm and depth."""
    return [
        f"model.dim={settings.width}",
        f"model.depth={depth}",
        f"{BLOCK}.mixer.heads.heads=2",
        f"{BLOCK}.feedforward.hidden={4 * settings.width}",
        f"model.embed.position.length={settings.window}",
        f"{BLOCK}.mixer.dropout=0.0",
        f"{BLOCK}.dropout=0.0",
        "model.embed.dropout=0.0",
        "model.init.kind=xavier",
        *STACKS[name],
    ]


def _measure(lab: Lab, settings: _Settings) -> Iterator[Row]:
    for name in STACKS:
        for depth in settings.depths:
            lab.progress(f"gradients of {depth} layers, {name}", 0.0)
            model = lab.build("gpt2", "model.vocabulary=32", *_changes(settings, name, depth))
            first, last = _gradient_norms(model, settings)
            ratio = first / max(last, 1e-300)
            yield {
                "part": "gradient", "stack": name, "depth": depth,
                "first layer": first, "last layer": last, "first / last": ratio,
            }  # fmt: skip
    chance = random.Random(lab.seed)
    followers = chance.sample(LETTERS, len(LETTERS))
    train = lab.file("train.txt", _chain_text(followers, settings.steps * settings.tokens // 2, chance))
    valid = lab.file("valid.txt", _chain_text(followers, 1024, chance))
    plans = [(name, depth) for depth in settings.trained for name in settings.stacks]
    for number, (name, depth) in enumerate(plans):
        lab.progress(f"training {depth} layers, {name}", number / len(plans))
        loss = _train(lab, settings, name, depth, [train, valid])
        share = (log(len(LETTERS)) - loss) / (log(len(LETTERS)) - _entropy())
        yield {"part": "trained", "stack": name, "depth": depth, "loss": loss, "share learned": max(share, 0.0)}


def _train(lab: Lab, settings: _Settings, name: str, depth: int, files: Sequence[Path]) -> float:
    """Train a stack; return the loss, that of guessing if it diverged."""
    try:
        run = lab.train(
            f"{name.replace(', ', '-').replace(' ', '-')}-{depth}", "language", files[:1], valid=files[1:],
            recipe="gpt2", steps=settings.steps,
            overrides=[
                *_changes(settings, name, depth), f"task.window={settings.window}",
                "train.optimizer.kind=adamw", f"train.optimizer.rate={settings.rate}",
                f"train.schedule.warmup={settings.warmup}", f"train.tokens={settings.tokens}",
            ],
        )  # fmt: skip
    except RegardError as error:
        if "not finite" not in str(error):
            raise
        return log(len(LETTERS))
    return float(run.metrics[-1]["loss"])


def _gradient_norms(model: Any, settings: _Settings) -> tuple[float, float]:
    """Return the norm of the loss's gradient in the first and in the last layer, by one backward pass in float64."""
    model = model.train().double()
    tokens = torch.randint(32, (16, settings.window + 1), device=next(model.parameters()).device)
    F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten()).backward()
    layers = model.stack.layers
    norms = [
        torch.stack([weight.grad.norm() for weight in layer.parameters() if weight.grad is not None]).norm()
        for layer in (layers[0], layers[-1])
    ]
    return float(norms[0]), float(norms[1])


def _chain_text(followers: Sequence[str], length: int, chance: random.Random) -> str:
    """Return a Markov chain: after each letter its own follower with probability `LIKELY`, else any other letter."""
    text = [chance.choice(LETTERS)]
    while len(text) < length:
        follower = followers[LETTERS.index(text[-1])]
        others = [letter for letter in LETTERS if letter != follower]
        text.append(follower if chance.random() < LIKELY else chance.choice(others))
    return "".join(text)


def _entropy() -> float:
    """Return the loss of a perfect model of the chain, in nats."""
    other = (1 - LIKELY) / (len(LETTERS) - 1)
    return -LIKELY * log(LIKELY) - (1 - LIKELY) * log(other)


def _draw(rows: Sequence[Row]) -> Iterable[Picture]:
    gradients = [row for row in rows if row["part"] == "gradient"]
    yield Picture(
        "first",
        "Norm of the gradient in the first layer relative to that in the last, with random weights, against the depth.",
        draw.lines(
            gradients,
            x="depth",
            y="first / last",
            by="stack",
            log="xy",
            title="Does the gradient reach the first layer?",
        ),
    )
    yield Picture(
        "last",
        "Norm of the gradient in the last layer, with random weights. In pre-norm it shrinks with the depth; in "
        "post-norm it does not, which is why that needs a warm-up (Xiong et al. 2020).",
        draw.lines(gradients, x="depth", y="last layer", by="stack", log="xy", title="Gradient in the last layer"),
    )
    trained = [{**row, "layers": f"{row['depth']} layers"} for row in rows if row["part"] == "trained"]
    yield Picture(
        "trained",
        "What short trainings without warm-up have learned: 0 is guessing (or worse, or the loss became infinite), 1 "
        "the best possible loss.",
        draw.bars(trained, x="stack", y="share learned", by="layers", title="Learned in a short training"),
    )


def _judge(rows: Sequence[Row]) -> Verdict:
    trained = [row for row in rows if row["part"] == "trained"]
    gradients = [row for row in rows if row["part"] == "gradient"]
    names = list(dict.fromkeys(row["stack"] for row in trained))
    shallow, deep = min(row["depth"] for row in trained), max(row["depth"] for row in trained)
    deepest = max(row["depth"] for row in gradients)

    def share(name: str, depth: int) -> Spread:
        return over_seeds(trained, "share learned", {"stack": name, "depth": depth})

    def arriving(name: str) -> Spread:
        return over_seeds(gradients, "first / last", {"stack": name, "depth": deepest})

    depths = dict.fromkeys((shallow, deep))  # one, if only one was trained
    learned = "; ".join(f"{name} {' and '.join(str(share(name, depth)) for depth in depths)}" for name in names)
    text = (
        f"Share of what can be learned, with {' and with '.join(map(str, depths))} layers: {learned}. In {deepest} "
        f"layers with random weights the gradient of the first layer, relative to the last, is {arriving(PRE)} with "
        f"pre-norm, {arriving(POST)} with post-norm, and {arriving(NEITHER)} with neither residual nor norm."
    )
    if not {PRE, NEITHER} <= set(names):
        return Verdict(None, text)
    flows = arriving(NEITHER).high < GONE < arriving(PRE).low
    return Verdict(flows and share(PRE, deep).mean >= LEARNED and share(NEITHER, deep).mean <= LOST, text)


EXPERIMENT = Experiment(
    name="depth",
    title="Residual connections and norms make deep stacks trainable",
    claim="Residual connections and layer normalisation allow Transformers to be very deep, since gradients flow more "
    "nicely: they address vanishing and exploding gradients, and training is faster and better. Layer norm is for each "
    "token separately; batch norm, over the batch, is used in ConvNets.",
    source="Lecture notes, from NMT to Transformers, 13 'add and norm'; lecture on Transformers for LLMs, 'network "
    "internal normalization' and 'residual and layer normalization'; slides on self-attention. He et al. 2016; Ba "
    "et al. 2016; Xiong et al. 2020; Shen et al. 2020.",
    method="""Stacks of GPT-2's layers with a width of 32 differ only in how sublayers are joined: pre-norm, post-norm
(the Transformer of 2017), residual connections without any norm, neither residual connection nor norm, and pre-norm
with batch norm in place of layer norm.

Gradients: with random weights (Xavier), the norm of the loss's gradient in the first and in the last layer, for random
tokens, in float64.

Training: 50 updates of AdamW with rate 0.002 and without warm-up (which post-norm is known to need), by `regard train
language`. The text has 16 letters, each with one that follows it with probability 0.9. We report the share that was
learned of the difference between guessing (log 16) and the entropy of this chain; a training whose loss becomes
infinite has learned nothing. The rule needs only one layer: what is measured is whether depth gets in the way, not
whether it helps.""",
    vary="""A lower rate and a warm-up rescue post-norm where they are slow enough; deeper stacks take longer:

    regard lab depth rate=0.0005 warmup=100 steps=400 --out lab/depth-warm
    regard lab depth 'trained=[48]' --out lab/depth-48""",
    scales={
        "tiny": _Settings(depths=(2, 12), trained=(2,), stacks=(NEITHER,), width=16, window=16, steps=5, tokens=128),
        "default": _Settings(),
        "full": _Settings(trained=(6, 12, 24, 48), width=256, window=128, steps=1000, tokens=8192, rate=0.001),
    },
    measure=_measure,
    draw=_draw,
    judge=_judge,
)
