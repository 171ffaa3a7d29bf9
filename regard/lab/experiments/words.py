"""Words: from one-hot vectors to word embeddings and contextual vectors.

Claim: one-hot vectors have no meaning: all words are equally far apart. Vectors from the company that a word keeps
have: counts x_ij of sentences with both words i and j, reduced by PCA; Word2Vec (Mikolov et al. 2013); and the vectors
of a masked language model (Devlin et al. 2018), averaged over sentences. Similar words are close: the cosine agrees
with a judgement of similarity (Spearman's rank correlation), and differences carry relations: man - woman = boy -
girl.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, permutations
from pathlib import Path
from random import Random

import numpy as np
import torch
import torch.nn.functional as F

from regard import draw
from regard.data.lines import read_lines
from regard.errors import InputError
from regard.lab.experiment import Experiment, Lab, Picture, Row, Verdict
from regard.lab.shipped import shipped
from regard.lab.spread import over_seeds
from regard.models.word2vec import Word2Vec
from regard.training.run import Run

ONE_HOT, COUNTS, SKIP_GRAM, CONTEXT = "one-hot", "co-occurrence and PCA", "Word2Vec", "contextual"
RANK, NEAR, ANALOGIES = "Spearman correlation", "neighbour of the same group", "analogies solved"

# Groups of words, a field on each line: two words of a group are similar (2), of a field related (1), else neither (0).
FIELDS = """
mother father sister son daughter wife uncle parents | man woman boy girl child | doctor teacher student boss
bread meat rice apple cake fish | coffee tea water milk beer wine | dinner lunch breakfast
morning evening night afternoon | today tomorrow yesterday tonight | day week month year
room door window table bed kitchen | school office hospital station park restaurant library
car bus train bicycle boat plane
french english japanese german chinese | japan america paris tokyo boston france
happy sad angry tired afraid hungry busy sick | want need like love hate
big small large long short | old new young | good bad great nice beautiful | red blue black white green
think know believe understand remember forget | see look watch hear listen | say tell speak talk
two three four five six ten
"""
RELATIONS = """
he she | his her | man woman | boy girl | father mother | son daughter
is was | are were | go went | do did | have had | see saw | know knew | think thought | say said | take took | come came
day days | year years | book books | friend friends | dog dogs | cat cats | child children | eye eyes | hand hands
"""


def _parts(text: str) -> list[list[list[str]]]:
    """Return the lines of a text, the parts of each line, and the words of each part."""
    return [[part.split() for part in line.split("|")] for line in text.strip().splitlines()]


@dataclass(frozen=True)
class _Settings:
    """The text, the vectors, and how long models are trained."""

    text: str  # a file; "": the English sentences that the package ships
    similarity: str  # a file of word, word and score, separated by tabs; "": the groups of words in this file
    share: float  # of the sentences, chosen by the seed
    vocabulary: int
    dim: int
    skip_gram_steps: int
    masked_steps: int
    depth: int  # layers of the masked language model
    tokens: int
    occurrences: int  # of a word, over which contextual vectors are averaged


def _measure(lab: Lab, settings: _Settings) -> Iterator[Row]:
    """Make vectors in four ways from the same sentences, and compare the same words with each."""
    sentences = _sentences(settings, Random(lab.seed))
    counts = Counter(word for sentence in sentences for word in sentence)
    vocabulary = {word: place for place, (word, _) in enumerate(counts.most_common(settings.vocabulary))}
    pairs = _similar_pairs(settings, vocabulary)
    relations = [[pair for pair in line if all(word in vocabulary for word in pair)] for line in _parts(RELATIONS)]
    groups = [[word for word in group if word in vocabulary] for line in _parts(FIELDS) for group in line]
    words = sorted({word for pair in pairs for word in pair[:2]} | {w for r in relations for pair in r for w in pair})
    file = lab.file("sentences.txt", "".join(" ".join(sentence) + "\n" for sentence in sentences))
    lab.progress("training Word2Vec", 0.1)
    skip_gram = _table_vectors(_train_skip_gram(lab, settings, file), words)
    lab.progress("training a masked language model", 0.4)
    masked = _train_masked(lab, settings, file)
    vectors = {
        ONE_HOT: np.eye(len(words)),
        COUNTS: _count_vectors(sentences, vocabulary, settings.dim)[[vocabulary[word] for word in words]],
        SKIP_GRAM: skip_gram,
        CONTEXT: _contextual_vectors(masked, sentences, words, settings.occurrences, lab.device),
    }
    place = {word: number for number, word in enumerate(words)}
    first, second = ([place[word] for word in side] for side in ([a for a, _, _ in pairs], [b for _, b, _ in pairs]))
    for name, table in vectors.items():
        cosine = _cosines(table)
        close = np.where(np.eye(len(words), dtype=bool), -np.inf, cosine)
        yield {
            "vectors": name,
            "dimensions": table.shape[1] if name != ONE_HOT else len(vocabulary),
            RANK: _spearman(cosine[first, second], np.array([score for _, _, score in pairs])),
            NEAR: _same_group(close, place, groups),
            ANALOGIES: _solved(table, place, relations),
            **{f"near {word}": words[int(close[place[word]].argmax())] for word in ("father", "coffee", "tomorrow")
               if word in place and name != ONE_HOT},
        }  # fmt: skip


def _sentences(settings: _Settings, random: Random) -> list[list[str]]:
    """Return sentences as words in lower case; of a share of all lines, chosen at random."""
    path = Path(settings.text) if settings.text else shipped("tatoeba/train.en")
    lines = (re.findall(r"[a-z]+(?:'[a-z]+)?", line.lower()) for line in read_lines(path))
    return [words for words in lines if len(words) > 1 and random.random() < settings.share]


def _similar_pairs(settings: _Settings, vocabulary: Mapping[str, int]) -> list[tuple[str, str, float]]:
    """Return pairs of words that occur in the text, with their similarity."""
    if settings.similarity:
        rows = [line.split("\t") for line in read_lines(Path(settings.similarity))]
        if any(len(row) != 3 for row in rows):
            raise InputError(f"{settings.similarity}: each line must be word, word and score, separated by tabs")
        found = [(one.lower(), other.lower(), float(score)) for one, other, score in rows]
    else:
        of = {w: (field, part) for field, line in enumerate(_parts(FIELDS)) for part, ws in enumerate(line) for w in ws}
        found = [
            (one, other, 2.0 if of[one] == of[other] else 1.0 if of[one][0] == of[other][0] else 0.0)
            for one, other in combinations(sorted(of), 2)
        ]
    known = [pair for pair in found if pair[0] in vocabulary and pair[1] in vocabulary]
    if len(known) < 10:
        raise InputError(f"only {len(known)} pairs of words occur in the text; give more text or other pairs")
    return known


# --- vectors ---------------------------------------------------------------------------------------------------------


def _count_vectors(sentences: Sequence[Sequence[str]], vocabulary: Mapping[str, int], dim: int) -> np.ndarray:
    """Count for words i and j the sentences with both, as the lecture does; reduce the counts by PCA."""
    counts = np.zeros((len(vocabulary), len(vocabulary)), np.float32)
    for sentence in sentences:
        places = [vocabulary[word] for word in set(sentence) if word in vocabulary]
        counts[np.ix_(places, places)] += 1
    np.fill_diagonal(counts, 0)
    centred = torch.from_numpy(counts - counts.mean(0))
    u, s, _ = torch.svd_lowrank(centred, q=min(dim, len(vocabulary)))
    return (u * s).numpy()


def _train_skip_gram(lab: Lab, settings: _Settings, file: Path) -> Run:
    return lab.train(
        "word2vec",
        "vectors",
        [file],
        recipe="word2vec",
        steps=settings.skip_gram_steps,
        overrides=[
            *_common(settings),
            f"model.dim={settings.dim}",
            "task.subsample=1",
            "train.optimizer.rate=0.01",
        ],
    )


def _train_masked(lab: Lab, settings: _Settings, file: Path) -> Run:
    sizes = [f"model.dim={settings.dim}", f"model.depth={settings.depth}"]
    sizes += [f"model.layers.block.feedforward.hidden={2 * settings.dim}", "model.layers.block.mixer.heads.heads=4"]
    training = ["task.rate=0.3", "train.optimizer.kind=muon", "train.schedule.kind=linear"]  # learns faster
    overrides = [*_common(settings), *sizes, *training]
    return lab.train("masked", "masked", [file], recipe="reader", steps=settings.masked_steps, overrides=overrides)


def _common(settings: _Settings) -> list[str]:
    return [
        "task.documents=line",
        "task.window=64",
        "tokenizer.kind=word",
        f"tokenizer.vocabulary={settings.vocabulary}",
        f"train.tokens={settings.tokens}",
    ]


def _table_vectors(run: Run, words: Sequence[str]) -> np.ndarray:
    """Return the vectors u of Word2Vec."""
    model, tokenizer = run.model(), run.tokenizer()
    assert isinstance(model, Word2Vec)
    assert tokenizer is not None
    ids = torch.tensor([int(tokenizer.encode(word)[0]) for word in words])
    return F.embedding(ids, model.embed.tokens.table.weight).detach().numpy()


@torch.no_grad()
def _contextual_vectors(
    run: Run, sentences: Sequence[Sequence[str]], words: Sequence[str], most: int, device: torch.device
) -> np.ndarray:
    """Return the mean of a word's vectors below the head, over its first sentences."""
    model, tokenizer = run.model(device), run.tokenizer()
    assert tokenizer is not None
    wanted, counts = set(words), Counter[str]()
    sums: dict[str, torch.Tensor] = {}
    for sentence in sentences:
        found = {word: place for place, word in enumerate(sentence) if word in wanted and counts[word] < most}
        if not found:
            continue
        ids = [tokenizer.end, *tokenizer.encode(" ".join(sentence)), tokenizer.end]
        if len(ids) != len(sentence) + 2:  # a word that the tokenizer splits
            continue
        vectors = model.token_vectors(tokens=torch.tensor([ids], device=device))[0, 1:-1].cpu()
        for word, place in found.items():
            sums[word] = vectors[place] + sums.get(word, torch.zeros(()))
            counts[word] += 1
    return np.stack([(sums[word] / counts[word]).numpy() for word in words])


