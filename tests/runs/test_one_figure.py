"""The same run and files have one BLEU, and it is said how it was measured."""

import json
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

import regard as package
from regard.training import start
from regard.training.result import read_result

from ..cli.command import Command
from ..tasks.corpora import sentences, write
from ..training.tiny import shrunk, training


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Train a tiny translator; return its run, what was printed, and other files."""
    folder = tmp_path_factory.mktemp("runs")
    lines, others = sentences(100, seed=1), sentences(12, seed=2)
    names = ("a.txt", lines), ("b.txt", lines[::-1]), ("c.txt", others), ("d.txt", others[::-1])
    source, target, *files = (write(folder / name, texts) for name, texts in names)
    said = StringIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REGARD_CACHE", str(folder / "cache"))
        patch.setattr(start, "finish", lambda *arguments: None)  # drawing takes longer than learning
        run = package.train(
            {"kind": "translation", "source": [source], "target": [target]},
            *shrunk("translator"),
            *training(4, tokens=512, valid_rows=3),
            "tokenizer.kind=word",
            recipe="translator",
            run=folder / "run",
            device="cpu",
            console=Console(file=said, width=200),
        )
        yield run, said.getvalue(), files


def test_the_command_load_and_train_agree(trained, monkeypatch, capsys):
    run, _, files = trained
    wanted = package.load(run, "cpu").evaluate(*files)
    assert dict(run.evaluate(*files, device="cpu")) == dict(wanted)
    done = Command(monkeypatch, capsys)("evaluate", *files, "-m", run.folder, "--device", "cpu", "--json")
    found = json.loads(done.out)
    assert found["metrics"] == pytest.approx(dict(wanted))
    assert (found["search"], found["rows"]) == (wanted.search, wanted.rows) == ("beam 5", 12)
    assert "(beam 5, 12 pairs)" in repr(wanted)
    assert "(greedy, 12 pairs)" in repr(run.evaluate(*files, beam=1, device="cpu"))


def test_a_finished_run_keeps_what_its_best_weights_measure(trained):
    run, _, _ = trained
    kept, again = read_result(run.folder), run.evaluate(device="cpu")
    assert (kept.step, kept.weights) == (4, "step 4")
    assert dict(kept.evaluation) == pytest.approx(dict(again))
    assert (kept.evaluation.translations, kept.evaluation.method) == (again.translations, "beam 5, 5 pairs")
    assert kept.evaluation.signatures == again.signatures


def test_data_that_changed_since_the_training_is_cautioned_of(trained):
    """Other rows are held out of files with a row more, and the model learned from most of them."""
    run, _, files = trained
    sides = [Path(name) for name in (*run.config.task.source, *run.config.task.target)]
    before = [side.read_text() for side in sides]
    assert run.evaluate(device="cpu").cautions == []
    for side, text in zip(sides, before, strict=True):
        side.write_text(text + "one more\n")
    [caution] = run.evaluate(device="cpu").cautions
    rule = "the data of this run has changed since its training: it may have learned from rows that are measured"
    assert caution == f"{rule}; restore the files, or name files to measure it on"
    assert run.evaluate(*files, device="cpu").cautions == []
    for side, text in zip(sides, before, strict=True):
        side.write_text(text)
    assert run.evaluate(device="cpu").cautions == []


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"step": 1, "weights": "", "metrics": {}, "other": 2}'])
def test_a_damaged_result_is_one_line(tmp_path, text):
    (tmp_path / "evaluation.json").write_text(text)
    with pytest.raises(package.RegardError, match=r"evaluation.json: not the result of a run; remove it, and measure"):
        read_result(tmp_path)


def test_a_run_that_is_not_finished_has_no_result(tmp_path):
    assert read_result(tmp_path) is None


def test_training_says_how_it_measured_and_what_to_do_next(trained):
    run, said, _ = trained
    lines = [line for line in said.splitlines() if not line.startswith("NOT BETTER")]  # than a simple model
    validation = next(line for line in lines if line.startswith("valid"))
    assert validation.endswith("(greedy, 3 of 5 pairs)")
    end = lines.index(f"done: {run.folder}")
    assert lines[end + 1].startswith("weights of step 4:  loss ")
    assert lines[end + 1].endswith("(beam 5, 5 pairs)")
    assert lines[end + 2].startswith("  regard translate ")
    assert lines[end + 3] == f"  regard evaluate -m {run.folder}"
    assert lines[end + 4] == f"  regard look -m {run.folder}"
    assert lines[end + 5] == f"  open {run.folder}/report.html"
    assert f"bleu {run.evaluate(device='cpu')['bleu']:#.3g}"[:9] in lines[end + 1]
    assert Path(run.folder).is_dir()
