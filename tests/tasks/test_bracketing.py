"""Labelled bracketing: cases by hand, a naive scorer that works on strings, and PYEVALB where it is installed."""

import random
from itertools import pairwise

import pytest

from regard.data.trees import Tree, parse_tree
from regard.errors import InputError
from regard.tasks.bracketing import bracketing_scores

WANTED = "(S (NP (DT the) (NN cat)) (VP (VBD sat) (PP (IN on) (NP (DT the) (NN mat)))) (. .))"


def scores(made: str, wanted: str) -> dict[str, float]:
    return bracketing_scores([parse_tree(made)], [parse_tree(wanted)])


def counts(made: str, wanted: str) -> tuple[float, float]:
    found = scores(made, wanted)
    return found["bracket_precision"], found["bracket_recall"]


def test_by_hand():
    """Of the reference's S, NP, VP, PP, NP, the parse has S and both NP, and another VP of its own."""
    made = "(S (NP (DT the) (NN cat)) (VP (VBD sat)) (PP (IN on) (NP (DT the) (NN mat))) (. .))"
    found = scores(made, WANTED)
    assert found["bracket_precision"] == found["bracket_recall"] == found["bracket_f1"] == 80.0
    assert (found["exact_trees"], found["tag_accuracy"]) == (0.0, 100.0)
    assert scores(WANTED, WANTED) == dict.fromkeys(found, 100.0)


def test_labels_count():
    assert counts("(S (NP (NN a)) (VP (VB b)))", "(S (NP (NN a)) (NP (VB b)))") == (pytest.approx(200 / 3),) * 2


def test_punctuation_is_deleted_by_the_tags_of_the_reference():
    """The comma does not move the end of a constituent, whatever its tag in the parse is; empty ones are left out."""
    wanted = "(S (NP (NN a)) (, ,) (VP (VB b)) (. .))"
    made = "(S (NP (NN a) (NN ,)) (VP (VB b) (X (. .))))"
    assert scores(made, wanted)["bracket_f1"] == 100.0
    assert scores(made, wanted)["tag_accuracy"] == 100.0
    assert counts("(S (NP (NN a) (NN b)))", "(S (NP (NN a)) (, b))") == (100.0, 100.0)


def test_the_root_top_does_not_count_and_prt_equals_advp():
    assert counts("(TOP (S (NN a) (PRT (RP b))))", "(S (NN a) (ADVP (RB b)))") == (100.0, 100.0)
    assert counts("(TOP (NN a))", "(S (NN a))") == (0.0, 0.0)


def test_equal_constituents_count_as_often_as_they_occur():
    assert counts("(NP (NP (NP (NN a))))", "(NP (NP (NN a)))") == (pytest.approx(200 / 3), 100.0)
    assert counts("(NP (NN a))", "(NP (NP (NN a)))") == (100.0, 50.0)


def test_counts_are_summed_over_the_corpus():
    """1 of 1 and 1 of 4 make 2 of 5, not the mean of 1 and 1/4."""
    made = [parse_tree("(S (NN a))"), parse_tree("(S (A (B (C (NN a)))))")]
    wanted = [parse_tree("(S (NN a))"), parse_tree("(S (D (E (F (NN a)))))")]
    found = bracketing_scores(made, wanted)
    assert found["bracket_precision"] == found["bracket_recall"] == 40.0
    assert found["exact_trees"] == 50.0


def test_mistakes():
    with pytest.raises(InputError, match="0 trees cannot be scored against 0 references"):
        bracketing_scores([], [])
    with pytest.raises(InputError, match="1 words of tree 1 differ from the 1 of its reference"):
        scores("(S (NN a))", "(S (NN b))")


# --- against other scorers -------------------------------------------------------------------------------------------


def random_tree(chance: random.Random, words: list[str], label: str = "S") -> Tree:
    if len(words) == 1 and chance.random() < 0.7:
        return Tree(chance.choice(["NN", "VB", ",", "."]) if label != "S" else "S", (words[0],))
    cut = sorted({0, len(words), *(chance.randrange(len(words) + 1) for _ in range(chance.randrange(3)))})
    parts = [
        random_tree(chance, words[begin:end], chance.choice(["NP", "VP", "PRT", "ADVP"]))
        for begin, end in pairwise(cut)
    ]
    return Tree(label, tuple(parts))


def naive(made: Tree, wanted: Tree) -> tuple[int, int, int]:
    """Count brackets by scanning the text of each tree."""
    kept = [tag.label not in (",", ":", "``", "''", ".", "-NONE-") for tag in wanted.tags()]

    def spans(tree: Tree) -> list[tuple[str, tuple[int, ...]]]:
        found, open_ones, place = [], [], 0
        for piece in str(tree).replace("(", " ( ").replace(")", " ) ").split():
            if piece == "(":
                open_ones.append([])
            elif piece == ")":
                label, *inside = open_ones.pop()
                if len(inside) == 1 and isinstance(inside[0], str):
                    inside = [place] if kept[place] else []
                    place += 1
                elif inside and label != "TOP":
                    found.append(({"PRT": "ADVP"}.get(label, label), tuple(inside)))
                if open_ones:
                    open_ones[-1] += inside
            else:
                open_ones[-1].append(piece)
        return found

    ours, theirs = spans(made), spans(wanted)
    matched, rest = 0, list(theirs)
    for span in ours:
        if span in rest:
            rest.remove(span)
            matched += 1
    return matched, len(ours), len(theirs)


def pairs(count: int) -> list[tuple[Tree, Tree]]:
    chance = random.Random(0)
    found = []
    for _ in range(count):
        words = [f"w{number}" for number in range(chance.randrange(2, 9))]
        found.append((random_tree(chance, words), random_tree(chance, words)))
    return found


def test_like_a_naive_scorer():
    total = [sum(part) for part in zip(*(naive(*pair) for pair in pairs(200)), strict=True)]
    found = bracketing_scores(*zip(*pairs(200), strict=True))
    assert found["bracket_f1"] == pytest.approx(200 * total[0] / (total[1] + total[2]))
    assert 5 < found["bracket_f1"] < 95


def test_like_pyevalb():
    """It deletes nothing and counts equal constituents once, so it gets trees without punctuation and repetitions."""
    scorer = pytest.importorskip("PYEVALB.scorer", reason="PYEVALB is not a dependency; pip install PYEVALB")
    parser = pytest.importorskip("PYEVALB.parser")
    compared = 0
    for made, wanted in pairs(1000):
        made, wanted = (
            parse_tree(str(tree).replace("(, ", "(NN ").replace("(. ", "(NN ").replace("PRT", "ADVP"))
            for tree in (made, wanted)
        )
        if any(repeats(tree) for tree in (made, wanted)):
            continue
        found = bracketing_scores([made], [wanted])
        other = scorer.Scorer().score_trees(*(parser.create_from_bracket_string(str(tree)) for tree in (wanted, made)))
        assert (found["bracket_precision"], found["bracket_recall"]) == (
            pytest.approx(100 * other.prec),
            pytest.approx(100 * other.recall),
        )
        compared += 1
    assert compared > 50


def repeats(tree: Tree) -> bool:
    """Whether a constituent has the same label as its only part."""
    return (len(tree.trees) == 1 and tree.trees[0].label == tree.label) or any(map(repeats, tree.trees))
