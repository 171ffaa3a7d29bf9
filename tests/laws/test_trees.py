"""Laws of constrained decoding: whatever the weights of a model are, what it writes is a tree over its words."""

import pytest
import torch

from regard.data.tokenizer import TokenizerConfig, train_tokenizer
from regard.data.trees import parse_tree
from regard.decode.beam import beam_search
from regard.decode.choose import Sampling
from regard.decode.engine import Given, eager, in_use
from regard.decode.sample import sample_all
from regard.tasks.linear_trees import TreeSymbols, WellFormedTrees, delinearise, symbol_names, tree_limit, word_pieces

from .cases import VOCABULARY, Case, name_of, one_of_each

WORDS = [["a"], ["b", "a"], ["a", "b", "c", "a"]]


def tokenizer_of(size: int):
    """Return a tokenizer with the symbols of trees, as small as the vocabulary of the models."""
    names = symbol_names([parse_tree("(S (NP (N a)) (VP (V b)))")])
    tokenizer = train_tokenizer(["a b c"], TokenizerConfig("word", 8)).adding(names)
    assert tokenizer.size <= size, "the vocabulary of the laws is too small"
    return tokenizer


@pytest.mark.parametrize("case", one_of_each(), ids=name_of)
def test_an_untrained_model_writes_only_trees(case: Case):
    tokenizer, model = tokenizer_of(VOCABULARY), case.build()
    symbols = TreeSymbols.of(tokenizer)
    pieces = [word_pieces(tokenizer, words) for words in WORDS]
    lengths = [sum(map(len, row)) for row in pieces]
    limits = [min(tree_limit(row), model.longest() or 40, 40) for row in pieces]
    source = torch.full((len(pieces), max(lengths)), tokenizer.pad)
    for row, ids in enumerate(pieces):
        source[row, : lengths[row]] = torch.tensor([id for word in ids for id in word])
    start = torch.full((len(pieces), 1), tokenizer.start)
    given = Given(start, None, source, torch.tensor(lengths)) if "Seq2Seq" in case.kind else Given(start)
    settings = {"end": tokenizer.end, "limits": limits, "constraint": WellFormedTrees(symbols, pieces, limits)}
    with in_use(model):
        sampled = sample_all(eager(model), given, sampling=Sampling(temperature=1.5), seeds=[1, 2, 3], **settings)
        searched = [beam_search(eager(model), given, beam=beam, best=beam, **settings) for beam in (1, 3)]
    found = [sampled, *([one.ids for one in ranked] for rows in searched for ranked in zip(*rows, strict=False))]
    assert len(found) >= 3
    for texts in found:
        for ids, row, words in zip(texts, pieces, WORDS, strict=True):
            assert delinearise(ids, words, row, symbols).words() == words
