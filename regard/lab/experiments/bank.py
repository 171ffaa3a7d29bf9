"""Bank: the vector of a homograph moves with its context, layer by layer; and what 'it' and 'she' attend to.

Claim: a word embedding is the same in every sentence; self-attention makes it depend on the sentence, so that 'bank'
near 'river' and 'bank' near 'street' get different vectors, and 'it' attends to the word that it stands for (Vaswani
et al. 2017, figures 3 to 5; Devlin et al. 2018).
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from random import Random
from statistics import fmean
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard import draw
from regard.data.lines import read_lines
from regard.lab.experiment import Experiment, Lab, Picture, Row, Verdict
from regard.lab.page import average_seeds
from regard.lab.shipped import shipped
from regard.lab.spread import over_seeds
from regard.parts.watch import watch
from regard.training.run import Run, open_run

WORD, LAYER, APART, COSINE = "word", "layer", "senses told apart", "cosine of the two contexts"
ANTECEDENT, OTHER, AGREES = "weight on the antecedent", "weight on another word", "pronoun agrees"

# A homograph, and for each of its two senses how the French translation begins a word that gives it away.
HOMOGRAPHS = {
    "watch": ("montre", "regard"),
    "kind": ("gentil|aimable", "genre|sorte|type"),
    "like": ("aim|plaî|plai|voudr|veux", "comme"),
    "right": ("droite", "raison|juste|correct"),
    "left": ("gauche", "part|laiss|quitt|rest"),
    "cold": ("froid", "rhume"),
}
RIVER, STREET = "i arrived at the bank after crossing the river", "i arrived at the bank after crossing the street"
IT = "the animal didn t cross the street because it was too tired"
PEOPLE = (
    ("tom", "mary"),
    ("my father", "my mother"),
    ("the boy", "the girl"),
    ("the man", "the woman"),
    ("his son", "his daughter"),
)
SAYS = (
    "says that",
    "thinks that",
    "knew that",
    "said that",
    "is happy because",
    "stayed home because",
    "was late because",
)
DOES = (
    "is tired",
    "was busy",
    "has to go",
    "wants to eat",
    "was sick",
    "is right",
    "can swim",
    "will come",
    "needs money",
)


@dataclass(frozen=True)
class _Settings:
    """The model, how long it is trained, and how often each sense is looked at."""

    sentences: int
    dim: int
    depth: int
    steps: int
    tokens: int
    occurrences: int  # at most, of each sense
    run: str  # the folder of a run of `regard train masked` to be used instead; "": one is trained


def _measure(lab: Lab, settings: _Settings) -> Iterator[Row]:
    """Train a small masked language model on English sentences, and look into it."""
    pairs = _pairs()
    random = Random(lab.seed)
    generated = random.choices([text for text, _, _ in _sayings(held_out=False)], k=settings.sentences // 4)
    sentences = [english for english, _ in pairs[: settings.sentences]] + generated
    random.shuffle(sentences)  # the end is held out for validation
    lab.progress("training a masked language model", 0.0)
    reader = _Reader(_train(lab, settings, sentences), lab.device)
    lab.progress("reading homographs", 0.9)
    for word, senses in HOMOGRAPHS.items():
        vectors = [_vectors(reader, pairs, word, mine, other, settings) for mine, other in (senses, senses[::-1])]
        for layer in range(reader.layers + 1):
            first, second = (torch.stack([each[layer] for each in sense]) for sense in vectors)
            yield {WORD: word, LAYER: layer, APART: _tell_apart(first, second), "sentences": len(first) + len(second)}
    river, street = (reader.vectors(text, text.split().index("bank")) for text in (RIVER, STREET))
    for layer, (one, other) in enumerate(zip(river, street, strict=True)):
        yield {WORD: "bank", LAYER: layer, COSINE: F.cosine_similarity(one, other, 0)}
    yield from _pronouns(reader)
    for head, weights in reader.attention(IT, IT.split().index("it")).items():
        yield from ({"head": head, "key": key, "weight": weight} for key, weight in enumerate(weights.tolist()))


def _pairs() -> list[tuple[str, str]]:
    """Return English sentences as words in lower case, with their French translations."""
    sides = (read_lines(shipped(f"tatoeba/train.{side}")) for side in ("en", "fr"))
    return [(" ".join(re.findall("[a-z]+", one.lower())), other.lower()) for one, other in zip(*sides, strict=True)]


def _train(lab: Lab, settings: _Settings, sentences: Sequence[str]) -> Run:
    """Train a masked language model of words, or open the run that the user names."""
    if settings.run:
        return open_run(settings.run)
    overrides = [f"model.dim={settings.dim}", f"model.depth={settings.depth}", "tokenizer.kind=word"]
    overrides += [f"model.layers.block.feedforward.hidden={2 * settings.dim}", "tokenizer.vocabulary=1600"]
    overrides += [
        "model.layers.block.mixer.heads.heads=4",
        "task.documents=line",
        "task.window=64",
        f"train.tokens={settings.tokens}",
    ]
    overrides += ["task.rate=0.3", "train.optimizer.kind=muon", "train.schedule.kind=linear"]  # learns faster
    file = lab.file("sentences.txt", "".join(sentence + "\n" for sentence in sentences))
    return lab.train(
        "masked",
        "masked",
        [file],
        recipe=lab.recipe or "reader",
        steps=settings.steps,
        overrides=overrides,
    )


class _Reader:
    """A masked language model that reads single sentences, in which every word must be one token."""

    def __init__(self, run: Run, device: torch.device) -> None:
        self.model, self.device = run.model(device), device
        tokenizer = run.tokenizer()
        assert tokenizer is not None
        self.tokenizer = tokenizer
        self.taps = self.model.sequences()["tokens"].taps
        self.layers = len(self.taps) - 1

    def read(self, text: str, hide: int | None = None) -> Tensor:
        """Return the logits of a sentence between end tokens; the word number `hide` is masked."""
        words = list(self.tokenizer.encode(text))
        if hide is not None:
            words[hide] = self.tokenizer.mask
        ids = torch.tensor([[self.tokenizer.end, *words, self.tokenizer.end]], device=self.device)
        with torch.no_grad():
            logits: Tensor = self.model(ids)
        return logits[0, 1:-1].cpu()

    def vectors(self, text: str, place: int) -> list[Tensor]:
        """Return the vectors of a word: that of the embedding, and those above each layer."""
        with _tapped(self.taps) as found:
            self.read(text)
        return [vectors[0, 1 + place].cpu() for vectors in found]

    def attention(self, text: str, place: int, hide: int | None = None) -> dict[str, Tensor]:
        """Return how a word attends to the words of its sentence, for each head; the word number `hide` is masked."""
        with watch(self.model) as tape:
            self.read(text, hide)
        heads = {}
        for role in self.model.attentions():
            for head, weights in enumerate(tape.weights(role.name)[0]):
                heads[f"{role.layer}.{head + 1}"] = weights[1 + place, 1:-1].cpu()
        return heads


@contextmanager
def _tapped(taps: Sequence[Any]) -> Iterator[list[Tensor]]:
    """Record the vectors at these places while a model reads."""
    found: list[Tensor] = []

    def before(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        found.append(inputs[0])

    def after(module: nn.Module, inputs: Any, output: Tensor) -> None:
        found.append(output)

    hooks = [
        tap.module.register_forward_pre_hook(before) if tap.side == "input" else tap.module.register_forward_hook(after)
        for tap in taps
    ]
    try:
        yield found
    finally:
        for hook in hooks:
            hook.remove()


# --- homographs ------------------------------------------------------------------------------------------------------


def _vectors(
    reader: _Reader, pairs: Sequence[tuple[str, str]], word: str, sense: str, other: str, settings: _Settings
) -> list[list[Tensor]]:
    """Return the vectors of a word at every layer, in sentences whose translation has this sense and not the other."""
    found = []
    for english, french in pairs:
        words = english.split()
        if words.count(word) == 1 and re.search(rf"\b({sense})", french) and not re.search(rf"\b({other})", french):
            found.append(reader.vectors(english, words.index(word)))
            if len(found) == settings.occurrences:
                break
    return found


def _tell_apart(first: Tensor, second: Tensor) -> float:
    """Return how often a vector is nearer to the mean of its own sense than to that of the other.

    The vector itself is left out of the mean; both senses count equally, and a tie counts half. So the result is 0.5
    for vectors that do not depend on the context.
    """
    shares = []
    for own, other in ((first, second), (second, first)):
        rest = (own.sum(0) - own) / max(len(own) - 1, 1)
        near, far = (own - rest).norm(dim=1), (own - other.mean(0)).norm(dim=1)
        equal = torch.isclose(near, far, atol=1e-4)
        shares.append(float(torch.where(equal, 0.5, (near < far).float()).mean()))
    return fmean(shares)


# --- pronouns --------------------------------------------------------------------------------------------------------


def _sayings(held_out: bool) -> list[tuple[str, str, str]]:
    """Return sentences about a man or woman with the pronoun and its antecedent; a quarter of them is held out."""
    return [
        (f"{person} {says} {pronoun} {does}", pronoun, person.split()[-1])
        for first, says in enumerate(SAYS)
        for second, does in enumerate(DOES)
        if ((first + second) % 4 == 0) == held_out
        for people in PEOPLE
        for person, pronoun in zip(people, ("he", "she"), strict=True)
    ]


def _pronouns(reader: _Reader) -> Iterator[Row]:
    """Mask 'he' or 'she', and see which is more likely, and what the model attends to there."""
    he, she = (int(reader.tokenizer.encode(word)[0]) for word in ("he", "she"))
    agrees, weights = [], []
    for text, pronoun, antecedent in _sayings(held_out=True):
        words = text.split()
        place, before = words.index(pronoun), words.index(antecedent)
        logits = reader.read(text, hide=place)[place]
        agrees.append(bool(logits[he] > logits[she]) == (pronoun == "he"))
        others = [number for number in range(len(words)) if number not in (place, before)]
        heads = reader.attention(text, place, hide=place)
        weights.append({name: (float(row[before]), float(row[others].mean())) for name, row in heads.items()})
    yield {AGREES: fmean(agrees), "sentences": len(agrees)}
    # the head is chosen on one half, with 'he' and 'she', and measured on the other
    chosen = weights[::4] + weights[1::4]
    tested = weights[2::4] + weights[3::4]
    best = max(chosen[0], key=lambda name: fmean(one[name][0] - one[name][1] for one in chosen))
    yield {
        "head": best,
        ANTECEDENT: fmean(one[best][0] for one in tested),
        OTHER: fmean(one[best][1] for one in tested),
    }


# --- results ---------------------------------------------------------------------------------------------------------


def _with(rows: Sequence[Row], column: str) -> list[Row]:
    return [row for row in rows if column in row]


def _draw(rows: Sequence[Row]) -> Iterable[Picture]:
    """Draw the homographs over the layers, and the attention of 'it'."""
    told = _with(rows, APART)
    yield Picture(
        "homographs",
        "How often the vector of a homograph is nearer to the mean of its own sense than to that of the other "
        "(chance: 0.5). Layer 0 is the embedding, which is the same in every sentence. The senses are known from "
        "French translations.",
        draw.lines(told, x=LAYER, y=APART, by=WORD, title="Senses told apart, layer by layer"),
    )
    lecture = [{**row, LAYER: f"layer {row[LAYER]}"} for row in _with(rows, COSINE)]
    yield Picture(
        "bank",
        f"The cosine between the vectors of 'bank' in '{RIVER}' and in '{STREET}'. It falls below 1, but hardly: "
        "'bank' has one sense in the text that this model has read.",
        draw.bars(lecture, x=LAYER, y=COSINE, title="The vector of 'bank' in the lecture's two sentences"),
    )
    seed = min(row["seed"] for row in rows)
    cells = [row for row in _with(rows, "key") if row["seed"] == seed]
    heads = list(dict.fromkeys(row["head"] for row in cells))
    weights = np.array([row["weight"] for row in cells]).reshape(len(heads), -1)
    yield Picture(
        "it",
        f"What 'it' attends to in '{IT}', by layer.head (seed {seed}). The weights of a row do not add up to 1: the "
        "rest is on the end tokens around the sentence.",
        draw.heatmap(weights, heads, IT.split(), beside="this head looks …", title="'it', head by head"),
    )


def _judge(rows: Sequence[Row]) -> Verdict:
    """Say yes if the top layer tells senses apart, and the pronoun attends to its antecedent, in every seed."""
    told, top = _with(rows, APART), max(row[LAYER] for row in _with(rows, APART))
    means = [
        {LAYER: layer, APART: fmean(row[APART] for row in told if (row["seed"], row[LAYER]) == (seed, layer))}
        for seed in sorted({row["seed"] for row in told})
        for layer in (0, top)
    ]
    below, above = (over_seeds(means, APART, {LAYER: layer}) for layer in (0, top))
    cosine = over_seeds(_with(rows, COSINE), COSINE, {LAYER: top})
    agrees = over_seeds(_with(rows, AGREES), AGREES)
    on, off = (over_seeds(_with(rows, ANTECEDENT), name) for name in (ANTECEDENT, OTHER))
    moves, attends = above.low > max(0.6, below.high), on.low > 2 * off.high
    return Verdict(
        moves and attends if moves == attends else None,
        f"The embedding tells the senses of homographs apart in a share of {below}, layer {top} in {above}; the "
        f"cosine between the lecture's two vectors of 'bank' is {cosine} there. A masked 'he' or 'she' agrees with "
        f"its antecedent in a share of {agrees}, and the head that looks at antecedents most puts a weight of {on} on "
        f"it, and {off} on another word.",
    )


EXPERIMENT = Experiment(
    name="bank",
    title="A homograph in two contexts, layer by layer; what 'it' and 'she' attend to",
    claim="A word embedding is the same in both contexts, so it does not fully capture meaning; self-attention gives "
    "the word a vector that depends on the sentence: a better representation of 'bank' encodes information about "
    "'river'. 'It' focuses most on the word that it represents, in one of the heads.",
    source="Slides on self-attention, 'What does bank mean in this sentence?' and 'Trained multi-head attention "
    "examples'; lecture on the Transformer for LLMs and ViT, 'Preamble: homographs'.",
    method="A small masked language model (`reader`) learns from English sentences (Tatoeba), and a quarter as many "
    "generated ones such as 'my mother said that she was busy'. For six homographs, the French translation of a "
    "sentence tells the sense ('watch' is 'montre' or 'regarder'); at every layer, each vector of the word is "
    "compared with the mean vectors of both senses, itself left out. 'Bank' itself has only one sense in these "
    "sentences, so for the lecture's pair the cosine of its two vectors is shown.\n\nFor pronouns, generated "
    "sentences that were held out are read with the pronoun masked: is 'she' more likely than 'he', and how much "
    "does the model attend to 'mother' there? The head is chosen on one half of these sentences and measured on the "
    "other.\n\nThe model is small and trained for less than a minute; it has seen 'bank', 'animal' and 'cross' a few "
    "times. What it makes of the lecture's sentences is shown as it is.",
    vary="A better model gives a clearer picture: train one with `regard train masked` on more text (word "
    "tokenizer), and run `regard lab bank run=FOLDER`. `regard look` shows every head of any model for any sentence.",
    scales={
        "tiny": _Settings(2000, 8, 1, 2, 128, 2, ""),
        "default": _Settings(42_878, 64, 3, 300, 2048, 40, ""),
        "full": _Settings(42_878, 256, 6, 5000, 16_384, 200, ""),
    },
    measure=_measure,
    draw=_draw,
    judge=_judge,
    recipes=True,
    table=lambda rows: [
        row for name in (APART, COSINE, AGREES, ANTECEDENT) for row in average_seeds(_with(rows, name))
    ],
)
