"""Linear trees: the example by hand, exact inversion, and a constraint that allows exactly the well-formed trees."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.data.tokenizer import TokenizerConfig, train_tokenizer
from regard.data.trees import Tree, parse_tree
from regard.errors import InputError
from regard.tasks.linear_trees import (
    LONGEST_CHAIN,
    TreeSymbols,
    WellFormedTrees,
    delinearise,
    linearise,
    symbol_names,
    tree_limit,
    word_pieces,
)

EXAMPLE = parse_tree("(S (NP (DT the) (NN cat)) (VP (VBD slept)))")
LABELS, TAGS, WORDS = ("NP", "S", "VP"), ("DT", "NN", "VB"), ("the", "cat", "sleeps", "cattle", "é")


def tokenizer_with(names: list[str]):
    plain = train_tokenizer(["the cat sleeps slept"] * 9, TokenizerConfig("bpe", 300))
    return plain.adding(names)


ROOTS = [Tree(label, (Tree(tag, ("the",)),)) for label in LABELS for tag in TAGS]
TOKENIZER = tokenizer_with(symbol_names(ROOTS))
SYMBOLS = TreeSymbols.of(TOKENIZER)

tags = st.builds(lambda tag, word: Tree(tag, (word,)), st.sampled_from(TAGS), st.sampled_from(WORDS))
inner = st.recursive(
    tags,
    lambda below: st.builds(
        lambda label, parts: Tree(label, tuple(parts)), st.sampled_from(LABELS), st.lists(below, min_size=1, max_size=4)
    ),
    max_leaves=12,
)
trees = st.builds(
    lambda label, parts: Tree(label, tuple(parts)), st.sampled_from(LABELS), st.lists(inner, min_size=1, max_size=4)
)


def test_the_example_by_hand():
    tokenizer = tokenizer_with(symbol_names([EXAMPLE]))
    symbols = TreeSymbols.of(tokenizer)
    pieces = word_pieces(tokenizer, EXAMPLE.words())
    ids = linearise(EXAMPLE, pieces, symbols)
    assert "".join(tokenizer.pieces(ids)) == "(S(NP(DT) the(NN) cat)NP(VP(VBD) slept)VP)S"
    assert set(symbols.opening) == set(symbols.closing) == {"S", "NP", "VP"}
    assert set(symbols.tags) == {"DT", "NN", "VBD"}


@given(trees)
def test_delinearise_inverts_linearise_and_the_constraint_allows_every_tree(tree):
    pieces = word_pieces(TOKENIZER, tree.words())
    ids = linearise(tree, pieces, SYMBOLS)
    assert delinearise(ids, tree.words(), pieces, SYMBOLS) == tree
    constraint = WellFormedTrees(SYMBOLS, [pieces], [len(ids) + 1 + 50])
    state, longest, chain = constraint.start(0), 0, 0
    for id in [*ids, TOKENIZER.end]:
        chain = chain + 1 if SYMBOLS.meanings.get(id, ("", ""))[0] == "open" else 0
        longest = max(longest, chain)
        if longest > LONGEST_CHAIN:
            return
        assert id in constraint.allowed(state)
        state = constraint.advance(state, id) if id != TOKENIZER.end else state


@given(st.lists(st.sampled_from(WORDS), min_size=1, max_size=7), st.integers(0, 10**6), st.sampled_from([0, 3, 40]))
def test_every_text_that_is_allowed_is_a_tree_within_the_limit(words, seed, spare):
    """Walk at random; with little room the tree is flat, but complete."""
    pieces = word_pieces(TOKENIZER, words)
    limit = sum(map(len, pieces)) + len(words) + 3 + spare
    constraint, chance = WellFormedTrees(SYMBOLS, [[[7]], pieces], [99, limit]), random.Random(seed)
    state, ids = constraint.start(1), []
    while (id := int(chance.choice(list(constraint.allowed(state))))) != TOKENIZER.end:
        ids.append(id)
        state = constraint.advance(state, id)
    assert len(ids) + 1 <= limit
    assert delinearise(ids, words, pieces, SYMBOLS).words() == words


def test_what_is_not_a_tree_is_rejected():
    pieces = word_pieces(TOKENIZER, ["the", "cat"])
    whole = linearise(parse_tree("(S (DT the) (NN cat))"), pieces, SYMBOLS)
    for wrong in (whole[:-1], whole[1:], [*whole, whole[-1]], [TOKENIZER.end], whole[:1] + whole[-1:]):
        with pytest.raises(InputError, match="WellFormedTrees"):
            delinearise(wrong, ["the", "cat"], pieces, SYMBOLS)
    with pytest.raises(InputError, match="the tree has 2 of 3 words"):
        delinearise(whole, ["the", "cat", "x"], [*pieces, [1]], SYMBOLS)


def test_a_limit_that_no_tree_fits_is_an_error():
    pieces = word_pieces(TOKENIZER, ["the"])
    WellFormedTrees(SYMBOLS, [pieces], [len(pieces[0]) + 4])
    with pytest.raises(InputError, match="a sentence of 1 words needs"):
        WellFormedTrees(SYMBOLS, [pieces], [len(pieces[0]) + 3])


def test_labels_without_a_token_are_unknown():
    tree = parse_tree("(XX (YY the))")
    assert linearise(tree, [[9]], SYMBOLS) == [TOKENIZER.unk, TOKENIZER.unk, 9, TOKENIZER.unk]
    assert not TreeSymbols.of(train_tokenizer(["a b"], TokenizerConfig("word", 20)))


def test_every_tree_of_usual_size_fits():
    pieces = word_pieces(TOKENIZER, ["the"] * 5)
    assert tree_limit(pieces) > len(linearise(parse_tree(f"(S {'(NP (VP (DT the)))' * 5})"), pieces, SYMBOLS))
