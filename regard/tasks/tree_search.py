"""Search for the trees of sentences: beams over tokens, of which only well-formed trees are written."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from regard.data.tokenizer import Tokenizer
from regard.data.trees import ROOT, Tree
from regard.decode.beam import Hypothesis, beam_search
from regard.decode.engine import Engine, Given
from regard.decode.rows import fit_limits
from regard.errors import InputError
from regard.models.model import StepModel
from regard.models.template import text_template
from regard.tasks.linear_trees import Pieces, TreeSymbols, WellFormedTrees, delinearise, tree_limit, word_pieces

LENGTH_PENALTY = 0.3  # as Vaswani et al. 2017


@dataclass(frozen=True)
class ParsedTree:
    """A tree, its tokens, and its log-probability divided by the length penalty."""

    tree: Tree
    ids: list[int]
    score: float


@dataclass(frozen=True)
class TreeSearch:
    """Parses sentences with a tokenizer that has the symbols of trees."""

    tokenizer: Tokenizer
    symbols: TreeSymbols

    @classmethod
    def of(cls, tokenizer: Tokenizer, name: str = "this model") -> "TreeSearch":
        """Return the search for a model's tokenizer; raise an error if it was not trained to parse."""
        symbols = TreeSymbols.of(tokenizer)
        if not symbols:
            raise InputError(f"{name}: its vocabulary has no brackets; use a model of `regard train parsing`")
        return cls(tokenizer, symbols)

    def source(self, pieces: Pieces) -> list[int]:
        """Return what the encoder reads."""
        before, after = text_template(self.tokenizer, (), (self.tokenizer.end,))
        return [*before, *(id for word in pieces for id in word), *after]

    def __call__(
        self,
        engine: Engine,
        model: StepModel,
        sentences: Sequence[Sequence[str]],
        device: torch.device,
        beam: int = 1,
        best: int = 1,
        length_penalty: float = LENGTH_PENALTY,
    ) -> list[list[ParsedTree]]:
        """Return the best trees of each sentence, the likeliest first. Call it inside `in_use`."""
        pieces = [word_pieces(self.tokenizer, words) for words in sentences]
        sources = [self.source(row) for row in pieces]
        lengths = torch.tensor([len(source) for source in sources])
        source = torch.full((len(sources), int(lengths.max())), self.tokenizer.pad)
        for row, ids in enumerate(sources):
            source[row, : len(ids)] = torch.tensor(ids)
        start = torch.full((len(sources), 1), self.tokenizer.start, device=device)
        given = Given(start, None, source.to(device), lengths.to(device))
        limits = fit_limits(model, given, [tree_limit(row) for row in pieces])
        found = beam_search(
            engine,
            given,
            end=self.tokenizer.end,
            limits=limits,
            beam=beam,
            best=best,
            length_penalty=length_penalty,
            constraint=WellFormedTrees(self.symbols, pieces, limits),
        )
        return [
            [ParsedTree(self.tree(one, words, row), one.ids, one.score) for one in hypotheses]
            for hypotheses, words, row in zip(found, sentences, pieces, strict=True)
        ]

    def tree(self, found: Hypothesis, words: Sequence[str], pieces: Pieces) -> Tree:
        """Return the tree that was found; where no score is finite, one without structure."""
        if found.score == -math.inf:
            return Tree(ROOT, tuple(Tree("XX", (word,)) for word in words))
        return delinearise(found.ids, words, pieces, self.symbols)
