"""`regard parse`: trees in the terminal, in brackets, as JSON and as a picture; with a model, and with a grammar."""

import json
import sys
from pathlib import Path

import pytest
from torch import nn

from regard.data.batches import Indices
from regard.data.trees import Tree, parse_tree
from regard.tasks.parsing import Parsing
from regard.use.load import load

from ..use.made import TREES, run
from .command import Command

LINES = ["one red dog runs", "", "the (old) cat"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    place = tmp_path_factory.mktemp("runs")
    for kind in ("parsing", "translation"):
        run(kind, place / kind)
    return place


@pytest.fixture
def regard(monkeypatch, capsys, tmp_path) -> Command:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))
    Path("in.txt").write_text("".join(f"{line}\n" for line in LINES))
    Path("trees.mrg").write_text("\n".join(TREES))
    return Command(monkeypatch, capsys)


def test_a_text_is_drawn_and_lines_of_a_file_are_in_brackets(regard, folder):
    model = ["-m", folder / "parsing", "--beam", 2]
    (wanted,) = load(folder / "parsing", "cpu").parse([LINES[0]], beam=2)
    assert regard("parse", LINES[0], *model, "--brackets").out == f"{wanted}\n"
    drawn = regard("parse", LINES[0], *model).out
    assert drawn.splitlines()[0] == wanted.label
    assert [line.split()[-1] for line in drawn.splitlines() if line.split()[-1] in LINES[0]] == LINES[0].split()
    first, blank, last = regard("parse", *model, "-f", "in.txt").out.splitlines()
    assert (first, blank) == (str(wanted), "")
    assert parse_tree(last).words() == ["the", "-LRB-", "old", "-RRB-", "cat"]
    objects = [json.loads(line) for line in regard("parse", *model, "-f", "in.txt", "--json").out.splitlines()]
    assert [(one["text"], one["tree"]) for one in objects] == [(LINES[0], first), ("", None), (LINES[2], last)]


def test_a_deep_tree_is_indented_less_on_a_narrow_terminal(regard, monkeypatch):
    arguments = ["parse", "two green cat sleeps", "--grammar", "trees.mrg"]
    assert "│  ├─ CD two" in regard(*arguments).out
    monkeypatch.setenv("COLUMNS", "10")
    assert "│  ├─ CD two" in regard(*arguments).out  # not a terminal
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert "│├CD two" in regard(*arguments).out


def test_what_is_written_can_be_trained_on(regard, folder):
    assert regard("parse", "-m", folder / "parsing", "-f", "in.txt", "-o", "out.mrg", "--beam", 1).code == 0
    done = regard("train", "parsing", "out.mrg", "train.steps=2", "--dry-run", "--device", "cpu", "--size", "tiny")
    assert done.code == 0, done.err
    assert "2 trees" in done.out or "1 trees" in done.out


def test_a_grammar_parses_without_a_model(regard):
    found = regard("parse", "two green cat sleeps", "--grammar", "trees.mrg", "--brackets").out
    assert found == "(S (NP (CD two) (JJ green) (NN cat)) (VP (VBZ sleeps)))\n"
    lines = regard("parse", "-f", "in.txt", "--grammar", "trees.mrg").out.splitlines()
    assert lines[0] == TREES[0]
    assert lines[1] == ""
    rows = "".join(f'{number},"{line}"\n' for number, line in enumerate(LINES))
    Path("in.csv").write_text(f"number,text\n{rows}")
    found = regard("parse", "-f", "in.csv", "--grammar", "trees.mrg")
    assert found.err == "regard: in.csv: with header, text = column 2 (text)\n"
    assert found.out.splitlines() == lines
    refused = regard.refused("parse", "-f", "in.csv", "--column", "words", "--grammar", "trees.mrg")
    assert "no column 'words' for the text" in refused


def test_a_picture(regard):
    regard("parse", "two green cat sleeps", "--grammar", "trees.mrg", "--svg", "tree.svg")
    assert ">sleeps<" in Path("tree.svg").read_text()


