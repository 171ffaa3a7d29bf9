"""Positional encodings beyond the length of training.

Absolute: linear a pos + b, sinusoidal (Vaswani et al. 2017), a learned table. Relative: rotary (Su et al. 2021), ALiBi
(Press et al. 2022, who found that sinusoidal and rotary positions extrapolate badly and ALiBi well). Without any, a
causal model can still count (Haviv et al. 2022; Kazemnejad et al. 2023).
"""

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch

from regard import draw
from regard.lab.experiment import Experiment, Lab, Picture, Row, Verdict
from regard.lab.spread import Spread, over_seeds
from regard.training.run import Run

LETTERS = "abcdefgh"
BACK = 3  # a letter repeats the one this many places before it
CERTAIN = 0.8  # with this probability; otherwise it is random
PARTS = 4  # a part is as long as a row in training; the first is inside that length
SEEN = 0.5  # accuracy from which on the rule counts as learned
SAME = 0.02  # accuracies that count as equal
KEPT = 0.8  # share of what is better than chance inside the length of training that counts as kept

RELATIVE, ABSOLUTE = "model.layers.block.mixer.position", "model.embed.position"
ENCODINGS = {  # how the recipe gpt2 is changed for each; `longest` is filled in
    "none": (f"{ABSOLUTE}=none",),
    "linear": (f"{ABSOLUTE}.kind=linear",),
    "sinusoidal": (f"{ABSOLUTE}.kind=sinusoidal",),
    "learned": (f"{ABSOLUTE}.length={{longest}}",),
    "rotary": (f"{ABSOLUTE}=none", f"{RELATIVE}.kind=rope"),
    "ALiBi": (f"{ABSOLUTE}=none", f"{RELATIVE}.kind=alibi"),
}


@dataclass(frozen=True)
class _Settings:
    encodings: tuple[str, ...] = tuple(ENCODINGS)
    length: int = 32  # of a row in training
    width: int = 48
    depth: int = 2
    heads: int = 4
    steps: int = 200
    tokens: int = 1024
    rows: int = 100  # of the text that is measured


def _echo_text(length: int, chance: random.Random) -> str:
    """Return random letters in which each repeats, with probability `CERTAIN`, the one `BACK` places before it."""
    text = chance.choices(LETTERS, k=BACK)
    while len(text) < length:
        text.append(text[-BACK] if chance.random() < CERTAIN else chance.choice(LETTERS))
    return "".join(text)


