"""The grammar: probabilities by hand, the best tree against all trees, unknown words, sentences without a parse."""

from itertools import product
from math import log

import pytest

from regard.data.trees import Tree, parse_tree
from regard.errors import InputError
from regard.tasks.bracketing import bracket_f1
from regard.tasks.grammar import Lexicon, Symbol, learn_grammar, right_branching, unary_chains, word_shapes

BANK = [
    "(S (NP (DT the) (NN dog)) (VP (VBD saw) (NP (DT the) (NN cat)) (PP (IN with) (NP (NNS eyes)))))",
    "(S (NP (DT the) (NN cat)) (VP (VBD saw) (NP (NP (DT the) (NN dog)) (PP (IN with) (NP (NNS ears))))))",
    "(S (NP (NNS dogs)) (VP (VBD slept)))",
    "(S (NP (NNS cats)) (VP (VBD saw) (NP (NNS dogs))))",
]
TREES = [parse_tree(text) for text in BANK]


def test_rules_are_relative_frequencies():
    grammar = learn_grammar(TREES)
    parents, lefts, rights, scores = grammar.rules
    rules = {
        tuple(grammar.symbols[place] for place in rule): score
        for *rule, score in zip(parents.tolist(), lefts.tolist(), rights.tolist(), scores.tolist(), strict=True)
    }
    vp = Symbol("VP", "S")
    assert rules[vp, Symbol("VBD"), Symbol("NP", "VP")] == pytest.approx(log(2 / 4))
    rest = Symbol("VP", "S", "VBD")
    assert rules[vp, Symbol("VBD"), rest] == pytest.approx(log(1 / 4))
    assert rules[rest, Symbol("NP", "VP"), Symbol("PP", "VP")] == pytest.approx(0.0)


def test_the_best_tree_is_the_best_of_all_derivations():
    """Compare with a search that tries every split and every rule, without a chart."""
    grammar = learn_grammar(TREES)
    unary = {(up, down): score for up, chains in grammar.below.items() for down, score, _ in chains}
    binary = list(zip(*(column.tolist() for column in grammar.rules), strict=True))

    def best(words: list[str], symbol: int, chained: bool = True) -> float:
        found = [-float("inf")]
        if len(words) == 1:
            found.append(grammar.lexicon.scores(words[0]).get(grammar.symbols[symbol].label, found[0]))
            if grammar.symbols[symbol].parent:
                found = found[:1]
        for cut, (parent, left, right, score) in product(range(1, len(words)), binary):
            if parent == symbol:
                found.append(score + best(words[:cut], left) + best(words[cut:], right))
        if chained:
            found += [s + best(words, down, False) for (up, down), s in unary.items() if up == symbol]
        return max(found)

    words = ["the", "dog", "saw", "the", "cat"]
    (tree,) = grammar.parse([words])
    assert str(tree) == "(S (NP (DT the) (NN dog)) (VP (VBD saw) (NP (DT the) (NN cat))))"
    chosen = max(grammar.roots, key=lambda root: best(words, root) + grammar.roots[root])
    assert grammar.symbols[chosen] == Symbol("S", "TOP")
    score = best(words, chosen)
    assert score == pytest.approx(
        sum(grammar.lexicon.scores(word)[tag] for word, tag in zip(words, ["DT", "NN", "VBD", "DT", "NN"], strict=True))
        + log(1 / 2)  # S -> NP VP is certain; NP below S is DT NN in two of four
        + log(2 / 4)  # VP -> VBD NP
        + log(1 / 3)  # NP below VP -> DT NN
    )


def test_it_parses_what_it_has_seen_in_batches_of_any_size():
    grammar = learn_grammar(TREES)
    found = grammar.parse([tree.words() for tree in TREES])
    assert bracket_f1(found, TREES) > 95  # one "with" could belong to either
    assert [grammar.parse([tree.words()])[0] for tree in TREES] == found


def test_unknown_words_get_tags_by_their_shape():
    lexicon = Lexicon([("NNS", "houses"), ("NNS", "mouses"), ("NNP", "Basel"), ("CD", "12"), *[("DT", "the")] * 20])
    best = {word: max(found, key=found.get) for word in ("blouses", "Bern", "77") for found in [lexicon.scores(word)]}
    assert best == {"blouses": "NNS", "Bern": "NNP", "77": "CD"}
    assert set(lexicon.scores("the")) == {"DT"}
    assert word_shapes("Blouses")[0] == "Aa ses"


def test_a_sentence_that_no_rule_derives_branches_to_the_right():
    grammar = learn_grammar([parse_tree("(S (NN a) (VB b))")])
    (tree,) = grammar.parse([["a", "b", "a"]])
    assert tree.words() == ["a", "b", "a"]
    assert str(tree) == "(S (NN a) (NP (VB b) (NP (NN a))))"


def test_chains_are_the_best_and_end():
    """1 -> 2 -> 3 beats 1 -> 3; the circle 1 -> 2 -> 1 is not followed."""
    chains = unary_chains({(1, 2): log(0.9), (2, 3): log(0.5), (1, 3): log(0.1), (2, 1): log(0.5)})
    assert chains[1, 3] == (pytest.approx(log(0.45)), (2,))
    assert chains[1, 2] == (log(0.9), ())
    assert (1, 1) not in chains


def test_right_branching_by_hand():
    assert str(right_branching(parse_tree("(S (A a) (B b) (C c) (. .))"))) == "(S (A a) (NP (B b) (NP (C c))) (. .))"
    assert str(right_branching(parse_tree("(S (A a) (B b))"))) == "(S (A a) (NP (B b)))"
    assert str(right_branching(parse_tree("(S (A a))"))) == "(S (A a))"
    assert str(right_branching(parse_tree("(S (A a) (. .))"))) == "(S (A a) (NP (. .)))"


def test_no_trees_are_an_error():
    with pytest.raises(InputError, match="there is no tree to learn a grammar from"):
        learn_grammar([])


def test_a_grammar_of_single_words():
    (tree,) = learn_grammar([Tree("S", (Tree("X", ("a",)),))]).parse([["b"]])
    assert str(tree) == "(S (X b))"
