"""What attention cannot do alone: without a feed-forward it only averages.

y_i = sum_j a_ij W v_j is a weighted average. A stack of such layers moves all tokens towards one vector: its distance
from that shrinks doubly exponentially with the depth, unless residual connections hold it back (Dong et al. 2021,
Attention is not all you need). With weights that do not depend on the tokens the stack is even linear, and cannot learn
the exclusive or (Minsky, Papert 1969).
"""

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from regard import draw
from regard.lab.experiment import Experiment, Lab, Picture, Row, Verdict
from regard.lab.spread import Spread, over_seeds
from regard.models.encoder import Encoder

BLOCK = "model.layers.block"
PLAIN, NO_NORM, NO_FEEDFORWARD = f"{BLOCK}.residual=plain", f"{BLOCK}.norm=none", f"{BLOCK}.feedforward=none"
EQUAL = f"{BLOCK}.mixer.score.scale=0.0"  # all scores are 0, so all weights are equal

# What a layer consists of, and how the recipe `reader` is changed for it. The first is attention alone.
STACKS = {
    "attention": (PLAIN, NO_NORM, NO_FEEDFORWARD),
    "attention, feed-forward": (PLAIN, NO_NORM),
    "attention, residual": (NO_NORM, NO_FEEDFORWARD),
    "attention, residual, feed-forward": (NO_NORM,),
    "the whole block, with norm": (),
}
LEARNERS = {
    "equal weights": (EQUAL, NO_NORM, NO_FEEDFORWARD),
    "equal weights, norm": (EQUAL, NO_FEEDFORWARD),
    "equal weights, feed-forward": (EQUAL, NO_NORM),
    "softmax weights": (NO_NORM, NO_FEEDFORWARD),
    "the whole block, with norm": (),
}
LINEAR, BLOCK_NAME = "equal weights", "the whole block, with norm"
COLLAPSED, SOLVED = 0.01, 0.95
LINEAR_BEST = 0.75  # of the four cases of an exclusive or, a linear model gets at most three right


@dataclass(frozen=True)
class _Settings:
    width: int = 32
    depth: int = 12
    rows: int = 16  # random texts, to measure the collapse
    length: int = 32
    learners: tuple[str, ...] = tuple(LEARNERS)
    bits: tuple[int, ...] = (2, 4)  # of which the parity is learned
    layers: int = 2
    steps: int = 150
    tokens: int = 1024


def _changes(settings: _Settings, *others: str) -> list[str]:
    """Return the recipe `reader` in a small size, without dropout and other norms, with what differs."""
    return [
        f"model.dim={settings.width}",
        f"{BLOCK}.mixer.heads.heads=2",
        f"{BLOCK}.feedforward.kind=mlp",
        f"{BLOCK}.feedforward.hidden={4 * settings.width}",
        f"{BLOCK}.dropout=0.0",
        "model.embed.dropout=0.0",
        "model.embed.norm=none",
        "model.norm=none",
        "model.embed.scale=true",  # features of unit variance, so that scores differ
        "model.init.kind=xavier",
        *others,
    ]


def _measure(lab: Lab, settings: _Settings) -> Iterator[Row]:
    for name, others in STACKS.items():
        lab.progress(f"collapse of {name}", 0.0)
        changes = _changes(settings, "model.vocabulary=64", f"model.depth={settings.depth}", *others)
        for depth, share in enumerate(_collapse(lab.build("reader", *changes), settings)):
            yield {"part": "collapse", "layers are": name, "depth": depth, "distance from the mean": share}
    plans = [(name, bits) for name in settings.learners for bits in settings.bits]
    for number, (name, bits) in enumerate(plans):
        lab.progress(f"parity of {bits} bits, {name}", number / len(plans))
        chance = random.Random(lab.seed)
        train, valid = (
            lab.file(f"parity-{bits}-{part}.tsv", _parity_table(bits, rows, chance))
            for part, rows in (("train", 2000), ("valid", 500))
        )
        head = ("model.head.kind=classes", "model.head.pool.kind=mean", "tokenizer.kind=char")
        run = lab.train(
            f"{name.replace(', ', '-').replace(' ', '-')}-{bits}", "classification", [train], valid=[valid],
            recipe="reader", steps=settings.steps,
            overrides=[
                *_changes(settings, f"model.depth={settings.layers}", *LEARNERS[name]), *head,
                f"train.tokens={settings.tokens}",
            ],
        )  # fmt: skip
        accuracy = run.metrics[-1]["accuracy"]
        yield {"part": "parity", "layers are": name, "bits": bits, "accuracy": accuracy}


@torch.no_grad()
def _collapse(model: Any, settings: _Settings) -> list[float]:
    """Return |X - mean| / |X| of the token vectors X of a text, for the input and after each layer."""
    assert isinstance(model, Encoder)
    model = model.eval().double()
    device = model.embed.tokens.table.weight.device
    x = model.embed(torch.randint(64, (settings.rows, settings.length), device=device), None)
    states = [x]
    for layer in model.stack.layers:
        states.append(layer(states[-1]))
    away = [(x - x.mean(1, keepdim=True)).norm(dim=(1, 2)) / x.norm(dim=(1, 2)).clamp(min=1e-300) for x in states]
    return [float(share.mean()) for share in away]


