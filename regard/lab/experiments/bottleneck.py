"""Bottleneck: translation quality against the length of the source, with and without attention.

Claim: without attention, the decoder s_t = g(y_t, s_{t-1}, c) knows the source only by the encoder's last state c =
h_T, one vector whatever the length (Cho et al. 2014). With attention it gets a new context c_t = sum_i a_{t,i} h_i at
every step, so the source does not pass through one vector (Bahdanau et al. 2015, figure 2).
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from random import Random

from regard import draw
from regard.data.lines import read_lines
from regard.lab.experiment import Experiment, Lab, Picture, Row, Verdict
from regard.lab.phrases import make_phrases
from regard.lab.shipped import shipped
from regard.lab.spread import over_seeds
from regard.tasks.metric import translation_scores

PLAIN, ATTENTIVE, TRANSFORMER = "RNN without attention", "RNN with attention", "Transformer"
LENGTH, BLEU, KEPT = "words in the source", "BLEU", "share kept"


@dataclass(frozen=True)
class _Settings:
    """The sentences, the models, and how long they are trained."""

    data: str  # "phrases" are generated; "tatoeba" are real sentences, chained like clauses
    pairs: int
    clauses: int  # the most that a source has
    dim: int
    depth: int
    steps: int
    tokens: int  # in an update
    tested: int  # sources of each number of clauses


def _measure(lab: Lab, settings: _Settings) -> Iterator[Row]:
    """Train three translators on the same pairs; translate sources of every length, greedily."""
    random = Random(lab.seed)
    sentences = {split: _sentences(settings.data, split) for split in ("train", "test")}

    def chains(split: str, count: int, clauses: int | None = None) -> list[tuple[str, str]]:
        return [_chain(sentences[split], clauses or random.randint(1, settings.clauses), random) for _ in range(count)]

    train, valid = chains("train", settings.pairs), chains("test", 20)
    test = {clauses: chains("test", settings.tested, clauses) for clauses in range(1, settings.clauses + 1)}
    files = [lab.file(f"train.{side}", _lines(train, place)) for place, side in enumerate(("en", "fr"))]
    held_out = [lab.file(f"valid.{side}", _lines(valid, place)) for place, side in enumerate(("en", "fr"))]
    for number, (name, (recipe, sizes)) in enumerate(_models(settings).items()):
        lab.progress(f"training: {name}", number / 3)
        overrides = [*sizes, f"train.tokens={settings.tokens}", f"model.dim={settings.dim}", "model.embed.dropout=0"]
        overrides += ["task.smoothing=0", "tokenizer.kind=" + ("word" if settings.data == "phrases" else "bpe")]
        run = lab.train(
            recipe, "translation", files, valid=held_out, recipe=recipe, steps=settings.steps, overrides=overrides
        )
        translator = run.load(str(lab.device))
        parameters = sum(weight.numel() for weight in translator.model.parameters())
        for clauses, pairs in test.items():
            made = translator.translate([english for english, _ in pairs], beam=1)
            yield {
                "model": name,
                "parameters": parameters,
                "clauses": clauses,
                LENGTH: round(sum(len(english.split()) for english, _ in pairs) / len(pairs)),
                BLEU: translation_scores(made, [french for _, french in pairs])["bleu"],
            }


def _models(settings: _Settings) -> dict[str, tuple[str, list[str]]]:
    """Return the recipe and the sizes of each model."""
    recurrent = [f"model.depth={settings.depth}", f"model.encoder.depth={settings.depth}", "model.dropout=0"]
    recurrent += ["model.encoder.layers.recurrent.dropout=0"]
    transformer = []
    for side in ("model.encoder", "model.decoder"):
        block = f"{side}.layers.block"
        transformer += [
            f"{side}.depth={settings.depth}",
            f"{block}.feedforward.hidden={4 * settings.dim}",
            f"{block}.dropout=0",
        ]
    return {
        PLAIN: ("rnn-seq2seq", recurrent),
        ATTENTIVE: ("rnn-attention", [*recurrent, "model.feed=none"]),  # the context is joined to the decoder's state
        TRANSFORMER: ("translator", transformer),
    }


def _sentences(data: str, split: str) -> list[tuple[str, str]]:
    """Return real pairs of up to 8 words; of generated ones, none are needed."""
    if data == "phrases":
        return []
    english, french = (read_lines(shipped(f"tatoeba/{split}.{side}")) for side in ("en", "fr"))
    return [(one, other) for one, other in zip(english, french, strict=True) if len(one.split()) <= 8]


def _chain(sentences: Sequence[tuple[str, str]], clauses: int, random: Random) -> tuple[str, str]:
    """Return a source of this many clauses or sentences, and its translation."""
    if sentences:
        english, french = zip(*random.choices(sentences, k=clauses), strict=True)
    else:
        pair = make_phrases(clauses, random)
        english, french = pair.english, pair.french
    return " ".join(english), " ".join(french)


def _lines(pairs: Sequence[tuple[str, str]], side: int) -> str:
    return "".join(pair[side] + "\n" for pair in pairs)


def _draw(rows: Sequence[Row]) -> Iterable[Picture]:
    """Draw BLEU over the length of the source."""
    yield Picture(
        "length",
        "BLEU of sources with 1, 2, 3, ... clauses, for models with the same data, width, number of updates and "
        "optimizer. The band spans the seeds.",
        draw.lines(rows, x=LENGTH, y=BLEU, by="model", title="Translation quality against the length of the source"),
    )


def _judge(rows: Sequence[Row]) -> Verdict:
    """Say yes if the model without attention keeps the smallest share of its BLEU, over all seeds."""
    longest = max(row["clauses"] for row in rows)
    short = {(row["model"], row["seed"]): row[BLEU] for row in rows if row["clauses"] == 1}
    ends = [dict(row) for row in rows if row["clauses"] == longest]
    for row in ends:
        row[KEPT] = row[BLEU] / best if (best := short[row["model"], row["seed"]]) else 0.0
    kept = {name: over_seeds(ends, KEPT, {"model": name}) for name in (PLAIN, ATTENTIVE, TRANSFORMER)}
    reached = {name: over_seeds(ends, BLEU, {"model": name}) for name in kept}
    words = max(row[LENGTH] for row in rows)
    return Verdict(
        all(kept[PLAIN].high < kept[name].low for name in (ATTENTIVE, TRANSFORMER)),
        f"Of the BLEU that they have on one clause, the models keep on the longest sources (about {words} words) a "
        f"share of {kept[PLAIN]} without attention, {kept[ATTENTIVE]} with attention and {kept[TRANSFORMER]} in the "
        f"Transformer. There they reach {reached[PLAIN]}, {reached[ATTENTIVE]} and {reached[TRANSFORMER]} BLEU.",
    )


EXPERIMENT = Experiment(
    name="bottleneck",
    title="One vector for a whole sentence: BLEU against length with and without attention",
    claim="A translator without attention encodes the entire source into a single vector, which is an information "
    "bottleneck: the longer the source, the worse the translation. With attention, the decoder gets a new context "
    "vector at every step, and the input sequence is not bottlenecked through a single vector.",
    source="Lecture notes from NMT to the Transformer, 3.1, 'Bottleneck problem'; lecture from RNNs to the "
    "Transformer, sequence to sequence with RNNs and attention; Bahdanau et al. 2015, figure 2.",
    method="Three translators learn the same English-French pairs: `rnn-seq2seq` (LSTM, no attention), "
    "`rnn-attention` (GRU, additive attention, no input feeding) and `translator` (a Transformer), with the same "
    "width, number of updates, tokens in an update and optimizer (at higher rates for the first two). The pairs are "
    "generated from a small grammar with reordered adjectives and gender, in chains of clauses, so that every length "
    "has the same difficulty and a perfect translation exists. BLEU is measured on other sentences of each length, "
    "which all occur in training; "
    "`--scale full` uses chained real sentences (Tatoeba).\n\nEqual budget means equal data and updates, not equal "
    "time: the table gives the parameters, which differ by a third.",
    vary="`regard lab bottleneck --scale full` on an accelerator. For other models on your own pairs: `regard compare "
    "rnn-seq2seq rnn-attention translator --on FILES`.",
    scales={
        "tiny": _Settings("phrases", 100, 2, 16, 1, 3, 128, 2),
        "default": _Settings("phrases", 8000, 4, 64, 1, 250, 1024, 60),
        "full": _Settings("tatoeba", 200_000, 6, 512, 2, 10_000, 8192, 300),
    },
    measure=_measure,
    draw=_draw,
    judge=_judge,
)
