"""Remembering one symbol over a distance, at equal numbers of parameters: recurrence, convolution, attention.

A recurrence must carry the symbol through every step; a convolution of depth L and kernel k sees L (k - 1) tokens
back; attention sees every token after one layer. Hochreiter, Schmidhuber 1997 (recall over noise); Bai et al. 2018
(convolution against recurrence on such tasks); Vaswani et al. 2017, table 1 (path lengths).
"""

import random
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from string import ascii_lowercase
from typing import Any

import torch

from regard import draw
from regard.config import Table, from_table, to_table, to_toml
from regard.lab.experiment import Experiment, Lab, Picture, Row, Verdict
from regard.lab.spread import over_seeds
from regard.models.count import parameters
from regard.models.model import Model, ModelConfig
from regard.models.recipe import Recipe, build_empty, load_recipe
from regard.models.scale import Size, scale_model
from regard.parts.conv import Convolution
from regard.training.run import Run

SYMBOLS, NOISE, ASK = ascii_lowercase, "0123456789", "?"
CHANCE = 1 / len(SYMBOLS)
VOCABULARY = len(SYMBOLS) + len(NOISE) + len(ASK) + 5  # with the special tokens
ATTENTION = "attention (gpt2)"
NAMES = {"elman": "Elman", "lstm": "LSTM", "gru": "GRU", "conv": "convolution", "gpt2": ATTENTION, "rwkv7": "RWKV-7"}
RECURRENCES = ("Elman", "LSTM", "GRU", "RWKV-7")
GUESSING = 0.1  # an accuracy this much above chance may be luck
SOLVED = 0.9  # an accuracy that counts as remembering


@dataclass(frozen=True)
class _Settings:
    recipes: tuple[str, ...] = ("elman", "lstm", "gru", "rwkv7", "conv", "gpt2")
    parameters: int = 40_000
    longest: int = 64  # distance between a symbol and the question
    steps: int = 240
    tokens: int = 2048  # of an update
    rows: int = 200  # questions at each distance, to measure


def recall_text(lines: int, distances: Sequence[int], chance: random.Random, symbols: str = SYMBOLS) -> str:
    """Return lines such as `c4071?c`: a symbol, noise, a question, and the symbol again; each at one of the distances.

    The distance is that between the symbol and the question mark, after which it must be written.
    """

    def line() -> str:
        symbol = chance.choice(symbols)
        noise = "".join(chance.choices(NOISE, k=chance.choice(distances) - 1))
        return f"{symbol}{noise}{ASK}{symbol}\n"

    return "".join(line() for _ in range(lines))


@torch.no_grad()
def recall_accuracy(run: Run, distance: int, rows: int, device: torch.device, symbols: str = SYMBOLS) -> float:
    """Return the share of questions that the trained model answers with the right symbol, on new lines."""
    text = recall_text(rows, [distance], random.Random(distance), symbols).splitlines()
    tokenizer, model = run.tokenizer(), run.model(device)
    assert tokenizer is not None
    end = torch.full((rows, 1), tokenizer.end)
    ids = torch.cat((end, torch.stack([torch.tensor(row) for row in tokenizer.encode(text)])), 1).to(device)
    logits = model(ids[:, :-1])[:, -1]
    return float((logits.argmax(-1) == ids[:, -1]).float().mean())


def powers_of_two(most: int) -> list[int]:
    """Return 1, 2, 4, ... up to `most`."""
    return [2**power for power in range(most.bit_length())]


