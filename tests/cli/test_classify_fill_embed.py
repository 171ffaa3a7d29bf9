"""`regard classify`, `regard fill` and `regard embed`: one answer a line."""

import json
import os
import sys
from pathlib import Path

import numpy as np
import pytest

from regard.cli.lines import Lines
from regard.use.guess import Guess
from regard.use.load import load
from regard.use.loaded_model import LoadedModel

from ..use.made import image, run
from .command import Command

LINES = ["red dog", "", "two blue cats"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    place = tmp_path_factory.mktemp("runs")
    for kind in ("classification", "masked", "vision", "language"):
        run(kind, place / kind)
    return place


@pytest.fixture
def regard(monkeypatch, capsys, tmp_path) -> Command:
    monkeypatch.chdir(tmp_path)
    Path("in.txt").write_text("".join(f"{line}\n" for line in LINES))
    return Command(monkeypatch, capsys)


def test_classify(regard, folder):
    wanted = load(folder / "classification", "cpu").classify(LINES, top=2)
    verb = ["classify", "-m", folder / "classification", "-f", "in.txt"]
    rows = [line.split("\t") for line in regard(*verb, "--top", 2).out.split("\n")]
    assert rows[1] == [""]
    assert [rows[0][0], rows[0][2]] == [guess.label for guess in wanted[0]]
    assert float(rows[2][3]) == pytest.approx(wanted[2][1].probability, abs=1e-4)
    objects = [json.loads(line) for line in regard(*verb, "--json").out.splitlines()]
    assert [[guess["label"] for guess in one["labels"]] for one in objects] == [[rows[0][0]], [], [rows[2][0]]]
    assert [one["text"] for one in objects] == LINES


@pytest.mark.parametrize(
    ("verb", "kind"),
    [("classify", "classification"), ("fill", "masked"), ("embed", "masked"), ("generate", "language")],
)
def test_a_table_gives_its_column_of_text(regard, folder, verb, kind):
    texts = ["red [MASK]", "two [MASK] cats"]
    Path("in.txt").write_text("".join(f"{text}\n" for text in texts))
    Path("in.csv").write_text("id,text\n" + "".join(f"{number},{text}\n" for number, text in enumerate(texts)))
    command = [verb, "-m", folder / kind, *(["--seed", 0] if verb == "generate" else []), "--json", "-f"]
    lines, table = (regard(*command, name) for name in ("in.txt", "in.csv"))
    assert (lines.code, table.out) == (0, lines.out)
    assert table.err == "regard: in.csv: with header, text = column 2 (text)\n"


def test_a_column_is_not_for_images(regard, folder):
    Path("in.csv").write_text("path,label\na.png,cat\n")
    refused = regard.refused("classify", "-f", "in.csv", "--column", "path", "-m", folder / "vision")
    assert "--column path: this model reads images, whose paths are the lines of a file; leave it out" in refused


def test_labels_from_a_file_stay_in_their_column_and_reach_no_terminal(regard, folder, monkeypatch):
    labels = ["two\nlines\tand columns", "\x1b]0;title\x07", "back\\slash"]
    found = [("a", [Guess(label, 0.25) for label in labels])]
    monkeypatch.setattr(LoadedModel, "classify_lines", lambda *arguments: iter(found))
    verb = ["classify", "a", "-m", folder / "classification", "--top", 3]
    assert regard(*verb).out == (
        "two\\nlines\\tand columns\t0.2500\t\\x1b]0;title\\x07\t0.2500\tback\\\\slash\t0.2500\n"
    )
    (row,) = map(json.loads, regard(*verb, "--json").out.splitlines())
    assert [one["label"] for one in row["labels"]] == labels


def test_the_pooling_can_be_chosen(regard, folder):
    verb = ["embed", "red dog", "-m", folder / "masked"]
    assert regard(*verb, "--pool", "mean").out == regard(*verb).out != regard(*verb, "--pool", "max").out
    assert regard.refused(*verb, "--pool", "cls") == (
        "--pool 'cls' is unknown; use one of first, last, max, mean, mean-sqrt, position-weighted"
    )


def test_classify_says_what_was_cut(regard, folder):
    said = "regard: 1 line was cut at the end, being over 30 tokens (first: line 1)\n"
    for verb in ("classify", "embed"):  # which cannot split
        assert regard(verb, "red " * 50, "-m", folder / "classification").err == said


def test_fill_says_what_was_cut(regard, folder):
    done = regard("fill", "red " * 50 + "[MASK]", "-m", folder / "masked")
    assert (done.code, done.err) == (0, "regard: 1 line was cut at the ends, being over 14 tokens (first: line 1)\n")


def test_classify_images(regard, folder):
    paths = [image(Path(f"{seed}.png"), seed) for seed in range(2)]
    wanted = load(folder / "vision", "cpu").classify(paths)
    found = regard("classify", *paths, "-m", folder / "vision").out.splitlines()
    assert [line.split("\t")[0] for line in found] == [guess.label for (guess,) in wanted]
    assert regard.refused("classify", "red dog", "-m", folder / "vision").startswith(
        "red dog: no such image file; give paths of images"
    )


@pytest.mark.parametrize("verb", ["classify", "embed"])
def test_images_that_a_model_of_texts_reads_as_texts_are_named(regard, folder, monkeypatch, verb):
    paths = [str(image(Path(f"{seed}.png"), seed)) for seed in range(2)]
    said = "is read as a text; a vision model reads the image, such as -m fashion\n"
    command = [verb, "-m", folder / "classification"]
    assert regard(*command, "a text", *paths).err == f"regard: 0.png {said}regard: 1.png {said}"
    Path("paths.txt").write_text("".join(f"{line}\n" for line in ["a text", "no.png", *paths]))
    assert regard(*command, "-f", "paths.txt").err == f"regard: 0.png {said}"
    with Path("paths.txt").open() as source:
        monkeypatch.setattr(sys, "stdin", source)
        assert regard(*command).err == f"regard: 0.png {said}"
    assert regard(verb, "-f", "in.txt", "-m", folder / "classification").err == ""


def test_fill(regard, folder):
    lines = ["red [MASK] runs", "", "[MASK] and [MASK]"]
    Path("in.txt").write_text("".join(f"{line}\n" for line in lines))
    wanted = load(folder / "masked", "cpu").fill(lines, top=2)
    verb = ["fill", "-m", folder / "masked", "-f", "in.txt", "--top", 2]
    rows = regard(*verb).out.split("\n")
    assert rows[1] == ""
    assert rows[0] == "\t".join(f"{guess.label} {guess.probability:.4f}" for guess in wanted[0][0])
    assert len(rows[2].split("\t|\t")) == 2
    objects = [json.loads(line) for line in regard(*verb, "--json").out.splitlines()]
    assert [len(one["masks"]) for one in objects] == [1, 0, 2]
    assert objects[0]["masks"][0][0]["label"] == wanted[0][0][0].label
    assert regard.refused("fill", "[MASK]", "red", "-m", folder / "masked").startswith("line 2: has no [MASK]")


def test_embed(regard, folder):
    wanted = load(folder / "language", "cpu").embed(LINES)
    verb = ["embed", "-m", folder / "language", "-f", "in.txt"]
    rows = [json.loads(line) for line in regard(*verb).out.splitlines()]
    assert rows[1] == []
    np.testing.assert_allclose([rows[0], rows[2]], wanted[[0, 2]], atol=1e-5)
    objects = [json.loads(line) for line in regard(*verb, "--json").out.splitlines()]
    assert [one["vector"] for one in objects] == rows
    assert [one["text"] for one in objects] == LINES


@pytest.mark.parametrize("lines", [LINES, ["", "", "red"], ["red"], [""]])
def test_embed_into_an_array(regard, folder, lines):
    Path("in.txt").write_text("".join(f"{line}\n" for line in lines))
    done = regard("embed", "-m", folder / "language", "-f", "in.txt", "-o", "x.npy")
    assert (done.code, done.out, done.err) == (0, "", "")
    found = np.load("x.npy", allow_pickle=False)
    wanted = load(folder / "language", "cpu").embed(lines)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, wanted, atol=1e-6)