@pytest.mark.parametrize(
    ("arguments", "rule"),
    [
        (["a", "-m", "RUNS/parsing", "--grammar", "trees.mrg"], "either parses; leave one of them out"),
        (["a", "-m", "RUNS/translation"], "is a translator and cannot parse; use `translate` or `embed`"),
        (["a", "-m", "RUNS/parsing", "--beam", "0"], "--beam 0 must be a whole number, at least 1"),
        (["a", "--grammar", "nowhere.mrg"], "nowhere.mrg: no such file"),
        (["a", "--grammar", "in.txt"], "in.txt:1: 'one' is outside of any bracket"),
        (["a", "b", "--grammar", "trees.mrg", "--svg", "t.svg"], "is for the tree of one text"),
        ([" ", "--grammar", "trees.mrg", "--svg", "t.svg"], "is for the tree of one text; give one text that is not"),
        (["a", "--grammar", "trees.mrg", "--svg", "t.png"], "name one that ends in .svg"),
        (["a", "a " * 1001, "--grammar", "trees.mrg"], "text 2: 1,001 words are too many for a sentence; give one"),
        (["-f", "long.txt", "-m", "RUNS/parsing"], "long.txt:3: 1,001 words are too many for a sentence"),
        (
            ["a", "--grammar", "traces.mrg"],
            "traces.mrg: no tree is left to learn a grammar from; give other files (1 tree",
        ),
    ],
)
def test_mistakes_are_one_line(regard, folder, arguments, rule):
    Path("long.txt").write_text(f"one dog\n\n{'a ' * 1001}\n", encoding="utf-8")
    Path("traces.mrg").write_text("(S (-NONE- *))\n", encoding="utf-8")
    assert rule in regard.refused("parse", *(word.replace("RUNS", str(folder)) for word in arguments))


@pytest.mark.parametrize("parser", [["-m", "RUNS/parsing"], ["--grammar", "trees.mrg"]])
def test_a_mistake_in_a_table_names_the_line_of_the_file(regard, folder, parser):
    Path("long.tsv").write_text(f"text\none dog\n\n{'a ' * 1001}\n", encoding="utf-8")
    done = regard("parse", "-f", "long.tsv", *(word.replace("RUNS", str(folder)) for word in parser))
    assert done.code == 2
    assert "long.tsv:4: 1,001 words are too many for a sentence" in done.err


def test_a_parser_cannot_translate_but_is_evaluated(regard, folder):
    assert "is a parser and cannot translate" in regard.refused("translate", "a", "-m", folder / "parsing")
    found = json.loads(regard("evaluate", "trees.mrg", "-m", folder / "parsing", "--json").out)
    assert "bracket_f1" in json.dumps(found)


def test_a_parser_is_measured_with_the_beams_of_the_command(regard, folder, monkeypatch):
    beams: list[int] = []
    parsed = Parsing.parsed

    def counted(self: Parsing, model: nn.Module, rows: Indices, beam: int) -> list[Tree]:
        beams.append(beam)
        return parsed(self, model, rows, beam)

    monkeypatch.setattr(Parsing, "parsed", counted)
    model = ["-m", folder / "parsing"]
    assert regard("evaluate", "trees.mrg", *model).code == 0
    assert regard("evaluate", "trees.mrg", *model, "--beam", 2).code == 0
    assert beams == [8, 2]
    assert "beam" in regard.refused("evaluate", "trees.mrg", *model, "--beam", 0)


def test_a_model_that_does_not_search_is_measured_without_beams(regard, folder):
    run("language", folder / "language")
    rule = "is a language model and does not search when it is measured; leave --beam out"
    assert rule in regard.refused("evaluate", "-m", folder / "language", "--beam", 2)


def test_look_shows_the_tree_that_is_written(regard, folder):
    assert regard("look", LINES[0], "-m", folder / "parsing", "--csv", "out.csv", "--attention", "cross.1").code == 0
    assert Path("out.csv").stat().st_size
