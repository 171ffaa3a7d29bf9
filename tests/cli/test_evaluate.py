"""`regard evaluate` on trained runs: on their own validation data, on other files, and on bad ones."""

import json
import math
import re
from pathlib import Path

import pytest
import sacrebleu
from rich.console import Console

import regard as package
from regard.tasks.language import Language
from regard.training import start
from regard.use import box

from ..tasks.corpora import sentences, write
from .command import Command

BRIEF = ["train.steps=2", "train.validate_every=2", "train.checkpoint_every=2", "train.tokens=64", "train.average=0"]
TINY = ["model.dim=16", "model.depth=1", "model.layers.block.mixer.heads.heads=2"]
TINY += ["model.layers.block.feedforward.hidden=24"]
PAIRS = ["model.dim=16", "model.encoder.depth=1", "model.decoder.depth=1"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> Path:
    """A folder with files, and a run of each kind."""
    folder = tmp_path_factory.mktemp("runs")
    text = write(folder / "a.txt", sentences(120))
    other = write(folder / "b.txt", sentences(120, seed=3))
    rows = [f"{line}\t{'cats' if 'cat' in line else 'none'}" for line in sentences(80)]
    table = write(folder / "a.tsv", ["text\tlabel", *rows])
    tasks = {
        "language": ({"kind": "language", "train": [text], "window": 16}, TINY),
        "classification": ({"kind": "classification", "train": [table]}, TINY),
        "translation": ({"kind": "translation", "source": [text], "target": [other]}, PAIRS),
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REGARD_CACHE", str(folder / "cache"))
        patch.setattr(start, "finish", lambda *arguments: None)  # drawing takes longer than learning
        for name, (task, changes) in tasks.items():
            package.train(task, *BRIEF, *changes, run=folder / name, console=Console(quiet=True))
    return folder


@pytest.fixture
def regard(monkeypatch, capsys, runs) -> Command:
    monkeypatch.setenv("REGARD_CACHE", str(runs / "cache"))
    monkeypatch.chdir(runs)
    return Command(monkeypatch, capsys)


def values(regard: Command, *arguments: object) -> dict:
    done = regard("evaluate", "--json", "-m", *arguments)
    assert (done.code, done.err) == (0, "")
    return json.loads(done.out)


def test_too_little_memory_is_one_line(regard, monkeypatch):
    def fail(task: Language, model: object, rows: int | None = None) -> dict[str, float]:
        raise RuntimeError("[enforce fail] can't allocate memory: you tried to allocate 6400000000 bytes.")

    monkeypatch.setattr(Language, "measure", fail)
    rule = "not enough memory for 6.4 GB at once; try a smaller --batch-tokens, fewer beams, or a smaller model"
    assert regard.refused("evaluate", "-m", "language") == rule


def test_numbers_that_json_does_not_have_are_null(regard, monkeypatch):
    monkeypatch.setattr(Language, "measure", lambda *given: {"loss": math.nan, "perplexity": math.inf, "accuracy": 0.5})
    said = regard("evaluate", "-m", "language", "--json").out
    assert json.loads(said, parse_constant=pytest.fail)["metrics"] == {
        "loss": None,
        "perplexity": None,
        "accuracy": 0.5,
    }


def test_forced_colours_do_not_start_a_spinner_in_a_pipe(regard, monkeypatch):
    """A spinner would hide the cursor, and write the same line again and again."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.delenv("NO_COLOR", raising=False)
    done = regard("evaluate", "-m", "classification")
    assert "\x1b[1;36maccuracy" in done.out
    assert "reading the data" not in done.out
    assert not re.search(r"\x1b\[[\d;?]*[^\d;?m]|\r", done.out)  # of all controls, only those of colours


@pytest.mark.parametrize(
    ("name", "metrics"),
    [
        ("language", {"loss", "perplexity", "word_perplexity", "bits_per_byte"}),
        ("classification", {"loss", "accuracy", "f1"}),
        ("translation", {"loss", "perplexity", "bleu", "bleu_lowercase", "chrf"}),
    ],
)
def test_a_run_is_measured_on_its_own_validation_data(regard, name, metrics):
    found = values(regard, name)
    assert set(found["metrics"]) == metrics
    last = [record for record in package.open_run(name).metrics if record["kind"] == "valid"][-1]
    assert found["metrics"]["loss"] == pytest.approx(last["loss"], rel=1e-5)
    shown = regard("evaluate", "-m", name)
    assert shown.code == 0
    assert all(metric in shown.out for metric in metrics)


def test_other_files(regard):
    assert values(regard, "language", "b.txt")["metrics"]["loss"] != values(regard, "language")["metrics"]["loss"]
    assert values(regard, "classification", "a.tsv")["data"]["validation texts"] == 80
    found = values(regard, "translation", "a.txt", "b.txt")
    assert found["data"]["validation pairs"] == 120
    assert f"version:{sacrebleu.__version__}" in found["signatures"]["bleu"]


def test_a_translator_is_measured_as_it_translates(regard, monkeypatch):
    model = package.load("translation", device="cpu")
    found = values(regard, "translation", "a.txt", "b.txt", "--beam", 2, "--batch-tokens", 300)["metrics"]
    assert found == pytest.approx(model.evaluate("a.txt", "b.txt", beam=2))
    monkeypatch.setattr(box, "FOLDER", Path("nowhere"))
    assert regard.refused("evaluate").startswith("name a model: -m RUN, the folder that `regard train` printed, or")


def test_what_was_left_out_is_reported(regard, tmp_path):
    blank = write(tmp_path / "blank.tsv", ["text\tlabel", "red dog\tnone", "\tnone"])
    assert "1 blank text skipped" in regard("evaluate", "-m", "classification", blank).out
    assert values(regard, "classification", blank)["skipped"] == [f"1 blank text skipped (first: {blank}:3)"]


def test_files_that_do_not_fit(regard, tmp_path):
    short = write(tmp_path / "short.txt", ["red"])
    refused = regard.refused
    assert refused("evaluate", "-m", "language", short).startswith(f"{short}: 6 tokens for measuring are too few for")
    assert refused("evaluate", "-m", "language", "missing.txt").startswith("missing.txt: ")
    assert refused("evaluate", "-m", "classification", "a.txt").startswith("a.txt: is not a table; ")
    new = write(tmp_path / "new.tsv", ["text\tlabel", "red dog\tdogs"])
    assert "none of its labels (dogs) occurs in the training data (cats, none); choose the column" in refused(
        "evaluate", "-m", "classification", new
    )
    blank = write(tmp_path / "blank.tsv", ["text\tlabel", "red dog\t"])
    assert refused("evaluate", "-m", "classification", blank).startswith("no labelled text is left to validate on; ")
    assert refused("evaluate", "-m", "translation", "a.txt").startswith("a.txt: holds only one side; ")
    assert refused("evaluate", "-m", "translation", "a.txt", "b.txt", "b.txt") == (
        "a translator is measured on a source file and a target file, or on tables of pairs"
    )
    assert "must match line by line" in refused("evaluate", "-m", "translation", "a.txt", short)
    for verb in ("evaluate", "ablate"):
        assert refused(verb, "-m", "language", "classification") == (
            "classification: is a run, not data to measure on; name it as the model: -m classification"
        )
    Path(tmp_path / "bad.txt").write_bytes(b"fine\n\xff\n")
    assert refused("evaluate", "-m", "language", tmp_path / "bad.txt").startswith(
        f"{tmp_path}/bad.txt:2: not valid UTF-8"
    )


def test_a_file_whose_name_looks_like_markup_is_printed_as_it_is(regard, tmp_path):
    odd = write(tmp_path / "[bold].tsv", ["text\tlabel", "two red dogs\tnone"])
    assert "[bold].tsv: with header" in regard("evaluate", "-m", "classification", odd).out


def test_a_table_is_read_as_in_training(regard, tmp_path):
    rows = [("none", "1", "two red dogs"), ("cats", "2", "one blue cat")]
    moved = write(tmp_path / "moved.tsv", ["label\tid\ttext", *map("\t".join, rows)])
    said = f"{moved}: with header, text = column 3 (text), label = column 1 (label)"
    assert values(regard, "classification", moved)["read"] == [said]
    assert said in regard("evaluate", "-m", "classification", moved).out
    other = write(tmp_path / "other.tsv", ["topic\tid\tbody", *map("\t".join, rows)])
    found = regard.refused("evaluate", "-m", "classification", other)
    assert found.startswith(f"{other}: has no column 'text' for the text (task.text); ")
    found = values(regard, "classification", other, "task.text=body", "task.label=1")
    assert found["read"] == [f"{other}: with header, text = column 3 (body), label = column 1 (topic)"]
    assert found["metrics"] == values(regard, "classification", moved)["metrics"]
    assert package.load("classification", "cpu").evaluate(moved)["loss"] == pytest.approx(found["metrics"]["loss"])


def test_only_columns_can_change_where_a_model_is_measured(regard):
    assert regard.refused("evaluate", "-m", "language", "b.txt", "task.window=3") == (
        "'task.window=3': where a model is measured, only the columns can change: task.column, task.header"
    )
    assert "name the files to measure the model on" in regard.refused("evaluate", "-m", "language", "task.column=x")


def test_precision(regard):
    plain, small = (
        values(regard, "language", "--device", "cpu", "--precision", precision)["metrics"]["loss"]
        for precision in ("float32", "int8")
    )
    assert 0 < abs(small - plain) < 0.01
    assert regard.refused("evaluate", "-m", "language", "--precision", "int9").startswith(
        "unknown precision 'int9'; did you mean 'int8'?"
    )


def test_folders_that_are_not_runs(regard, tmp_path):
    missing = "run: there is no recipe.toml; give the folder that `regard train` printed, a name of `regard models`, or"
    assert missing in regard.refused("evaluate", "-m", tmp_path)
    (tmp_path / "recipe.toml").write_bytes((Path("language") / "recipe.toml").read_bytes())
    (tmp_path / "tokenizer.json").write_bytes((Path("language") / "tokenizer.json").read_bytes())
    assert "this run has no best weights yet" in regard.refused("evaluate", "-m", tmp_path)
    text = (tmp_path / "recipe.toml").read_text().replace("window", "widnow")
    (tmp_path / "recipe.toml").write_text(text)
    wrong = f"{tmp_path / 'recipe.toml'}: task.widnow: unknown key; did you mean 'window'?"
    assert regard.refused("evaluate", "-m", tmp_path).startswith(wrong)


def test_the_help_says_what_is_measured_without_files(regard):
    assert "the validation data of the run" in " ".join(regard("evaluate", "-h").out.split())


def test_signatures_are_whole_on_a_narrow_terminal(regard, monkeypatch):
    signature = values(regard, "translation")["signatures"]["bleu"]
    monkeypatch.setenv("COLUMNS", "50")
    shown = regard("evaluate", "-m", "translation").out
    assert signature in "".join(line[22:].strip() for line in shown.splitlines())