# --- measures --------------------------------------------------------------------------------------------------------


def _cosines(vectors: np.ndarray) -> np.ndarray:
    """Return the cosines between all pairs of vectors, after their mean is removed."""
    centred = vectors if np.array_equal(vectors, np.eye(len(vectors))) else vectors - vectors.mean(0)
    unit = centred / np.maximum(np.linalg.norm(centred, axis=1, keepdims=True), 1e-12)
    cosines: np.ndarray = unit @ unit.T
    return cosines


def _spearman(found: np.ndarray, wanted: np.ndarray) -> float:
    """Return the correlation of ranks, where equal values share their mean rank; 0 if all values are equal."""
    ranks = [_ranks(values) for values in (found, wanted)]
    if min(rank.std() for rank in ranks) == 0:
        return 0.0
    return float(np.corrcoef(ranks[0], ranks[1])[0, 1])


def _ranks(values: np.ndarray) -> np.ndarray:
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    ranks: np.ndarray = (ends - (counts - 1) / 2)[places]
    return ranks


def _same_group(close: np.ndarray, place: Mapping[str, int], groups: Sequence[Sequence[str]]) -> float:
    """Return how often the nearest word is of the same group; several that are equally near count in parts."""
    shares = []
    for group in groups:
        members = [place[word] for word in group if word in place]
        for member in members:
            nearest = np.flatnonzero(close[member] == close[member].max())
            shares.append(np.isin(nearest, members).mean())
    return float(np.mean(shares))


