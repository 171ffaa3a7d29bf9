"""The grammar written by hand whose trees the parser in the box learns: its words, its rules, and what it covers."""

import pytest

from bench.english_trees import EnglishGrammar, EnglishLexicon, inflected, penn_tree, without_marks
from regard.data.trees import parse_tree


@pytest.fixture(scope="module")
def grammar() -> EnglishGrammar:
    return EnglishGrammar()


@pytest.mark.parametrize(
    ("kind", "item", "words"),
    [
        ("verb V", "stop", "stop stops stop stopped stopped stopping"),
        ("verb V", "open", "open opens open opened opened opening"),
        ("verb V", "carry", "carry carries carry carried carried carrying"),
        ("verb V", "die", "die dies die died died dying"),
        ("verb V", "agree", "agree agrees agree agreed agreed agreeing"),
        ("verb V", "give/gave/given", "give gives give gave given giving"),
        ("verb V", "begin/began/begun", "begin begins begin began begun beginning"),
        ("verb V", "go/went/gone", "go goes go went gone going"),
        ("verb V", "have/had/had", "have has have had had having"),
        ("noun", "city", "city cities"),
        ("noun", "boy", "boy boys"),
        ("noun", "child/children", "child children"),
        ("adjective", "big/bigger/biggest", "big bigger biggest"),
        ("adjective", "angry", "angry"),
        ("adverb", "soon", "soon"),
    ],
)
def test_forms_of_words(kind: str, item: str, words: str) -> None:
    assert [word for _, word in inflected(kind, item)] == words.split()


def test_a_lexicon_has_rare_readings_and_guesses_unknown_words() -> None:
    lexicon = EnglishLexicon(["noun: dog saw?", "# a comment", "verb V: see/saw/seen", ".-Q: ?", "name: Tom"])
    saw = lexicon.readings("saw")
    assert saw["VBD-V"] == 1 > saw["NN"]
    assert lexicon.readings("Dogs") == lexicon.readings("dogs")
    assert set(lexicon.readings("?")) == {".-Q"}
    assert lexicon.knows("Tom")
    assert not lexicon.knows("quickly")
    assert lexicon.knows("1,000")
    for word, tag in {
        "quickly": "RB",
        "Zoe": "NNP",
        "7": "CD",
        "movement": "NN",
        "joyful": "JJ",
        "boxes": "NNS",
    }.items():
        found = lexicon.scores(word)
        assert max(found, key=found.__getitem__) == tag
        assert set(found) <= lexicon.tags


def test_symbols_of_the_grammar_become_labels_of_the_treebank() -> None:
    inner = "(S-TOP (_S (NP-SBJ (NP-BASE (_NPB (DT the) (NN cat)))) (VP-FIN (VP-VBD (_V-VBD (VBD-V slept))))) (.-D .))"
    assert str(penn_tree(parse_tree(inner))) == "(S (NP (DT the) (NN cat)) (VP (VBD slept)) (. .))"


@pytest.mark.parametrize(
    ("sentence", "tree"),
    [
        (
            "I saw the man with the telescope.",
            "(S (NP (PRP I)) (VP (VBD saw) (NP (DT the) (NN man)) (PP (IN with) (NP (DT the) (NN telescope)))) (. .))",
        ),
        (
            "Tom doesn't want to go.",
            "(S (NP (NNP Tom)) (VP (VBZ does) (RB n't) (VP (VB want) (S (VP (TO to) (VP (VB go)))))) (. .))",
        ),
        (
            "What did you buy yesterday?",
            "(SBARQ (WHNP (WP What)) (SQ (VBD did) (NP (PRP you)) (VP (VB buy) (NP (NN yesterday)))) (. ?))",
        ),
        ("Are you happy?", "(SQ (VBP Are) (NP (PRP you)) (ADJP (JJ happy)) (. ?))"),
        (
            "I know that he is right.",
            "(S (NP (PRP I)) (VP (VBP know) (SBAR (IN that) (S (NP (PRP he)) (VP (VBZ is) (ADJP (JJ right)))))) (. .))",
        ),
        (
            "The man who called is my friend.",
            "(S (NP (NP (DT The) (NN man)) (SBAR (WHNP (WP who)) (S (VP (VBD called))))) "
            "(VP (VBZ is) (NP (PRP$ my) (NN friend))) (. .))",
        ),
        (
            "Give me a cup of tea.",
            "(S (VP (VB Give) (NP (PRP me)) (NP (NP (DT a) (NN cup)) (PP (IN of) (NP (NN tea))))) (. .))",
        ),
    ],
)
def test_trees_as_an_annotator_would_write_them(grammar: EnglishGrammar, sentence: str, tree: str) -> None:
    assert [str(found) for found in grammar.trees([sentence])] == [tree]


def test_what_is_not_covered_has_no_tree(grammar: EnglishGrammar) -> None:
    rows = ["Yes.", "No end mark here", "Zorp glibbed quixly.", "The the of and.", '"No," he said.', "of " * 30 + "."]
    assert list(grammar.trees(rows)) == []


def test_some_training_trees_are_as_people_type() -> None:
    tree = parse_tree("(S (NP (DT The) (NN cat)) (VP (VBD slept)) (. .))")
    assert str(without_marks(tree)) == "(S (NP (DT the) (NN cat)) (VP (VBD slept)))"
    tree = parse_tree("(S (NP (NNP Tom)) (VP (VBD slept)) (. .))")
    assert str(without_marks(tree)) == "(S (NP (NNP Tom)) (VP (VBD slept)))"
