"""A probabilistic context-free grammar, learned by counting: the baseline of parsing.

Constituents know the label above them, and long rules are split into steps that know the last part only (Johnson
1998; Klein, Manning 2003: vertical order 2, horizontal order 1). Unknown words are scored by their shape and ending.
The best tree is found with the CKY algorithm, over all spans of a length at once.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import log
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from regard.data.trees import ROOT, Tree
from regard.errors import InputError

RARE = 5  # occurrences up to which a word says something about unknown words
TRUST = 2.0  # occurrences that the shape of a word counts for
MOST_NUMBERS = {"cpu": 400_000, "cuda": 60_000_000}  # of a batch: rules times splits of spans
Chains = dict[tuple[int, int], tuple[float, tuple[int, ...]]]  # by both ends: the score, and the symbols in between


class Symbol(NamedTuple):
    """A constituent below `parent`; or the rest of one, after the part `last`; or a tag, which has no parent."""

    label: str
    parent: str = ""
    last: str | None = None


def right_branching(tree: Tree) -> Tree:
    """Return (S w1 (NP w2 (NP w3 ...))) over the words of a tree, with its tags; a final punctuation is apart."""
    *tags, last = tree.tags()
    tail: tuple[Tree, ...] = (last,)
    if tags and re.fullmatch(r"\W+", last.label) and len(tags) > 1:
        *tags, before = tags
        inner = Tree("NP", (before,))
    elif tags:
        inner, tail = Tree("NP", (last,)), ()
    else:
        return Tree("S", (last,))
    for tag in reversed(tags[1:]):
        inner = Tree("NP", (tag, inner))
    return Tree("S", (*tags[:1], inner, *tail))


# --- words -----------------------------------------------------------------------------------------------------------


class Lexicon:
    """log p(word | tag) - log p(word), from p(tag | word), which falls back on the shape of the word:

    p(t | w) = (c(t, w) + k p(t | endings of w)) / (c(w) + k), and likewise for shorter endings.
    """

    def __init__(self, pairs: Iterable[tuple[str, str]]) -> None:
        together = Counter(pairs)
        self.tags: Counter[str] = Counter()
        self.words: dict[str, Counter[str]] = {}
        for (tag, word), count in together.items():
            self.tags[tag] += count
            self.words.setdefault(word, Counter())[tag] += count
        self.shapes: dict[str, Counter[str]] = {}
        for word, tags in self.words.items():
            if tags.total() <= RARE:
                for shape in word_shapes(word):
                    self.shapes.setdefault(shape, Counter()).update(tags)
        self._scores: dict[str, dict[str, float]] = {}

    def scores(self, word: str) -> dict[str, float]:
        """Return the score of each tag that the word may have."""
        if word not in self._scores:
            total = self.tags.total()
            chances = {tag: count / total for tag, count in self.tags.items()}
            levels = [self.shapes.get(shape, Counter()) for shape in reversed(word_shapes(word))]
            known = self.words.get(word, Counter())
            for counts in (*levels, known):
                seen = counts.total()
                if seen:
                    chances = {tag: (counts[tag] + TRUST * p) / (seen + TRUST) for tag, p in chances.items()}
            closed = known.total() > RARE  # a frequent word has the tags that it was seen with
            kept = {tag: p for tag, p in chances.items() if known[tag] or not closed}
            self._scores[word] = {tag: log(p) - log(self.tags[tag] / total) for tag, p in kept.items()}
        return self._scores[word]


def word_shapes(word: str) -> list[str]:
    """Return the shape of a word with its last three letters, its last two, its last one, and alone."""
    shape = "".join(
        name
        for name, pattern in (
            ("A", r"[A-Z]+\W*$"),
            ("Aa", r"[A-Z].*[a-z]"),
            ("0", r".*\d"),
            ("-", r".*-"),
            ("a", r"[a-z]"),
        )
        if re.match(pattern, word)
    )
    return [*(f"{shape} {word[-count:].lower()}" for count in (3, 2, 1)), shape]


# --- the grammar -----------------------------------------------------------------------------------------------------


@dataclass
class Counts:
    """How often each rule was used."""

    binary: Counter[tuple[Symbol, Symbol, Symbol]]
    unary: Counter[tuple[Symbol, Symbol]]
    roots: Counter[Symbol]
    words: list[tuple[str, str]]

    def add(self, node: Tree, parent: str) -> Symbol:
        """Count the rules of a tree; return the symbol of its root."""
        if node.is_tag:
            self.words.append((node.label, str(node.parts[0])))
            return Symbol(node.label)
        symbol = Symbol(node.label, parent)
        parts = [self.add(part, node.label) for part in node.trees]
        if len(parts) == 1:
            if parts[0] != symbol:
                self.unary[symbol, parts[0]] += 1
            return symbol
        rest = symbol
        for part in parts[:-2]:
            follows = Symbol(node.label, parent, part.label)
            self.binary[rest, part, follows] += 1
            rest = follows
        self.binary[rest, parts[-2], parts[-1]] += 1
        return symbol


def learn_grammar(trees: Iterable[Tree]) -> "Grammar":
    """Learn a grammar from trees."""
    counts = Counts(Counter(), Counter(), Counter(), [])
    for tree in trees:
        counts.roots[counts.add(tree, ROOT)] += 1
    if not counts.roots:
        raise InputError("there is no tree to learn a grammar from; give at least one")
    return Grammar(counts)


class Grammar:
    """Rules as arrays, sorted by their parent. `parse` finds the likeliest trees."""

    def __init__(self, counts: Counts) -> None:
        symbols = {symbol for rule in (*counts.binary, *counts.unary) for symbol in rule} | counts.roots.keys()
        symbols |= {Symbol(tag) for tag, _ in counts.words}
        self.symbols = sorted(symbols, key=lambda one: (one.label, one.parent, one.last is not None, one.last or ""))
        self.index = {symbol: place for place, symbol in enumerate(self.symbols)}
        self.lexicon = Lexicon(counts.words)
        total: Counter[Symbol] = Counter()
        for rule, count in (*counts.binary.items(), *counts.unary.items()):
            total[rule[0]] += count
        binary = sorted(
            (*(self.index[one] for one in rule), log(count / total[rule[0]])) for rule, count in counts.binary.items()
        )
        unary = {
            (self.index[up], self.index[down]): log(count / total[up]) for (up, down), count in counts.unary.items()
        }
        roots = counts.roots.total()
        self.roots = {self.index[symbol]: log(count / roots) for symbol, count in counts.roots.items()}
        chains = unary_chains(unary)
        ups, downs = zip(*chains, strict=True) if chains else ((), ())
        self.unary = (*_columns([ups, downs]), torch.tensor([score for score, _ in chains.values()]))
        self.below: dict[int, list[tuple[int, float, tuple[int, ...]]]] = {}  # the chains from each symbol
        for (up, down), (score, between) in chains.items():
            self.below.setdefault(up, []).append((down, score, between))
        self.binary = (
            *_columns(list(zip(*binary, strict=True))[:3] or [(), (), ()]),
            torch.tensor([rule[3] for rule in binary]),
        )
        self.rules = [column.numpy() for column in self.binary]

    def parse(self, sentences: Sequence[Sequence[str]], device: str | torch.device = "cpu") -> list[Tree]:
        """Return the likeliest tree of each sentence; without any, one that branches to the right."""
        found: dict[int, Tree] = {}
        order = sorted(range(len(sentences)), key=lambda row: len(sentences[row]))
        for length, group in groupby(order, key=lambda row: len(sentences[row])):
            rows = list(group)
            numbers = len(self.binary[0]) * length * length // 4  # of the width with the most splits
            most = MOST_NUMBERS.get(torch.device(device).type, MOST_NUMBERS["cuda"])
            size = max(most // max(numbers, 1), 1)
            for begin in range(0, len(rows), size):
                part = rows[begin : begin + size]
                trees = self._parse([sentences[row] for row in part], torch.device(device))
                found |= dict(zip(part, trees, strict=True))
        return [found[row] for row in range(len(sentences))]

    def _parse(self, sentences: Sequence[Sequence[str]], device: torch.device) -> Iterator[Tree]:
        """Parse sentences of one length: chart[s, :, i, j] is the best score of the symbol s over the words i to j.

        Symbols come first, so that the numbers of a rule are neighbours, which makes this three times as fast.
        """
        length = len(sentences[0])
        parents, lefts, rights, scores = (column.to(device) for column in self.binary)
        base = torch.full((len(self.symbols), len(sentences), length + 1, length + 1), -torch.inf)
        for row, words in enumerate(sentences):
            for place, word in enumerate(words):
                for tag, score in self.lexicon.scores(word).items():
                    base[self.index[Symbol(tag)], row, place, place + 1] = score
        base = base.to(device)
        chart = self._with_chains(base)
        for width in range(2, length + 1):
            begin = torch.arange(length - width + 1, device=device)
            split = begin[:, None] + torch.arange(1, width, device=device)
            left, right = chart[:, :, begin[:, None], split], chart[:, :, split, begin[:, None] + width]
            best = (left[lefts] + right[rights]).amax(-1) + scores[:, None, None]  # (rules, B, spans)
            cell = torch.full((len(self.symbols), *best.shape[1:]), -torch.inf, device=device)
            cell.scatter_reduce_(0, parents[:, None, None].expand_as(best), best, "amax")
            base[:, :, begin, begin + width] = cell
            chart[:, :, begin, begin + width] = self._with_chains(cell)
        base, chart = base.cpu(), chart.cpu()
        for row, words in enumerate(sentences):
            yield Derivation(self, words, base[:, row].numpy(), chart[:, row].numpy()).tree()

    def _with_chains(self, cells: Float[Tensor, "S *cells"]) -> Float[Tensor, "S *cells"]:
        """Return cells in which each symbol may also come from another by rules with one part."""
        ups, downs, scores = (column.to(cells.device) for column in self.unary)
        if not len(ups):
            return cells.clone()
        through = cells[downs] + scores.view(-1, *[1] * (cells.ndim - 1))
        up = ups.view(-1, *[1] * (cells.ndim - 1)).expand_as(through)
        return cells.scatter_reduce(0, up, through, "amax")


def unary_chains(rules: dict[tuple[int, int], float]) -> Chains:
    """Return the best chain of rules with one part between any two symbols: its score, and the symbols in between."""
    best: Chains = {pair: (score, ()) for pair, score in rules.items()}
    below: dict[int, list[tuple[int, float]]] = {}
    for (up, down), score in rules.items():
        below.setdefault(up, []).append((down, score))
    news = dict(best)
    while news:
        found: Chains = {}
        for (up, middle), (score, between) in news.items():
            for down, more in below.get(middle, ()):
                longer = (score + more, (*between, middle))
                known = best.get((up, down))
                if down != up and (known is None or longer[0] > known[0]):
                    best[up, down] = found[up, down] = longer
        news = found
    return dict(sorted(best.items()))


def _columns(columns: Sequence[Sequence[int]]) -> list[Tensor]:
    return [torch.tensor(column, dtype=torch.long) for column in columns]


class Derivation:
    """Reads the best tree from a chart: the rule and the split of each constituent are found again."""

    def __init__(self, grammar: Grammar, words: Sequence[str], base: np.ndarray, chart: np.ndarray) -> None:
        self.grammar, self.words, self.base, self.chart = grammar, words, base, chart

    def tree(self) -> Tree:
        """Return the tree of all words."""
        top = self.chart[:, 0, len(self.words)]
        root, score = max(
            ((one, float(top[one]) + log_p) for one, log_p in self.grammar.roots.items()), key=lambda one: one[1]
        )
        if score == -torch.inf:
            return self.without_rules()
        (tree,) = self.read(root, 0, len(self.words))
        return Tree(ROOT, (tree,)) if tree.is_tag else tree

    def without_rules(self) -> Tree:
        """Return a tree that branches to the right, with the likeliest tags."""
        scores = [self.grammar.lexicon.scores(word) for word in self.words]
        tags = [
            Tree(max(found, key=found.__getitem__), (word,)) for found, word in zip(scores, self.words, strict=True)
        ]
        return right_branching(Tree("S", tuple(tags)))

    def read(self, symbol: int, begin: int, end: int) -> list[Tree]:
        """Return the constituent of a symbol; of the rest of one, its parts."""
        base, chart = self.base[:, begin, end], self.chart[:, begin, end]
        if chart[symbol] > base[symbol]:
            down, _, between = max(self.grammar.below[symbol], key=lambda one: float(base[one[0]]) + one[1])
            parts = self.without_chain(down, begin, end)
            for one in reversed((symbol, *between)):
                parts = [Tree(self.grammar.symbols[one].label, tuple(parts))]
            return parts
        return self.without_chain(symbol, begin, end)

    def without_chain(self, symbol: int, begin: int, end: int) -> list[Tree]:
        """Return the constituent of a symbol that is a tag, or has two parts."""
        found = self.grammar.symbols[symbol]
        if end == begin + 1:
            return [Tree(found.label, (self.words[begin],))]
        parents, lefts, rights, scores = self.grammar.rules
        first, last = np.searchsorted(parents, [symbol, symbol + 1]).tolist()
        left, right = self.chart[:, begin, begin + 1 : end], self.chart[:, begin + 1 : end, end]
        sums = left[lefts[first:last]] + right[rights[first:last]] + scores[first:last, None]
        rule, split = divmod(int(sums.argmax()), end - begin - 1)
        middle = begin + 1 + split
        parts = self.read(int(lefts[first + rule]), begin, middle) + self.read(int(rights[first + rule]), middle, end)
        return parts if found.last is not None else [Tree(found.label, tuple(parts))]
