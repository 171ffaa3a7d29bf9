"""Trees: reading over lines and files, normalisation by hand, mistakes with their place, words of plain text."""

import gzip
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.data.read import Skipped
from regard.data.trees import (
    DEEPEST,
    ROOT,
    Tree,
    normalised,
    parse_tree,
    plain_label,
    read_trees,
    split_words,
    tree_files,
    trees_reading,
)
from regard.errors import InputError

PENN = """
( (S
    (NP-SBJ-1 (DT The) (NN cat) )
    (VP (VBD seemed)
      (S
        (NP-SBJ (-NONE- *-1) )
        (VP (TO to) (VP (VB sleep) ))))
    (. .) ))
( (X (-NONE- *) ))
((NP=2 (NNP Basel)) (. .))
"""
PLAIN = [
    "(S (NP (DT The) (NN cat)) (VP (VBD seemed) (S (VP (TO to) (VP (VB sleep))))) (. .))",
    "(TOP (NP (NNP Basel)) (. .))",
]


def written(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def read(path: Path) -> list[str]:
    return [str(tree) for tree in read_trees(path, Skipped())]


def test_trees_over_several_lines_lose_traces_functions_and_the_node_above(tmp_path):
    skipped = Skipped()
    path = written(tmp_path / "wsj.mrg", PENN)
    assert [str(tree) for tree in read_trees(path, skipped)] == PLAIN
    assert skipped.report() == [f"1 tree without a word skipped (first: {path}:9)"]


def test_one_tree_per_line_several_per_line_and_compressed_files(tmp_path):
    assert read(written(tmp_path / "lines.mrg", "\n".join(PLAIN))) == PLAIN
    assert read(written(tmp_path / "one.mrg", " ".join(PLAIN))) == PLAIN
    (tmp_path / "packed.mrg.gz").write_bytes(gzip.compress(PENN.encode()))
    assert read(tmp_path / "packed.mrg.gz") == PLAIN


def test_a_folder_stands_for_its_tree_files(tmp_path):
    (tmp_path / "deep").mkdir()
    files = [written(tmp_path / name, PENN) for name in ("a.mrg", "deep/c.ptb")]
    written(tmp_path / "README", "not a tree")
    assert tree_files(tmp_path) == files
    (tmp_path / "other").mkdir()
    written(tmp_path / "other/README", "text")
    with pytest.raises(InputError, match="is a folder without tree files"):
        tree_files(tmp_path / "other")


@pytest.mark.parametrize(
    ("text", "place", "rule"),
    [
        ("(S (NN a))\n(S\n(NP (NN a))", 2, r"a bracket that is never closed \(S\)"),
        ("(S (NN a)))", 1, "a closing bracket without an opening one"),
        ("\n(S (NN a) ())", 2, "an empty constituent"),
        ("(S (NN a) b)", 1, "'b' has no tag of its own"),
        ("(S a (NN b))", 1, "'a' has no tag of its own"),
        ("(S (NN a b))", 1, "'a' has no tag of its own"),
        ("plain text", 1, "'plain' is outside of any bracket"),
        ("(" * (DEEPEST + 1), 1, f"more than {DEEPEST} brackets inside each other"),
        ("(S " + "(NN a) " * 1001, 1, "a tree of more than 1,000 words"),
        ("(S (NN a))\n(S (NN b)\n" + "(S (NN a))\n" * 1001, 2, "a tree of more than 1,000 words"),
        ("(S (NN a))\n" + "(S (NN b)\n" * (DEEPEST + 1), 2, f"more than {DEEPEST} brackets inside each other"),
        ("", "", "is empty"),
    ],
)
def test_mistakes_name_the_file_and_the_line(tmp_path, text, place, rule):
    path = written(tmp_path / "wrong.mrg", text)
    with pytest.raises(InputError, match=rule) as error:
        list(read_trees(path, Skipped()))
    assert str(error.value).startswith(f"{path}:{place}")


def test_missing_files_and_trees_in_a_text():
    with pytest.raises(InputError, match="no such file"):
        list(read_trees(Path("nowhere.mrg"), Skipped()))
    with pytest.raises(InputError, match="holds 2 trees"):
        parse_tree("(A (B c)) (A (B c))")


def test_a_reading_shows_the_first_tree(tmp_path):
    found = trees_reading(written(tmp_path / "a.mrg", PENN))
    assert found.examples == {"sentence": "The cat seemed to sleep .", "tree": PLAIN[0]}


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("(NN a)", "(TOP (NN a))"),
        ("((NN a))", "(TOP (NN a))"),
        ("(TOP (ROOT (S (NN a))))", "(S (NN a))"),
        ("(ROOT (NN a) (NN b))", "(TOP (NN a) (NN b))"),
        ("(S (NP-SBJ (-NONE- *)))", None),
        ("(S|<x> (-LRB- -LRB-))", "(S (-LRB- -LRB-))"),
    ],
)
def test_normalisation_by_hand(text, plain):
    found = normalised(parse_tree(text))
    assert (None if found is None else str(found)) == plain


def test_labels_without_functions():
    assert [plain_label(label) for label in ("NP-SBJ-1", "NP=2", "-LRB-", "-NONE-", "PRT|ADVP", "S")] == [
        "NP",
        "NP",
        "-LRB-",
        "-NONE-",
        "PRT",
        "S",
    ]


names = st.text("ABCXYZ", min_size=1, max_size=3)
tags = st.builds(lambda tag, word: Tree(tag, (word,)), names, st.text("abc.,'1é", min_size=1, max_size=5))
trees = st.recursive(
    tags,
    lambda inner: st.builds(
        lambda name, parts: Tree(name, tuple(parts)), names, st.lists(inner, min_size=1, max_size=4)
    ),
)


@given(trees)
def test_what_is_written_can_be_read_again(tree):
    assert parse_tree(str(tree)) == tree
    plain = normalised(tree)
    assert plain is not None
    assert normalised(plain) == plain
    assert plain.words() == tree.words()
    assert not plain.is_tag
    assert plain.label == ROOT or plain == tree or tree.label == ROOT


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("I don't know (yet).", "I do n't know -LRB- yet -RRB- ."),
        ("We cannot wait, you're gonna go", "We can not wait , you 're gon na go"),
        ('He said: "It\'s 1,000 dollars!"', "He said : `` It 's 1,000 dollars ! ''"),
        ("Mr. Vinken is 61 years old .", "Mr. Vinken is 61 years old ."),
        ('He said: "Stop."', "He said : `` Stop . ''"),
        ("(He said 'no.')", "-LRB- He said 'no . ' -RRB-"),
        ("“Don’t,” she said", "`` Do n't , '' she said"),
        ("He works at Exxon Corp. ''", "He works at Exxon Corp. ''"),
        ("They 're the dogs' 5% -- no , ca n't", "They 're the dogs ' 5 % -- no , ca n't"),
        ("  ", ""),
    ],
)
def test_words_as_the_penn_treebank_has_them(text, words):
    assert split_words(text) == words.split()
    assert split_words(" ".join(split_words(text))) == words.split()