def _solved(vectors: np.ndarray, place: Mapping[str, int], relations: Sequence[Sequence[Sequence[str]]]) -> float:
    """Return the share of analogies a : b = c : d whose d is the nearest word to b - a + c."""
    unit = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    right = []
    for relation in relations:
        for (a, b), (c, d) in permutations(relation, 2):
            scores = unit @ (unit[place[b]] - unit[place[a]] + unit[place[c]])
            scores[[place[a], place[b], place[c]]] = -np.inf
            best = np.flatnonzero(scores == scores.max())
            right.append(float(place[d] in best) / len(best))
    return float(np.mean(right)) if right else 0.0


# --- results ---------------------------------------------------------------------------------------------------------


def _draw(rows: Sequence[Row]) -> Iterable[Picture]:
    """Draw the three measures for each kind of vectors."""
    measured = [{**row, "measure": name, "value": row[name]} for row in rows for name in (RANK, NEAR, ANALOGIES)]
    first = min(row["seed"] for row in rows)
    near = [
        f"{row['vectors']}: " + ", ".join(f"{key.removeprefix('near ')} → {row[key]}" for key in row if "near " in key)
        for row in rows
        if row["seed"] == first and row["vectors"] != ONE_HOT
    ]
    yield Picture(
        "measures",
        "Spearman's rank correlation between cosines and similarity, the share of words whose nearest word is of the "
        f"same group, and the share of analogies solved. Nearest words in the first seed: {'; '.join(near)}.",
        draw.bars(measured, x="measure", y="value", by="vectors", title="What vectors know about words"),
    )