def _parity_table(bits: int, rows: int, chance: random.Random) -> str:
    """Return a table of texts such as `0110` with the label even or odd: the number of ones."""
    lines = ["text\tlabel"]
    for _ in range(rows):
        text = "".join(chance.choice("01") for _ in range(bits))
        lines.append(f"{text}\t{'odd' if text.count('1') % 2 else 'even'}")
    return "\n".join(lines) + "\n"


def _draw(rows: Sequence[Row]) -> Iterable[Picture]:
    yield Picture(
        "collapse",
        "How far the vectors of a text are from their common mean, relative to their length, layer by layer, with "
        "random weights. At 0 all tokens are the same vector; 1e-16 is the rounding of float64.",
        draw.lines(
            [row for row in rows if row["part"] == "collapse"],
            x="depth", y="distance from the mean", by="layers are", log="y", title="Attention alone only averages",
        ),
    )  # fmt: skip
    parity = [{**row, "task": f"parity of {row['bits']} bits"} for row in rows if row["part"] == "parity"]
    yield Picture(
        "parity",
        "Accuracy after training to tell whether the number of ones is even or odd (chance 0.5). Parity of 2 bits is "
        "the exclusive or; a linear model gets at most 0.75 of it right.",
        draw.bars(parity, x="layers are", y="accuracy", by="task", title="What is learned without a feed-forward"),
    )


def _judge(rows: Sequence[Row]) -> Verdict:
    collapse = [row for row in rows if row["part"] == "collapse"]
    depth = max(row["depth"] for row in collapse)
    left = {
        name: over_seeds(collapse, "distance from the mean", {"layers are": name, "depth": depth}) for name in STACKS
    }
    parity = [row for row in rows if row["part"] == "parity"]
    few, many = min(row["bits"] for row in parity), max(row["bits"] for row in parity)

    def learned(name: str, bits: int) -> Spread:
        return over_seeds(parity, "accuracy", {"layers are": name, "bits": bits})

    alone, whole, rescued = left["attention"], left[BLOCK_NAME], left["attention, feed-forward"]
    text = (
        f"After {depth} layers of attention alone the tokens are {alone} of their length away from their mean, in "
        f"whole blocks {whole}."
    )
    if rescued.high < COLLAPSED:
        text += (
            f" A feed-forward alone does not prevent this ({rescued}): the residual connections do "
            f"({left['attention, residual']})."
        )
    names = list(dict.fromkeys(row["layers are"] for row in parity))
    for bits in dict.fromkeys((few, many)):
        task = "the exclusive or" if bits == 2 else f"the parity of {bits} bits"
        text += f" Accuracy for {task}: {'; '.join(f'{name} {learned(name, bits)}' for name in names)}."
    if "softmax weights" in names and learned("softmax weights", few).mean >= SOLVED:
        text += " So attention is linear only where its weights are fixed: softmax weights are a non-linearity."
    if not {LINEAR, BLOCK_NAME} <= set(names):
        return Verdict(None, text)
    linear, block = learned(LINEAR, few), learned(BLOCK_NAME, few)
    averages = alone.high < COLLAPSED < whole.low
    return Verdict(averages and linear.high <= LINEAR_BEST + 0.05 and block.mean >= SOLVED, text)


EXPERIMENT = Experiment(
    name="nonlinearity",
    title="Attention without a feed-forward only averages",
    claim="Self-attention has no element-wise non-linearity: stacking more layers just re-averages the value vectors. "
    "The fix is a feed-forward network after each attention, applied to every token.",
    source="Lecture notes, from NMT to Transformers, 10.4 'non-linearities'; lecture on Transformers for LLMs, 'why "
    "feed-forward network: additional non-linear transformation (beyond softmax)'; slides on self-attention: "
    "non-linearities are in the softmax, the MLP and the layer norms. Dong et al. 2021; Minsky, Papert 1969.",
    method="""Collapse: random texts pass through 12 layers with random weights (Xavier), in float64. After each layer
we measure how far the token vectors X of a text are from their mean: |X - mean| / |X|. Layers are attention alone, or
also have a feed-forward, residual connections, and the norm of a whole pre-norm block.

Learning: a model of 2 layers with residual connections learns the parity of 2 bits (the exclusive or) and of 4 bits,
given as texts such as `0110`, with `regard train classification`, a mean over the tokens and a linear classifier. Equal
weights: all scores are 0, so that attention is a plain average and the stack is linear. Softmax weights depend on the
tokens. A norm is itself a non-linearity, so it is measured apart.""",
    vary="""Deeper stacks, and longer parities:

    regard lab nonlinearity depth=48 --out lab/nonlinearity-deep
    regard lab nonlinearity 'bits=[2, 6, 8]' steps=1000 --out lab/nonlinearity-long""",
    scales={
        "tiny": _Settings(width=16, depth=8, rows=4, length=16, learners=(LINEAR,), bits=(2,), steps=5, tokens=128),
        "default": _Settings(),
        "full": _Settings(width=256, depth=48, rows=64, length=128, bits=(2, 4, 8), steps=2000, tokens=8192),
    },
    measure=_measure,
    draw=_draw,
    judge=_judge,
)