def _measure(lab: Lab, settings: _Settings) -> Iterator[Row]:
    chance = random.Random(lab.seed)
    train = lab.file("train.txt", _echo_text(settings.steps * settings.tokens // 2, chance))
    valid = lab.file("valid.txt", _echo_text(8 * settings.length, chance))
    longest = PARTS * settings.length
    for number, name in enumerate(settings.encodings):
        lab.progress(f"training with {name} positions", number / len(settings.encodings))
        run = lab.train(
            name.lower(), "language", [train], valid=[valid], recipe="gpt2", steps=settings.steps,
            overrides=[
                *(change.format(longest=longest) for change in ENCODINGS[name]),
                f"model.dim={settings.width}", f"model.depth={settings.depth}", "model.init.kind=xavier",
                f"model.layers.block.mixer.heads.heads={settings.heads}", "model.layers.block.mixer.dropout=0.0",
                "model.layers.block.dropout=0.0", "model.embed.dropout=0.0", f"task.window={settings.length}",
                f"train.tokens={settings.tokens}",
            ],
        )  # fmt: skip
        found = _accuracies(run, longest, settings.rows, lab.device)
        for part, accuracy in enumerate(found.view(PARTS, settings.length)[:, BACK:].mean(1)):
            yield {
                "positions": name,
                "length": (part + 1) * settings.length,
                "times the length of training": part + 1,
                "accuracy": accuracy,
            }


@torch.no_grad()
def _accuracies(run: Run, length: int, rows: int, device: torch.device) -> torch.Tensor:
    """Return, for each position, how often the model predicts the letter that the rule repeats, on new text."""
    tokenizer, model = run.tokenizer(), run.model(device)
    assert tokenizer is not None
    texts = [_echo_text(length + 1, random.Random(row)) for row in range(rows)]
    ids = torch.stack([torch.tensor(row) for row in tokenizer.encode(texts)]).to(device)
    guesses = model(ids[:, :-1]).argmax(-1)
    repeated = torch.cat((ids[:, :BACK], ids[:, 1:-BACK]), 1)  # what follows position t repeats t + 1 - BACK
    return (guesses == repeated).float().mean(0).cpu()


def _draw(rows: Sequence[Row]) -> Iterable[Picture]:
    yield Picture(
        "beyond",
        "How often the letter that the rule repeats is predicted, in parts of a text that end at these lengths: the "
        "first lies inside the length of training, the others beyond it. Where the lines of `none` and `linear` "
        "coincide, layer norm has removed the linear encoding.",
        draw.lines(
            [{**row, "end of the part in tokens": row["length"]} for row in rows],
            x="end of the part in tokens", y="accuracy", by="positions", log="x", styles={"linear": "--"},
            title="Beyond the length of training",
        ),
    )  # fmt: skip


def _judge(rows: Sequence[Row]) -> Verdict:
    names = list(dict.fromkeys(row["positions"] for row in rows))
    times = max(row["times the length of training"] for row in rows)

    def accuracy(name: str, part: int) -> Spread:
        return over_seeds(rows, "accuracy", {"positions": name, "times the length of training": part})

    def kept(name: str) -> float:
        """Return the share of the accuracy inside that is left far beyond: of what is better than chance."""
        chance = 1 / len(LETTERS)
        return (accuracy(name, times).mean - chance) / max(accuracy(name, 1).mean - chance, 1e-6)

    numbers = "; ".join(f"{_in_words(name)} {accuracy(name, 1)} and {accuracy(name, times)}" for name in names)
    extrapolating = [name for name in names if kept(name) >= KEPT and accuracy(name, 1).mean > SEEN]
    text = (
        f"Accuracy inside the length of training and in the part that ends at {times} times that length: {numbers}. At "
        f"least {KEPT:.0%} of what is better than chance is kept by "
        f"{', '.join(map(_in_words, extrapolating)) or 'no encoding'}."
    )
    if "sinusoidal" in names and "sinusoidal" not in extrapolating:
        text += " Sinusoidal positions do not generalise to longer texts: against the lecture, as in Press et al. 2022."
    if {"none", "linear"} <= set(names) and abs(accuracy("linear", 1).mean - accuracy("none", 1).mean) < SAME:
        text += " Linear positions are like no positions: layer norm removes a number that is added to all features."
    if not {"sinusoidal", "learned"} <= set(names):
        return Verdict(None, text)
    return Verdict("sinusoidal" in extrapolating and "learned" not in extrapolating, text)


def _in_words(name: str) -> str:
    """Return the name of an encoding for a sentence, where `none` could be read as no encoding of these."""
    return "no positions" if name == "none" else name


EXPERIMENT = Experiment(
    name="positions",
    title="Positional encodings beyond the length of training",
    claim="Positional encodings are functions of the position, which generalise to lengths that were not seen in "
    "training; of a learned table we know nothing beyond its length. A linear encoding a pos + b grows with the length "
    "and fails.",
    source="Slides on self-attention, 'add position as input'; lecture notes, from NMT to Transformers, 10.3; lecture "
    "from RNNs to Transformers, positional encoding. Vaswani et al. 2017; Su et al. 2021; Press et al. 2022; "
    "Kazemnejad et al. 2023.",
    method="""A text of 8 letters in which each letter repeats the one three places before it with probability 0.8, and
is random otherwise. To predict it, a model must attend to the token at a fixed distance, so it needs positions, but no
long context: what is measured is whether the encoding still works, not whether far tokens are found.

A small GPT-2 (2 layers, causal) with each encoding is trained by `regard train language` on windows of 32 letters, and
measured on texts four times as long: how often does it predict the letter that the rule repeats? The first three
letters of each part are left out. The learned table has rows for the long text, which training never reached.""",
    vary="""Longer windows, more layers; with `encodings` only some are trained:

    regard lab positions length=128 steps=600 --out lab/positions-long
    regard lab positions 'encodings=["sinusoidal", "rotary"]' depth=4 --out lab/positions-deep""",
    scales={
        "tiny": _Settings(encodings=("none", "linear"), length=16, width=16, heads=2, steps=3, tokens=128, rows=20),
        "default": _Settings(),
        "full": _Settings(length=256, width=256, depth=6, heads=8, steps=3000, tokens=16384, rows=200),
    },
    measure=_measure,
    draw=_draw,
    judge=_judge,
)
