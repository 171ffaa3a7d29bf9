"""Heads: one against many at the same cost, what single heads do, and which can be removed.

Claim: H heads of width D / H in parallel, concat(head_1, ..., head_H) W_O, cost as much as one head of width D, but one
head has to average where several can look at different tokens at once (Vaswani et al. 2017, section 3.2.2). After
training, many heads can be removed with little loss (Michel et al. 2019; Voita et al. 2019).
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from regard import draw
from regard.data.lines import read_lines
from regard.errors import ConfigError
from regard.lab.experiment import Experiment, Lab, Picture, Row, Verdict
from regard.lab.page import average_seeds
from regard.lab.shipped import shipped
from regard.lab.spread import over_seeds
from regard.models.introspection import AttentionRole
from regard.models.model import Model
from regard.parts.watch import watch
from regard.tasks.language import Language
from regard.use.intervene import intervene

HEADS, LOSS, HEAD, RISE = "heads", "validation loss", "head", "rise of the loss without it"
BACK, WEIGHT = "characters back", "mean weight"
CHEAP = 0.05  # nats: a head whose removal raises the loss by less can be removed
FARTHEST = 10  # characters back that are looked at


@dataclass(frozen=True)
class _Settings:
    """The text, the models, and how long they are trained."""

    heads: tuple[int, ...]
    studied: int  # the number of heads of the model that is taken apart
    characters: int  # of Shakespeare
    dim: int
    depth: int
    window: int
    steps: int
    tokens: int


def _measure(lab: Lab, settings: _Settings) -> Iterator[Row]:
    """Train language models that differ in the number of heads; switch off every head of one of them in turn."""
    numbers = set(settings.heads)
    if len(numbers) < 2 or not {1, settings.studied} <= numbers:
        given = f"heads={list(settings.heads)}, studied={settings.studied}"
        raise ConfigError(f"{given}: heads must contain 1, another number, and the one that is studied")
    text = "\n".join(read_lines(shipped("shakespeare.txt")))[: settings.characters] + "\n"
    file = lab.file("text.txt", text)
    for number, heads in enumerate(settings.heads):
        lab.progress(f"training with {heads} heads", number / len(settings.heads))
        overrides = [f"model.dim={settings.dim}", f"model.depth={settings.depth}", f"task.window={settings.window}"]
        overrides += [f"train.tokens={settings.tokens}", "tokenizer.kind=char"]
        overrides += [f"model.layers.block.mixer.heads.heads={heads}"]  # together they are as wide, however many
        overrides += [f"model.layers.block.feedforward.hidden={4 * settings.dim}"]
        recipe = lab.recipe or "writer"
        run = lab.train(f"heads-{heads}", "language", [file], recipe=recipe, steps=settings.steps, overrides=overrides)
        model, task = run.model(lab.device), run.task(device=lab.device)
        assert isinstance(task, Language)
        loss = task.measure(model)["loss"]
        yield {HEADS: heads, LOSS: loss, "parameters": sum(weight.numel() for weight in model.parameters())}
        if heads != settings.studied:
            continue
        for role in model.attentions():
            for head, weights in enumerate(_weights_by_distance(model, task, role)):
                name = f"{role.layer}.{head + 1}"
                with intervene(model, role.id, heads=head, attention="zero"):
                    yield {HEAD: name, RISE: task.measure(model)["loss"] - loss}
                yield from ({HEAD: name, BACK: back, WEIGHT: weight} for back, weight in enumerate(weights))


def _weights_by_distance(model: Model, task: Language, role: AttentionRole) -> list[list[float]]:
    """Return for each head its mean weight on the character itself, on the one before, and so on."""
    width = min(task.config.window, 64)
    starts = np.arange(0, min(task.valid.tokens - width, 32 * width), width)
    with torch.no_grad(), watch(model, role.name) as tape:
        model(task.valid.windows(starts, width))
    weights = tape.weights(role.name).mean(0)  # H T S
    most = min(FARTHEST, width - 1)
    shares = [weights.diagonal(-back, 1, 2)[:, most - back :].mean(-1) for back in range(most + 1)]
    found: list[list[float]] = torch.stack(shares, 1).tolist()
    return found


def _whole_models(rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if LOSS in row]


def _single_heads(rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if RISE in row]


def _draw(rows: Sequence[Row]) -> Iterable[Picture]:
    """Draw the loss over the number of heads, and the rise of the loss without each head."""
    title = "Loss (nats per character) by the number of heads"
    yield Picture(
        "one-or-many",
        "The loss of models that differ only in the number of heads, into which the same width is divided. But for the "
        "norms of queries and keys, they have the same parameters.",
        draw.lines(_whole_models(rows), x=HEADS, y=LOSS, log="x", title=title),
    )
    single = _single_heads(rows)
    yield Picture(
        "removed",
        "How much the loss rises when one head is switched off (layer.head). Heads have no order, so a bar is the mean "
        "over different heads of different seeds.",
        draw.bars(single, x=HEAD, y=RISE, title="Rise of the loss without one head (nats per character)"),
    )
    seed = min(row["seed"] for row in rows)
    looks = [row for row in rows if WEIGHT in row and row["seed"] == seed]
    yield Picture(
        "where-heads-look",
        f"The mean weight of each head by distance (seed {seed}; 0 is the character itself).",
        draw.lines(looks, x=BACK, y=WEIGHT, by=HEAD, title="What single heads look at"),
    )


def _judge(rows: Sequence[Row]) -> Verdict:
    """Say yes if several heads are better than one, over all seeds."""
    whole, single = _whole_models(rows), _single_heads(rows)
    counts = sorted({row[HEADS] for row in whole})
    losses = {count: over_seeds(whole, LOSS, {HEADS: count}) for count in counts}
    seeds = sorted({row["seed"] for row in rows})
    cheap = [
        {"share": sum(row[RISE] < CHEAP for row in mine) / len(mine), "worst": max(row[RISE] for row in mine)}
        for mine in ([row for row in single if row["seed"] == seed] for seed in seeds)
    ]
    share, worst = over_seeds(cheap, "share"), over_seeds(cheap, "worst")
    better = [count for count in counts[1:] if losses[count].high < losses[1].low]
    worse = [count for count in counts[1:] if losses[count].low > losses[1].high]
    every = ", ".join(f"{losses[count]} with {count}" for count in counts[1:])
    return Verdict(
        True if better else (False if len(worse) == len(counts) - 1 else None),
        f"At the same width and number of updates, the loss is {losses[1]} with one head, {every}. Of the "
        f"heads of the model that was taken apart, a share of {share} can be removed one at a time with a rise below "
        f"{CHEAP} nats; without the most important one, the loss rises by {worst}.",
    )


EXPERIMENT = Experiment(
    name="heads",
    title="One head or many at the same cost, and which heads can be removed",
    claim="Instead of one attention head that deals with everything, the width is split into several: the same total "
    "computation, with heads that do different things, such as one for entities and one for syntax.",
    source="Lecture notes from NMT to the Transformer, 12, 'Multi-head attention'; slides on self-attention, 'Trained "
    "multi-head attention examples'; Vaswani et al. 2017, section 3.2.2; Michel et al. 2019, Are Sixteen Heads Really "
    "Better than One?",
    method="Language models of characters that differ only in the number of heads are trained on Shakespeare for the "
    "same number of updates. They have one layer: to guess the next character, its one attention must bring together "
    "several characters before it. Then the heads of one model are switched off one at a time, by zeros at the input "
    "of the output projection, and the loss is measured again. Where a head looks is the mean of its weights by "
    "distance.",
    vary="`regard lab heads depth=2` (with more layers, one head can do more), or "
    "`regard lab heads heads='[1, 2, 16]' studied=16 dim=128`; `--recipe` takes another language model with attention. "
    "`regard look` shows the heads of any model, one by one and all layers at once.",
    scales={
        "tiny": _Settings((1, 2), 2, 4000, 16, 1, 16, 2, 128),
        "default": _Settings((1, 2, 4, 8), 8, 200_000, 64, 1, 32, 250, 1024),
        "full": _Settings((1, 2, 4, 8, 16), 8, 1_115_394, 256, 4, 256, 2000, 16_384),
    },
    measure=_measure,
    draw=_draw,
    judge=_judge,
    recipes=True,
    table=lambda rows: [*average_seeds(_whole_models(rows)), *average_seeds(_single_heads(rows))],
)