def test_an_array_is_not_text(regard, folder):
    assert regard.refused("embed", "red", "-m", folder / "language", "-o", "x.npy", "--json") == (
        "x.npy would be an array, but --json asks for text; leave one of them out"
    )


def test_an_archive_of_arrays_is_not_written(regard, folder):
    assert regard.refused("embed", "red", "-m", folder / "language", "-o", "x.npz") == (
        "x.npz: an array is written as .npy, and text under any other name; name it NAME.npy"
    )


def test_an_array_is_not_written_into_a_pipe(regard, folder):
    os.mkfifo("x.npy")
    assert regard.refused("embed", "red", "-m", folder / "language", "-o", "x.npy") == (
        "x.npy: an array needs a file, since its beginning is written last; choose another -o"
    )


def test_a_token_that_is_a_line_break_stays_on_its_line(regard, folder, monkeypatch):
    found = [[Guess("\n", 0.5), Guess("a\tb", 0.25), Guess("\\", 0.125)]]
    monkeypatch.setattr(LoadedModel, "fill_lines", lambda *arguments: iter([("the [MASK]", found)]))
    done = regard("fill", "the [MASK]", "-m", folder / "masked")
    assert done.out == "\\n 0.5000\ta\\tb 0.2500\t\\\\ 0.1250\n"


def test_the_wrong_verb(regard, folder):
    refused = regard.refused
    assert refused("classify", "red", "-m", folder / "language").endswith(
        "language: is a language model and cannot classify; use `generate` or `embed`"
    )
    assert refused("fill", "red", "-m", folder / "classification").endswith("cannot fill; use `classify` or `embed`")
    assert refused("generate", "red", "-m", folder / "masked").endswith("cannot generate; use `fill` or `embed`")
    assert regard("generate", "red", "-m", folder / "masked").out == ""  # not the prompt


@pytest.mark.parametrize(
    ("verb", "kind"),
    [("classify", "classification"), ("fill", "masked"), ("embed", "language"), ("generate", "language")],
)
def test_the_bar_counts_every_line(verb, kind, regard, folder, monkeypatch):
    Path("in.txt").write_text("red [MASK]\n\n[MASK] dog\n")
    told: list[int] = []
    monkeypatch.setattr(Lines, "_done", lambda lines, count: told.append(count))
    assert regard(verb, "-m", folder / kind, "-f", "in.txt").code == 0
    assert sum(told) == 3


def test_help_is_instant(regard):
    for verb in ("translate", "generate", "classify", "fill", "embed", "evaluate"):
        text = " ".join(regard(verb, "-h").out.split())
        assert "-m, --model RUN" in text
        assert "--device" in text
        assert "--batch-tokens N" in text
        assert f"regard {verb} " in text  # an example
        assert "<" not in text  # the name of a type


@pytest.mark.parametrize(
    ("verb", "kind", "text"),
    [("classify", "classification", "red"), ("fill", "masked", "[MASK] red"), ("embed", "language", "red")],
)
def test_precision(verb, kind, text, regard, folder):
    asked = [verb, text, "-m", folder / kind, "--device", "cpu", "--precision"]
    plain, small = (regard(*asked, precision).out for precision in ("float32", "int8"))
    assert plain
    assert small
    assert plain != small
    assert regard.refused(*asked, "bfloat16").startswith("bfloat16 is slow on the CPU; use --precision int8 or")
