"""Alignment: does attention find which English word a French word comes from, also where the order differs?

Claim: the weights a_{t,i} = softmax_i(f_att(s_{t-1}, h_i)) of a translator are a soft alignment: diagonal where the
words of both languages come in the same order, crossing where they do not (Bahdanau et al. 2015, figure 3). Measured by
the alignment error rate AER = 1 - 2 |A & S| / (|A| + |S|) of links A against links S made by hand (Och, Ney 2003).
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from random import Random

import numpy as np
import torch

from regard import draw
from regard.data.lines import read_lines
from regard.decode.align import cross_weights
from regard.lab.experiment import Experiment, Lab, Picture, Row, Verdict
from regard.lab.page import average_seeds
from regard.lab.phrases import PhrasePair, make_phrases, phrase_lines
from regard.lab.shipped import shipped
from regard.lab.spread import over_seeds
from regard.training.run import Run

RECURRENT, TRANSFORMER, DIAGONAL = "RNN with attention", "Transformer", "diagonal"
BY, AER, CROSSED = "aligned by", "alignment error rate", "share of crossings found"

# English | French | for each French word the number of its English word. All words are in Tatoeba.
BY_HAND = """
i bought a red car | j ai acheté une voiture rouge | 0 1 1 2 4 3
he has a black cat | il a un chat noir | 0 1 2 4 3
we live in a red house | nous vivons dans une maison rouge | 0 1 2 3 5 4
the red book is mine | le livre rouge est à moi | 0 2 1 3 4 4
this is an interesting book | c est un livre intéressant | 0 1 2 4 3
he is a strong man | c est un homme fort | 0 1 2 4 3
i like hot coffee | j aime le café chaud | 0 1 - 3 2
it was a difficult question | c était une question difficile | 0 1 2 4 3
he gave me a strange answer | il m a donné une réponse étrange | 0 2 1 1 3 5 4
i have an important question | j ai une question importante | 0 1 2 4 3
this young man is my friend | ce jeune homme est mon ami | 0 1 2 3 4 5
that is a good idea | c est une bonne idée | 0 1 2 3 4
the little girl is tired | la petite fille est fatiguée | 0 1 2 3 4
i saw a white dog | j ai vu un chien blanc | 0 1 1 2 4 3
i see him every day | je le vois chaque jour | 0 2 1 3 4
i love you | je t aime | 0 2 1
i know her | je la connais | 0 2 1
give me the blue book | donne moi le livre bleu | 0 1 2 4 3
i want a new car | je veux une nouvelle voiture | 0 1 2 3 4
she has long hair | elle a les cheveux longs | 0 1 - 3 2
he lives in a big house | il vit dans une grande maison | 0 1 2 3 4 5
my father has a black dog | mon père a un chien noir | 0 1 2 3 5 4
i drink red wine | je bois du vin rouge | 0 1 - 3 2
he is an honest man | c est un homme honnête | 0 1 2 4 3
french is a difficult language | le français est une langue difficile | - 0 1 2 4 3
you are a beautiful woman | vous êtes une belle femme | 0 1 2 3 4
he wrote a long letter | il a écrit une longue lettre | 0 1 1 2 3 4
i want a black cat | je veux un chat noir | 0 1 2 4 3
she lives in a small red house | elle vit dans une petite maison rouge | 0 1 2 3 4 6 5
i need a japanese book | j ai besoin d un livre japonais | 0 1 1 - 2 4 3
"""


@dataclass(frozen=True)
class _Settings:
    """The sentences, the models, and how long they are trained."""

    data: str  # "phrases" are generated, with their links; "tatoeba" are real, and compared with links made by hand
    pairs: int
    longest: int  # clauses of generated, words of real sentences
    dim: int
    depth: int  # layers of the Transformer's encoder and decoder
    steps: int
    tokens: int


def _measure(lab: Lab, settings: _Settings) -> Iterator[Row]:
    """Train two translators, and let them read pairs whose words are linked already."""
    random = Random(lab.seed)
    if settings.data == "phrases":
        wanted = [make_phrases(random.randint(1, settings.longest), random) for _ in range(60)]
        pairs = [make_phrases(random.randint(1, settings.longest), random) for _ in range(settings.pairs)]
    else:
        wanted = _by_hand()
        pairs = _tatoeba(settings, {pair.english for pair in wanted})
    yield from _rows(DIAGONAL, wanted, [_diagonal(len(pair.english), len(pair.french)) for pair in wanted])
    files = [lab.file(f"train.{side}", text) for side, text in zip(("en", "fr"), phrase_lines(pairs), strict=True)]
    for number, (name, (recipe, sizes)) in enumerate(_models(settings).items()):
        lab.progress(f"training: {name}", number / 2)
        overrides = [f"train.tokens={settings.tokens}", f"model.dim={settings.dim}"]
        overrides += ["train.valid_rows=10", "tokenizer.kind=word", *sizes]
        run = lab.train(recipe, "translation", files, recipe=recipe, steps=settings.steps, overrides=overrides)
        yield from _rows(name, wanted, _attention(run, wanted, lab.device))


def _models(settings: _Settings) -> dict[str, tuple[str, list[str]]]:
    """Return the recipe and the sizes of each model."""
    dropout = 0 if settings.data == "phrases" else 0.1  # generated sentences do not repeat
    recurrent = [f"model.dropout={dropout}", f"model.encoder.layers.recurrent.dropout={dropout}"]
    transformer = []
    for side in ("model.encoder", "model.decoder"):
        block = f"{side}.layers.block"
        transformer += [f"{side}.depth={settings.depth}", f"{block}.dropout={dropout}"]
        transformer += [f"{block}.feedforward.hidden={4 * settings.dim}"]
    embed = f"model.embed.dropout={dropout}"
    return {RECURRENT: ("rnn-attention", [*recurrent, embed]), TRANSFORMER: ("translator", [*transformer, embed])}


def _by_hand() -> list[PhrasePair]:
    """Return the pairs that were aligned by hand."""
    pairs = []
    for line in BY_HAND.strip().splitlines():
        english, french, places = (part.split() for part in line.split("|"))
        links = [(int(place), number) for number, place in enumerate(places) if place != "-"]
        pairs.append(PhrasePair(tuple(english), tuple(french), tuple(links)))
    return pairs


def _tatoeba(settings: _Settings, left_out: set[tuple[str, ...]]) -> list[PhrasePair]:
    """Return short real pairs without links; words are in lower case, and an apostrophe separates two."""

    def words(side: str) -> list[tuple[str, ...]]:
        return [tuple(re.findall(r"\w+", line.lower())) for line in read_lines(shipped(f"tatoeba/train.{side}"))]

    found = [
        PhrasePair(english, french, ())
        for english, french in zip(words("en"), words("fr"), strict=True)
        if max(len(english), len(french)) <= settings.longest and english not in left_out
    ]
    return found[: settings.pairs]


def _attention(run: Run, pairs: Sequence[PhrasePair], device: torch.device) -> list[np.ndarray]:
    """Return for each pair how the French words (rows) attend to the English ones, given the pair (teacher forcing)."""
    model, tokenizer = run.model(device), run.tokenizer()
    assert tokenizer is not None
    template = model.template(tokenizer)
    assert template.first is not None
    weights = []
    for pair in pairs:
        source = [*tokenizer.encode(" ".join(pair.english)).tolist(), *template.after]
        target = tokenizer.encode(" ".join(pair.french)).tolist()
        (found,) = cross_weights(model, torch.tensor([source], device=device), None, template.first, [target])
        weights.append(found[:, : len(pair.english)].cpu().numpy())  # without the end token
    return weights


def _diagonal(english: int, french: int) -> np.ndarray:
    """Return weights 1 on the diagonal."""
    places = np.arange(french) * (english - 1) / max(french - 1, 1)
    return np.eye(english)[np.rint(places).astype(int)]


def _rows(name: str, pairs: Sequence[PhrasePair], weights: Sequence[np.ndarray]) -> Iterator[Row]:
    """Link every French word to the English word that it attends to most; yield the errors, and the weights to draw."""
    shared = made = wanted = crossings = crossed = 0
    for pair, found in zip(pairs, weights, strict=True):
        best, right = found.argmax(1).tolist(), set(pair.links)
        links = {(english, french) for french, english in enumerate(best)}
        shared, made, wanted = shared + len(links & right), made + len(links), wanted + len(right)
        before = crossings
        for (one, first), (other, second) in combinations(sorted(right, key=lambda link: link[1]), 2):
            if one > other:  # in English the first of these two French words comes second
                crossings += 1
                crossed += (best[first], best[second]) == (one, other)
        if before == 0 < crossings:  # the first pair in which words change places
            for (row, column), weight in np.ndenumerate(found):
                words = {"French": pair.french[row], "English": pair.english[column]}
                yield {BY: name, "row": row, "column": column, **words, "weight": float(weight)}
    yield {BY: name, AER: 1 - 2 * shared / (made + wanted), CROSSED: crossed / max(crossings, 1)}


def _errors(rows: Sequence[Row]) -> list[Row]:
    """Return the rows with errors, without those with single weights."""
    return [row for row in rows if AER in row]


def _draw(rows: Sequence[Row]) -> Iterable[Picture]:
    """Draw the errors, and the weights of one sentence."""
    measured = [{**row, "measure": name, "share": row[name]} for row in _errors(rows) for name in (AER, CROSSED)]
    yield Picture(
        "errors",
        "Alignment error rate (lower is better), and the share of crossing pairs of words of which both are found.",
        draw.bars(measured, x="measure", y="share", by=BY, title="Alignments against the true ones"),
    )
    seed = min(row["seed"] for row in rows)
    for name, file in ((RECURRENT, "rnn"), (TRANSFORMER, "transformer")):
        cells = [row for row in rows if row[BY] == name and row["seed"] == seed and "weight" in row]
        french = [row["French"] for row in cells if row["column"] == 0]
        english = [row["English"] for row in cells if row["row"] == 0]
        weights = np.array([row["weight"] for row in cells]).reshape(len(french), len(english))
        yield Picture(
            f"{file}-weights",
            f"{name}: how each French word attends to the English words, for a pair that was not trained on.",
            draw.heatmap(weights, french, english, title=f"{name}, seed {seed}"),
        )


def _judge(rows: Sequence[Row]) -> Verdict:
    """Say yes if both models align better than the diagonal and find most crossings, in every seed."""
    found = _errors(rows)
    aer = {name: over_seeds(found, AER, {BY: name}) for name in (RECURRENT, TRANSFORMER, DIAGONAL)}
    crossed = {name: over_seeds(found, CROSSED, {BY: name}) for name in (RECURRENT, TRANSFORMER)}
    of = {(row[BY], row["seed"]): row[AER] for row in found}  # the sentences of the seeds differ
    gains = {name: [of[DIAGONAL, seed] - of[name, seed] for by, seed in of if by == name] for name in crossed}
    better = [min(gains[name]) > 0 and crossed[name].low > 0.5 for name in crossed]
    worse = [max(gains[name]) < 0 for name in crossed]
    return Verdict(
        all(better) or (None if any(better) or not all(worse) else False),
        f"The alignment error rate is {aer[RECURRENT]} for the RNN's attention and {aer[TRANSFORMER]} for the "
        f"Transformer's cross-attention; a diagonal has {aer[DIAGONAL]}. Of the crossing pairs of words, the RNN "
        f"finds {crossed[RECURRENT]} and the Transformer {crossed[TRANSFORMER]} (as shares; the diagonal none).",
    )


EXPERIMENT = Experiment(
    name="alignment",
    title="Attention aligns words: diagonal where the order agrees, crossing where it does not",
    claim="Diagonal attention means that words correspond in order; where the order differs, as in English adjectives "
    "before and French adjectives after their noun, attention figures out the different word order.",
    source="Lecture from RNNs to the Transformer, 'Sequence-to-sequence with RNNs and attention', the alignment "
    "picture; Bahdanau et al. 2015, figure 3.",
    method="An RNN with attention (`rnn-attention`) and a small Transformer (`translator`) learn to translate "
    "English into French. Then they read pairs that are not in the training data (teacher forcing), and every French "
    "word is linked to the English word that it attends to most when it is written: by the RNN's one attention, and "
    "by the mean over the heads of the Transformer's second-to-last layer (Garg et al. 2019). The links are compared "
    "with the true ones, and with a diagonal.\n\nBy default the sentences are generated from a small grammar, which "
    "knows the true links; most French adjectives follow their noun. `--scale full` learns real sentences (Tatoeba) "
    "and is compared with 30 pairs that were aligned by hand.",
    vary="`regard lab alignment data=tatoeba longest=7 pairs=20000 steps=300` shows how little a few minutes teach "
    "an RNN about real sentences. For a model of your own: `regard translate --alignments FILE`, and `regard look` for "
    "the picture of any sentence.",
    scales={
        "tiny": _Settings("phrases", 60, 1, 16, 1, 2, 64),
        "default": _Settings("phrases", 6000, 2, 64, 1, 200, 768),
        "full": _Settings("tatoeba", 50_000, 20, 256, 4, 6000, 8192),
    },
    measure=_measure,
    draw=_draw,
    judge=_judge,
    table=lambda rows: average_seeds(_errors(rows)),
)