def _measure(lab: Lab, settings: _Settings) -> Iterator[Row]:
    chance = random.Random(lab.seed)
    distances = powers_of_two(settings.longest)
    length = sum(distances) / len(distances) + 3
    lines = int(settings.steps * settings.tokens / length)
    train = lab.file("train.txt", recall_text(lines, distances, chance))
    valid = lab.file("valid.txt", recall_text(200, distances, chance))
    recipes = settings.recipes if lab.recipe is None else (*settings.recipes, lab.recipe)
    for number, recipe in enumerate(recipes):
        name = Path(recipe).stem
        lab.progress(f"training {name}", number / len(recipes))
        config = _fit_to_size(recipe, settings.parameters, longest=2 * settings.longest)
        run = lab.train(
            name, "language", [train], valid=[valid],
            recipe=lab.file(f"{name}.toml", to_toml(Recipe(config))), steps=settings.steps,
            overrides=[
                "task.documents=line", f"task.window={2 * settings.longest}", f"train.tokens={settings.tokens}",
            ],
        )  # fmt: skip
        model = run.model(lab.device)
        for distance in distances:
            yield {
                "model": NAMES.get(name, name),
                "distance": distance,
                "accuracy": recall_accuracy(run, distance, settings.rows, lab.device),
                "parameters": parameters(model),
                "width": config.dim,
                "reach": _reach(model),
            }


def _fit_to_size(recipe: str, size: int, longest: int) -> Any:
    """Return the model of a recipe, scaled to about `size` parameters, with room for `longest` tokens, no dropout."""
    base = to_table(load_recipe(recipe).model) | {"vocabulary": VOCABULARY}

    def scaled(dim: int) -> ModelConfig:
        return from_table(_adapt(scale_model(base, Size(dim)), longest), ModelConfig, "model")

    def count(dim: int) -> int:
        return parameters(build_empty(scaled(dim)))

    widths = range(16, 4096, 2)
    place = bisect_left(widths, size, hi=len(widths) - 1, key=count)
    return scaled(min(widths[max(place - 1, 0) : place + 1], key=lambda dim: abs(count(dim) - size)))


def _adapt(table: Table, longest: int) -> Table:
    """Return the table without dropout, initialised by Xavier's rule, with learned positions for `longest` tokens."""
    adapted = {key: _adapt(value, longest) if isinstance(value, dict) else value for key, value in table.items()}
    adapted |= {"dropout": 0.0} if "dropout" in table else {}
    adapted |= {"init": {"kind": "xavier"}} if "init" in table else {}  # the recipes' own suits wide models
    return adapted | ({"length": longest} if table.get("kind") == "learned" else {})


def _reach(model: Model) -> int:
    """Return how many tokens back a convolutional model sees; 0: any number."""
    return sum(module.reach for module in model.modules() if isinstance(module, Convolution))


def _draw(rows: Sequence[Row]) -> Iterable[Picture]:
    chance = [
        {"model": "chance", "distance": distance, "accuracy": CHANCE}
        for distance in dict.fromkeys(row["distance"] for row in rows)
    ]
    sizes = sorted(row["parameters"] for row in rows)
    yield Picture(
        "recall",
        f"Share of symbols that are remembered, against the distance between the symbol and the question. All models "
        f"have {sizes[0]:,} to {sizes[-1]:,} parameters and were trained on all of these distances.",
        draw.lines(
            [*rows, *chance], x="distance", y="accuracy", by="model", log="x", styles={"chance": "--"},
            title="Remembering one of 26 symbols",
        ),
    )  # fmt: skip


def _table(rows: Sequence[Row]) -> list[Row]:
    """Return the table of the page: a row for each model, a column for each distance."""
    found: list[Row] = []
    for name in dict.fromkeys(row["model"] for row in rows):
        first = next(row for row in rows if row["model"] == name)
        accuracies = {
            f"distance {distance}": str(over_seeds(rows, "accuracy", {"model": name, "distance": distance}))
            for distance in dict.fromkeys(row["distance"] for row in rows)
        }
        found.append({"model": name, "parameters": first["parameters"], "width": first["width"], **accuracies})
    return found