def _judge(rows: Sequence[Row]) -> Verdict:
    """Say yes if all learned vectors agree with similarity better than one-hot vectors, in every seed."""
    rank = {name: over_seeds(rows, RANK, {"vectors": name}) for name in (ONE_HOT, COUNTS, SKIP_GRAM, CONTEXT)}
    near = {name: over_seeds(rows, NEAR, {"vectors": name}) for name in rank}
    learned = (COUNTS, SKIP_GRAM, CONTEXT)
    better = [rank[name].low > 0.05 and near[name].low > near[ONE_HOT].high for name in learned]
    solved = {name: over_seeds(rows, ANALOGIES, {"vectors": name}) for name in learned}
    return Verdict(
        all(better) or (None if any(better) else False),
        f"The cosine of one-hot vectors says nothing about similarity (Spearman {rank[ONE_HOT]}). With co-occurrence "
        f"and PCA the correlation is {rank[COUNTS]}, with Word2Vec {rank[SKIP_GRAM]}, with contextual vectors "
        f"{rank[CONTEXT]}; the nearest word is of the same group for a share of {near[COUNTS]}, {near[SKIP_GRAM]} and "
        f"{near[CONTEXT]} (one-hot: {near[ONE_HOT]}). Of the analogies they solve {solved[COUNTS]}, "
        f"{solved[SKIP_GRAM]} and {solved[CONTEXT]}.",
    )


EXPERIMENT = Experiment(
    name="words",
    title="Word vectors: one-hot, co-occurrence with PCA, Word2Vec, contextual",
    claim="One-hot vectors are sparse and have no semantic meaning. Word embeddings are dense, made from a large "
    "corpus by counting which words appear in the same sentences and reducing the counts by PCA, or better by "
    "Word2Vec: similar words tend to be close to each other in the embedding space.",
    source="Lecture on the Transformer for LLMs and ViT, 'Preamble: word embeddings'; Mikolov et al. 2013, Distributed "
    "Representations of Words and Phrases; Devlin et al. 2018.",
    method="Four kinds of vectors are made from the same English sentences (Tatoeba; a random share for each seed): "
    "one-hot; the counts of sentences in which two words appear together, reduced by PCA; Word2Vec (skip-gram with "
    "negative sampling); and the vectors of a small masked language model, averaged over sentences. The cosine of two "
    "words is compared with their similarity: by default 2 for words of one group (bread, meat), 1 for groups of "
    "one field (bread, coffee), else 0, as listed in the experiment's file. The nearest word and the analogies "
    "(man is to woman as boy is to girl) are looked for among the same words.\n\n"
    "A quarter of a million words are a small corpus: published correlations are from a thousand times as many.",
    vary="Human judgements and other text are files: `regard lab words similarity=EN-WS-353-ALL.txt "
    "text=wikitext2/train.txt vocabulary=20000`, with the text of `regard data wikitext2` and a list such as "
    "WordSim-353 (word, word, score). `dim` and the steps are settings, too.",
    scales={
        "tiny": _Settings("", "", 0.05, 400, 8, 3, 2, 1, 256, 1),
        "default": _Settings("", "", 0.8, 1500, 64, 300, 250, 2, 2048, 20),
        "full": _Settings("", "", 0.8, 1500, 128, 4000, 4000, 4, 8192, 100),
    },
    measure=_measure,
    draw=_draw,
    judge=_judge,
)
