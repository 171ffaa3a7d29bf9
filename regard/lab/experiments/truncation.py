"""Truncated backpropagation through time: what cannot be learned with chunks that are too short.

A long text is read in chunks of w tokens. The hidden state is carried from chunk to chunk, but the gradient is cut at
the border: a symbol that is needed d > w tokens later never gets a gradient for having been forgotten. Williams, Peng
1990; Sutskever 2013; Tallec, Ollivier 2017 (the bias that this causes).
"""

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from regard import draw
from regard.lab.experiment import Experiment, Lab, Picture, Row, Verdict
from regard.lab.experiments.recall import powers_of_two, recall_accuracy, recall_text
from regard.lab.spread import over_seeds

SYMBOLS = "abcdefgh"
CHANCE = 1 / len(SYMBOLS)
SOLVED, FAILED = 0.9, 0.5
BEYOND = 8  # measured up to this many times the distance of training
LONG, MIXED = "only the long distance", "short distances, too"


@dataclass(frozen=True)
class _Settings:
    recipe: str = "gru"
    width: int = 56
    distance: int = 8  # between a symbol and the question
    chunks: tuple[int, ...] = (4, 8, 16, 32)
    mixed_chunks: tuple[int, ...] = (4, 32)  # for the text that has shorter distances, too
    steps: int = 150
    tokens: int = 2048  # of an update, whatever the chunk
    rows: int = 200  # questions at each distance, to measure


def _measure(lab: Lab, settings: _Settings) -> Iterator[Row]:
    plans = [(LONG, [settings.distance], chunk) for chunk in settings.chunks]
    plans += [(MIXED, powers_of_two(settings.distance), chunk) for chunk in settings.mixed_chunks]
    for number, (text, distances, chunk) in enumerate(plans):
        lab.progress(f"training with chunks of {chunk} tokens, {text}", number / len(plans))
        chance = random.Random(lab.seed)
        lines = int(settings.steps * settings.tokens / (sum(distances) / len(distances) + 3))
        name = "long" if text == LONG else "mixed"
        files = [
            lab.file(f"{name}-{part}.txt", recall_text(count, distances, chance, SYMBOLS))
            for part, count in (("train", lines), ("valid", 200))
        ]
        run = lab.train(
            f"{name}-{chunk}", "language", files[:1], valid=files[1:], recipe=settings.recipe,
            steps=settings.steps,
            overrides=[
                f"model.dim={settings.width}", "task.documents=line", f"task.window={chunk}",
                f"train.tokens={settings.tokens}",
            ],
        )  # fmt: skip
        for distance in powers_of_two(BEYOND * settings.distance):
            yield {
                "text": text,
                "chunk": chunk,
                "distance": distance,
                "trained": int(distance in distances),
                "accuracy": recall_accuracy(run, distance, settings.rows, lab.device, SYMBOLS),
            }


def _draw(rows: Sequence[Row]) -> Iterable[Picture]:
    far = max(row["distance"] for row in rows if row["trained"])
    chunks = dict.fromkeys(row["chunk"] for row in rows)
    at_far = [{**row, "series": f"text with {row['text']}"} for row in rows if row["distance"] == far]
    chance = [{"chunk": chunk, "accuracy": CHANCE, "series": "chance"} for chunk in chunks]
    yield Picture(
        "chunks",
        f"Share of symbols that are remembered over {far} tokens, against the length of the chunks that the gradient "
        f"passes through. All runs have seen the same number of tokens in the same number of updates.",
        draw.lines(
            [*at_far, *chance], x="chunk", y="accuracy", by="series", log="x", styles={"chance": "--"},
            title=f"Recall over {far} tokens against the chunk length",
        ),
    )  # fmt: skip
    ends = {row["chunk"] for row in rows if row["text"] == MIXED} or {min(chunks), max(chunks)}
    shown = [{**row, "series": f"{row['text']}, chunks of {row['chunk']}"} for row in rows if row["chunk"] in ends]
    chance = [{**row, "accuracy": CHANCE, "series": "chance"} for row in shown]
    yield Picture(
        "distances",
        f"The same models at other distances. With only the long distance ({far}) in the text, a model learns that "
        f"distance; with the distances 1 to {far}, what is learned within a chunk carries over to distances that are "
        f"longer than the chunk, and than any in training.",
        draw.lines(
            [*shown, *chance], x="distance", y="accuracy", by="series", log="x", styles={"chance": "--"},
            title="Recall at other distances",
        ),
    )  # fmt: skip


