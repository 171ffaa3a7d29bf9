"""Constituency parsing: read a sentence, write its tree (Vinyals et al. 2015; Vaswani et al. 2017, section 6.3).

A tree is a sequence of tokens (tasks/linear_trees.py), so parsing is learned like translation. Only well-formed trees
over the words of the sentence are written. The measure is labelled bracketing F1 (tasks/bracketing.py).
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from typing import cast

import numpy as np
import torch
from torch import nn

from regard.config import Count, NotNegative, Rate, Table
from regard.data.batches import Indices, Widths
from regard.data.cache import CacheKey
from regard.data.columns import FileReading
from regard.data.corpus import CorpusWriter, cached_corpus
from regard.data.read import Skipped
from regard.data.tokenizer import Tokenizer, TokenizerConfig
from regard.data.trees import Tree, parse_tree, read_trees, tree_files, trees_reading
from regard.decode.static import KeptEngine
from regard.models.model import StepModel
from regard.models.template import text_template
from regard.tasks.baselines import Baseline
from regard.tasks.bracketing import bracket_f1, bracketing_scores
from regard.tasks.defaults import Amount
from regard.tasks.files import FileTaskConfig
from regard.tasks.grammar import learn_grammar, right_branching
from regard.tasks.linear_trees import TreeSymbols, linearise, symbol_names
from regard.tasks.pair_task import PairTask, check_pairs, hold_out_pairs, nothing_left
from regard.tasks.pairs import Pairs
from regard.tasks.sample import Sample
from regard.tasks.substitution import Substitutes, substituted
from regard.tasks.text import chunks_of, learn_tokenizer, shown, skips, spread, text_key, with_skips
from regard.tasks.tree_search import TreeSearch
from regard.tasks.variants import Variants, describe_variants

VARIANTS = 8  # of each tree, by substitution and BPE-dropout; later epochs repeat them
BASELINE_TREES = 40  # validation sentences that the grammar parses
BASELINE_WORDS = 40  # of them, at most
GRAMMAR_TREES = 5000  # training trees that the grammar is learned from
LONGEST = 400  # tokens of a tree


@dataclass(frozen=True, kw_only=True)
class ParsingConfig(FileTaskConfig):
    """Files of trees in brackets, or folders of them."""

    recipe = "translator"
    models = ("seq2seq", "recurrent-seq2seq")
    after_reading = ("longest", "smoothing", "r_drop", "beam", "substitute")
    length_key = "longest"
    module_methods = ("forward", "begin", "step", "longest")
    verbs = ("parse", "embed")
    description = "a parser"
    passes = 60
    wanted = "a file of trees, or a folder of them"

    train: tuple[str, ...]
    """Files of trees to train on, or folders of them (.mrg, .ptb, .tree, ...)."""
    valid: tuple[str, ...] = ()
    """Trees to validate on; by default a part of the training data is held out."""
    longest: Count = LONGEST
    """Maximum number of tokens of a tree, with its words; longer trees are left out of training."""
    smoothing: Rate = 0.1
    """Share of the target probability spread over all tokens (Szegedy et al. 2016)."""
    r_drop: NotNegative = 0.0
    """Weight of the divergence between two passes with different dropout (R-Drop, Liang et al. 2021); 0: one pass."""
    substitute: Rate = 0.1
    """Share of the constituents of training trees that are replaced by others with the same label (Shi et al. 2021)."""
    beam: Count = 8
    """Beams of the search when a finished parser is measured; validations while it is trained are greedy."""

    def readings(self, files: Sequence[str] = ()) -> list[FileReading]:
        """Return how the first file of each purpose is read."""
        purposes = [files] if files else [names for names in (self.train, self.valid) if names]
        return [trees_reading(tree_files(Path(names[0]))[0]) for names in purposes]

    def suggest_length(self, device: str, positions: int | None) -> int | None:
        """Return the default, limited by the positions of the model."""
        return None if positions is None else min(LONGEST, positions)

    def suggest_tokenizer(self, pieces: bool) -> Table:
        """Return pieces of words with BPE-dropout, since half of the words of a treebank occur once."""
        return {"kind": "bpe", "dropout": 0.1}

    def suggest_vocabulary(self) -> int:
        """Return few pieces for few trees."""
        return min(super().suggest_vocabulary(), 4000)

    def suggest_model(self, size: str, amount: Amount) -> Table:
        """Return high dropout for few trees, as for translation of little text; other values were not compared."""
        dropout = 0.3 if amount.rows < 50_000 else 0.1
        side = {"layers": {"block": {"dropout": dropout}}}
        return {"encoder": side, "decoder": side, "embed": {"dropout": dropout}}

    def suggest_optimizer_kind(self, pretrained: bool) -> str:
        """Return Muon, as for translation."""
        return "adamw" if pretrained else "muon"

    def suggest_schedule_kind(self, optimizer: str, pretrained: bool) -> str:
        """Return the schedule that is usual with Muon."""
        return "linear"

    def suggest_training(self) -> Table:
        """Return averaging of the last weights, as for translation."""
        return {"average": 5}

    def prepare(self, tokenizer: TokenizerConfig, seed: int, say: Callable[[str], None]) -> "Parsing":
        """Read the trees, learn the tokenizer, tokenise."""
        files, key, skipped = TreeFiles(self.train), text_key_of_trees(self, self.train), Skipped()
        files.check_any("train on")
        say("learning the tokenizer")
        learned = learn_tokenizer(tokenizer, key, lambda: (f" {text}" for text, _ in files.read(Skipped())))
        if not TreeSymbols.of(learned):
            learned = learned.adding(symbol_names(files.trees(Skipped())))
        say("tokenising")
        first = self._open(files, key, learned, skipped, 0)
        check_pairs(first, "train on", self.train, skipped, "tree")
        if self.valid:
            held = self._open(TreeFiles(self.valid), text_key_of_trees(self, self.valid), learned, skipped)
            check_pairs(held, "validate on", self.valid, skipped, "tree")
            rows = np.arange(first.count)
        else:
            rows, held = hold_out_pairs(first, self.train, "tree")
        if not (tokenizer.dropout or self.substitute):
            return Parsing(self, learned, skipped, Variants(first.take(rows)), held)
        widest = first.widest(self.longest)

        def make(variant: int) -> Pairs:
            return self._open(files, key, learned, Skipped(), variant, seed, widest).take(rows)

        settings = {"dropout": learned.dropout, "substitute": self.substitute, "widest": widest}
        made_from = describe_variants(learned, seed, settings)
        return Parsing(self, learned, skipped, Variants(first.take(rows), VARIANTS, make, widest, made_from), held)

    def evaluation(self, tokenizer: Tokenizer, files: list[str]) -> "Parsing":
        """Open other trees to measure a parser on."""
        skipped = Skipped()
        valid = self._open(TreeFiles(tuple(files)), text_key_of_trees(self, files), tokenizer, skipped)
        check_pairs(valid, "measure", files, skipped, "tree")
        return Parsing(self, tokenizer, skipped, Variants(valid), valid)

    def _open(
        self,
        files: "TreeFiles",
        key: CacheKey,
        tokenizer: Tokenizer,
        skipped: Skipped,
        variant: int | None = None,
        seed: int = 0,
        widest: Widths = (),
    ) -> Pairs:
        return open_trees(files, key, tokenizer, skipped, self.longest, self.substitute, variant, seed, widest)


def text_key_of_trees(config: ParsingConfig, names: Sequence[str]) -> CacheKey:
    """Return the key of the trees of files: a folder stands for its tree files."""
    return text_key(config, trees=[str(path) for name in names for path in tree_files(Path(name))])


@dataclass(frozen=True)
class TreeFiles:
    """Files of trees, or folders of them."""

    names: tuple[str, ...]

    def trees(self, skipped: Skipped) -> Iterator[Tree]:
        """Read the trees of all files."""
        for name in self.names:
            for path in tree_files(Path(name)):
                yield from read_trees(path, skipped)

    def check_any(self, purpose: str) -> None:
        """Raise an error if there is no tree with words."""
        skipped = Skipped()
        if not any(True for _ in self.trees(skipped)):
            raise nothing_left("tree", purpose, self.names, skipped)

    def read(self, skipped: Skipped) -> Iterator[tuple[str, str]]:
        """Read the words of each tree, and the tree in brackets."""
        return ((" ".join(tree.words()), str(tree)) for tree in self.trees(skipped))


def open_trees(
    files: TreeFiles,
    key: CacheKey,
    tokenizer: Tokenizer,
    skipped: Skipped,
    longest: int,
    substitute: float,
    variant: int | None,
    seed: int,
    widest: Widths,
) -> Pairs:
    """Load the tokens of trees, or make them: row 2i is a sentence, row 2i + 1 its tree; each ends with the end token.

    A `variant` above 0 is made with BPE-dropout, and with constituents replaced by others; it has the same trees. One
    that becomes longer than `widest`, on either side, stays as it is. Trees of more than `longest` tokens are left out
    of training, but not of validation (`variant` None).
    """
    symbols, end = TreeSymbols.of(tokenizer), (tokenizer.end,)
    before, after = text_template(tokenizer, (), end)
    made_from = key.adding(tokenizer=tokenizer.fingerprint(), longest=None if variant is None else longest)
    if variant:
        made_from = made_from.adding(dropout=tokenizer.dropout, substitute=substitute, seed=seed, variant=variant)
        made_from = made_from.adding(widest=widest)
    found = Skipped()

    def rows(tree: Tree, pieces: list[np.ndarray]) -> list[np.ndarray]:
        ids = [piece.tolist() or [tokenizer.unk] for piece in pieces]
        source = [*before, *(id for word in ids for id in word), *after]
        return [np.array(side, np.int32) for side in (source, [*linearise(tree, ids, symbols), *end])]

    def write(writer: CorpusWriter) -> None:
        place, dropped = 0, []
        others = Substitutes(files.trees(Skipped())) if variant and substitute else None
        chance = Random(f"{seed} {variant}")
        for number, chunk in enumerate(chunks_of(files.read(found))):
            trees = [parse_tree(text) for _, text in chunk]
            plain = _pieces(trees, tokenizer.encode)
            changed = trees if others is None else [substituted(tree, others, substitute, chance) for tree in trees]
            varied = _pieces(changed, partial(tokenizer.encode_varied, seed=(seed, variant or 0, number)))
            for tree, pieces, other, others_pieces in zip(trees, plain, changed, varied, strict=True):
                place += 1
                pair = rows(tree, pieces)
                if variant is not None and len(pair[1]) > longest:
                    found.note(f"tree of more than {longest} tokens", f"{files.names[0]}, tree {place}")
                    dropped.append(place - 1)
                    continue
                if variant:
                    new = rows(other, others_pieces)
                    pair = new if all(len(row) <= width for row, width in zip(new, widest, strict=True)) else pair
                writer.add(pair)
        writer.note(skipped=skips(found), dropped=dropped)

    corpus = cached_corpus(made_from, write)
    if not variant:
        with_skips(corpus.facts, skipped)
    return Pairs(corpus, files, key, np.arange(corpus.rows // 2))


def _pieces(trees: Sequence[Tree], encode: Callable[[list[str]], list[np.ndarray]]) -> Iterator[list[np.ndarray]]:
    """Yield the tokens of the words of each tree; all words are encoded together, which is faster."""
    words = [tree.words() for tree in trees]
    found = iter(encode([f" {word}" for row in words for word in row]))
    return ([next(found) for _ in row] for row in words)


class Parsing(PairTask):
    """L = -sum_t log p(y_t | y_<t, x) of the tokens y of the tree of the sentence x; labelled bracketing F1."""

    name = "parsing"
    metric = "bracket_f1"
    row_name = "tree"
    at_once = 64

    def __init__(
        self, config: ParsingConfig, tokenizer: Tokenizer, skipped: Skipped, train: Variants, valid: Pairs
    ) -> None:
        super().__init__(config, tokenizer, skipped, train, valid)
        self._engine = KeptEngine()
        self._search = TreeSearch.of(tokenizer)
        self.valid_trees = [parse_tree(text) for _, text in self.valid_texts]

    def facts(self) -> dict[str, int]:
        """Count trees and tokens."""
        amount = self.amount()
        return {"trees": amount.rows, "tree tokens": amount.tokens, "validation trees": self.valid.count}

    @torch.no_grad()
    def measure(self, model: nn.Module, rows: int | None = None) -> dict[str, float]:
        """Measure loss and perplexity on all trees, and the scores of greedily written trees of some."""
        return {**self.measure_loss(model), **self._scores(model, spread(np.arange(self.valid.count), rows), 1)}

    @torch.no_grad()
    def evaluate(self, model: nn.Module) -> dict[str, float]:
        """Measure loss and perplexity, and the scores of trees that a search with beams finds."""
        return {**self.measure_loss(model), **self._scores(model, np.arange(self.valid.count), self.config.beam)}

    def _scores(self, model: nn.Module, rows: Indices, beam: int) -> dict[str, float]:
        return bracketing_scores(self.parsed(model, rows, beam), [self.valid_trees[row] for row in rows])

    def parsed(self, model: nn.Module, rows: Indices, beam: int) -> list[Tree]:
        """Parse validation sentences."""
        writer = cast(StepModel, model)  # or a module of the user with the same methods
        order = rows[np.argsort(-self.valid.lengths[rows, 1], kind="stable")]
        made: dict[int, Tree] = {}
        size = self.rows_at_once(max(self.at_once // beam, 16))
        for begin in range(0, len(order), size):
            part = order[begin : begin + size].tolist()
            words = [self.valid_trees[row].words() for row in part]
            with self._engine.of(writer) as engine:
                found = self._search(engine, writer, words, self.device, beam)
            made |= {row: best.tree for row, (best, *_) in zip(part, found, strict=True)}
        return [made[row] for row in rows.tolist()]

    def measure_baselines(self) -> Iterator[Baseline]:
        """Measure trees that branch to the right, and a probabilistic grammar of the training trees."""
        yield Baseline(
            "right-branching", bracket_f1([right_branching(tree) for tree in self.valid_trees], self.valid_trees)
        )
        short = np.flatnonzero([len(tree.words()) <= BASELINE_WORDS for tree in self.valid_trees])
        wanted = [self.valid_trees[row] for row in spread(short, BASELINE_TREES)]
        if not wanted:
            return
        rows = set(spread(self.train[0].pairs, GRAMMAR_TREES).tolist())
        left_out = set(self.train[0].corpus.facts["dropped"])
        trees = TreeFiles(self.config.train).trees(Skipped())
        kept = (tree for number, tree in enumerate(trees) if number not in left_out)
        grammar = learn_grammar(tree for number, tree in enumerate(kept) if number in rows)
        made = grammar.parse([tree.words() for tree in wanted], self.device)
        how = f"of {len(rows):,} trees; {len(wanted)} sentences of up to {BASELINE_WORDS} words"
        yield Baseline("PCFG", bracket_f1(made, wanted), how)

    def samples(self, model: nn.Module) -> list[Sample]:
        """Parse three sentences."""
        rows = shown(self.valid.count)
        made = self.parsed(model, rows, 1)
        return [
            Sample(self.valid_texts[row][0], str(self.valid_trees[row]), str(tree))
            for row, tree in zip(rows.tolist(), made, strict=True)
        ]