def _judge(rows: Sequence[Row]) -> Verdict:
    distances = sorted({row["distance"] for row in rows})
    names = list(dict.fromkeys(row["model"] for row in rows))
    at_end = {name: over_seeds(rows, "accuracy", {"model": name, "distance": distances[-1]}) for name in names}

    def remembered(name: str) -> int:
        """Return the longest distance over which a model remembers, in the mean over the seeds; 0: over none."""
        means = {d: over_seeds(rows, "accuracy", {"model": name, "distance": d}).mean for d in distances}
        return max((distance for distance, mean in means.items() if mean >= SOLVED), default=0)

    reach = {row["model"]: row["reach"] for row in rows if row["reach"]}
    blind = [row["accuracy"] for row in rows if row["model"] in reach and row["distance"] > reach[row["model"]]]
    found = [
        f"{name}{f' (sees {reach[name]} tokens back)' if name in reach else ''} {remembered(name) or 'none'}"
        for name in names
    ]
    keeping = [name for name in RECURRENCES if name in names and remembered(name) == distances[-1]]
    unlearned = [name for name in reach if not remembered(name)]
    text = (
        f"The longest distance over which at least {SOLVED:.0%} of the symbols are remembered: {'; '.join(found)}. "
        f"Over {distances[-1]} the accuracy is {'; '.join(f'{name} {at_end[name]}' for name in names)}, and chance "
        f"{CHANCE:.2f}."
    )
    if keeping:
        text += f" So not every recurrence is forgetful: {', '.join(keeping)} can hold it over {distances[-1]} tokens."
        text += " Against the lecture, that includes the Elman network." if "Elman" in keeping else ""
    if unlearned:
        text += f" Not learned in these updates, even within its reach: {', '.join(unlearned)}."
    if not {"Elman", "convolution", ATTENTION} <= set(names):
        return Verdict(None, text)
    forgetful = all(remembered(name) < distances[-1] for name in ("Elman", "convolution"))
    return Verdict(
        forgetful and max(blind, default=0.0) < CHANCE + GUESSING and remembered(ATTENTION) == distances[-1], text
    )


EXPERIMENT = Experiment(
    name="recall",
    title="Remembering a symbol: recurrence, convolution and attention at equal size",
    claim="A recurrent network is forgetful: it is difficult to handle long-range dependencies. A convolution is bad "
    "at long sequences: many layers must be stacked for outputs to see the whole sequence. Self-attention is good at "
    "long sequences: after one layer, each output sees all inputs.",
    source="Lecture from RNNs to Transformers, three ways of processing sequences. Hochreiter, Schmidhuber 1997; Bai "
    "et al. 2018; Vaswani et al. 2017, table 1.",
    method="""The text has lines such as `k40713?k`: one of 26 letters, random digits, a question mark, and the letter
again. The model must write the letter after the question mark, so it must remember it over the noise. The distances
between letter and question are 1, 2, 4, ..., equally often in training; so short distances help to learn long ones.

Each model is a recipe of the package, scaled to the same number of parameters (the width differs), without dropout and
with Xavier's initialisation, trained by `regard train language` with the same data, updates, optimizer (Muon, AdamW for
tables and convolutions; recurrent cells at higher rates) and schedule. The accuracy is measured on new lines, 200 for
each distance.

The convolution has 4 layers with kernels of 5 tokens, so it sees 16 tokens back: beyond that it can only guess. The
recurrences are trained by backpropagation through windows of twice the longest distance.""",
    vary="""`--recipe` adds a model to the comparison: one that is shipped, or a file of your own. With more updates the
Elman network remembers longer; with AdamW instead of Muon nothing is learned in this number of updates:

    regard lab recall --recipe mut1
    regard lab recall steps=1000 longest=128 --out lab/recall-long
    regard lab recall 'recipes=["elman", "lstm", "writer"]' parameters=100000 --out lab/recall-wide""",
    scales={
        "tiny": _Settings(recipes=("conv",), parameters=16_000, longest=32, steps=5, tokens=256, rows=100),
        "default": _Settings(),
        "full": _Settings(
            parameters=1_000_000,
            longest=512,
            steps=3000,
            tokens=16384,
            rows=1000,
        ),
    },
    measure=_measure,
    draw=_draw,
    judge=_judge,
    table=_table,
    recipes=True,
)