def _judge(rows: Sequence[Row]) -> Verdict:
    far = max(row["distance"] for row in rows if row["trained"])
    chunks = sorted({row["chunk"] for row in rows if row["text"] == LONG})
    found = {chunk: over_seeds(rows, "accuracy", {"text": LONG, "chunk": chunk, "distance": far}) for chunk in chunks}
    short = [found[chunk].mean for chunk in chunks if chunk <= far]
    holds = None  # it takes chunks on both sides of the distance
    if short and chunks[-1] > far:
        holds = max(short) < FAILED and found[chunks[-1]].mean >= SOLVED
    text = (
        f"A symbol {far} tokens back is remembered in this share of cases (chance {CHANCE:.3g}): "
        + "; ".join(f"chunks of {chunk}: {found[chunk]}" for chunk in chunks)
        + "."
    )
    if short and max(short) >= FAILED:
        text += (
            f" Where it is remembered although the chunk is not longer than {far}, the state has kept it without being "
            "trained to, and only reading it was learned."
        )
    mixed = sorted({row["chunk"] for row in rows if row["text"] == MIXED})
    if mixed and mixed[0] < far:
        carried = over_seeds(rows, "accuracy", {"text": MIXED, "chunk": mixed[0], "distance": far})
        but = "But the state is carried" if carried.mean >= SOLVED else "The state is carried"
        text += (
            f" {but} across the border: where the text has shorter distances, too, chunks of {mixed[0]} reach "
            f"{carried} at distance {far}."
        )
    return Verdict(holds, text)


EXPERIMENT = Experiment(
    name="truncation",
    title="Truncated backpropagation: what is longer than a chunk is not learned",
    claim="Backpropagation through a long sequence is truncated: run through chunks of the sequence, carry the hidden "
    "state forward, but backpropagate only within a chunk. So a dependency that is longer than a chunk gets no "
    "gradient and cannot be learned.",
    source="Lecture from RNNs to Transformers, truncated backpropagation through time. Williams, Peng 1990; Sutskever "
    "2013; Tallec, Ollivier 2017.",
    method="""The text has lines such as `c4071382?c`: one of 8 letters, random digits, a question mark, and the letter
again, always at the same distance. A GRU reads it with `regard train language`, which carries the state of a recurrent
model from chunk to chunk and cuts the gradient at the border; `task.window` is the length of a chunk. The number of
updates and the tokens of an update are the same in all runs, so short chunks are read in more parallel lanes. Lines and
chunks are not aligned: with chunks a little longer than the distance only some of the lines lie within one chunk.

The accuracy is measured on new lines, without any chunks. A reader may object that the state might keep the letter by
chance, so that reading it out can be learned without a gradient through time: that is what the accuracy above chance at
short chunks shows.

A second text also has shorter distances. What is learned there within a chunk, to hold a letter until it is asked for,
may carry over to distances beyond the chunk.""",
    vary="""Longer distances need more updates; another recurrence:

    regard lab truncation distance=16 'chunks=[8, 16, 32, 64]' steps=600 --out lab/truncation-16
    regard lab truncation recipe=lstm --out lab/truncation-lstm""",
    scales={
        "tiny": _Settings(width=16, distance=4, chunks=(2,), mixed_chunks=(), steps=5, tokens=256, rows=50),
        "default": _Settings(),
        "full": _Settings(
            width=256, distance=32, chunks=(8, 16, 32, 64, 128), mixed_chunks=(8, 128), steps=3000, tokens=16384
        ),
    },
    measure=_measure,
    draw=_draw,
    judge=_judge,
)
