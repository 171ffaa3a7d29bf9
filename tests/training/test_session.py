"""What a run records of its sessions, and what its report says was run."""

import hashlib
import json
import os
import platform
import sys
from pathlib import Path

import pytest
import torch

import regard
from regard.errors import RegardError
from regard.runs.layout import SESSIONS
from regard.runs.records import read_sessions
from regard.training import report, session, start
from regard.training.report_facts import run_facts
from regard.training.session import command, describe_file, note_session, task_files

from .tiny import ALONE, make_trainer, planned


@pytest.fixture(autouse=True)
def _cache(tmp_path, monkeypatch):
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))


def test_files_have_checksums_and_folders_a_checksum_of_their_listing(tmp_path, monkeypatch):
    (tmp_path / "a.txt").write_bytes(b"abc")
    found = describe_file(tmp_path / "a.txt")
    assert found == {"path": str(tmp_path / "a.txt"), "bytes": 3, "sha256": hashlib.sha256(b"abc").hexdigest()}
    first = describe_file(tmp_path)
    assert (first["files"], first["bytes"]) == (1, 3)
    (tmp_path / "b.txt").write_bytes(b"d")
    assert describe_file(tmp_path)["listing"] != first["listing"]
    monkeypatch.setattr(session, "LARGEST", 2)
    assert describe_file(tmp_path / "a.txt")["sha256"] is None
    assert describe_file(tmp_path / "missing")["sha256"] is None


def test_the_command_is_what_was_typed(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["/usr/lib/regard/__main__.py", "train", "language", "my text.txt"])
    assert command() == "regard train language 'my text.txt'"
    monkeypatch.setattr(sys, "argv", ["/home/me/sweep.py", "--fast"])
    assert command() == "sweep.py --fast"


def test_sessions_add_up_even_after_a_cut_line(tmp_path):
    note_session(tmp_path, 0, ALONE, [])
    with (tmp_path / "sessions.jsonl").open("a") as file:
        file.write('{"step": 3, "ti')
    note_session(tmp_path, 7, ALONE, [])
    assert [record["step"] for record in read_sessions(tmp_path)] == [0, 7]


@pytest.mark.parametrize(
    "change", [{"command": 1.5}, {"files": 3}, {"files": [3]}, {"files": [{"path": 1, "bytes": 2}]}, {"time": None}]
)
def test_a_damaged_session_is_one_line(tmp_path, change):
    note_session(tmp_path, 0, ALONE, [])
    record = json.loads((tmp_path / SESSIONS).read_text())
    (tmp_path / SESSIONS).write_text(json.dumps(record | change) + "\n")
    with pytest.raises(RegardError, match="sessions.jsonl:1: not a session of a run; remove the line"):
        read_sessions(tmp_path)


def test_the_report_says_what_was_run(tmp_path, monkeypatch):
    monkeypatch.setattr(report, "_picture", lambda records, look, columns: b"")
    monkeypatch.setattr(sys, "argv", ["regard", "train", "language", "text.txt"])
    found = planned("language", tmp_path, "tokenizer.kind=char", "train.steps=4")
    trainer, _ = make_trainer(found, tmp_path / "run")
    files = task_files(found.config.task)
    note_session(tmp_path / "run", 0, ALONE, files)
    start.finish(trainer.run, trainer.task, trainer.train(), trainer.best.weights)
    page = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    cards = page[page.index('class="cards"') : page.index("<h2>")]
    assert "Validation loss" in cards
    assert "Bits per byte" in cards
    assert "Word perplexity" not in cards  # of characters
    assert "word_perplexity" in page
    for text in (
        "Weights of step 4, measured on the validation data.",
        "regard train language text.txt",
        f"regard {regard.__version__}, torch {torch.__version__}, python {platform.python_version()}",
        f"{os.cpu_count()} cores",
        f"sha256 {hashlib.sha256(Path(files[0]).read_bytes()).hexdigest()}",
        trainer.task.tokenizer.fingerprint(),
        trainer.task.fingerprint(),
        "<th>depth</th>",
        "<th>layers.block.mixer.heads.heads</th>",
        '<th>kind</th><td dir="auto">char</td>',
        "<th>optimizer</th>",
    ):
        assert text in page, text


def test_the_report_of_a_translator_quotes_the_signatures_and_the_search(tmp_path, monkeypatch):
    monkeypatch.setattr(report, "_picture", lambda records, look, columns: b"")
    trainer, _ = make_trainer(planned("translation", tmp_path, "train.steps=4", "train.valid_rows=2"), tmp_path / "run")
    result = trainer.train()
    start.finish(trainer.run, trainer.task, result, trainer.best.weights)
    page = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert f"Weights of step 4, measured on the validation data, beam 5, {result.rows} pairs." in page
    assert f"Validations while training: greedy, 2 of {result.rows} pairs." in page
    assert f'<th>signature of bleu</th><td dir="auto">{result.signatures["bleu"]}</td>' in page
    first = page.index('class="card"')
    assert page.index("BLEU", first) < page.index("Validation loss", first)


def test_a_resumed_run_lists_its_sessions(tmp_path):
    for step, seconds in ((0, 100.0), (6, 500.0)):
        note_session(tmp_path, step, ALONE, [])
        lines = (tmp_path / "sessions.jsonl").read_text().splitlines()
        stamp = lines[-1].split('"time": ')[1].split(",")[0]
        lines[-1] = lines[-1].replace(stamp, str(seconds))
        (tmp_path / "sessions.jsonl").write_text("\n".join(lines) + "\n")
    times = {"train": 110.0, "valid": 190.0}
    records = [f'{{"step": 6, "kind": "{kind}", "time": {time}}}' for kind, time in times.items()]
    (tmp_path / "metrics.jsonl").write_text("\n".join([*records, '{"step": 9, "kind": "train", "time": 530.0}', ""]))
    found = [text for name, text in run_facts(tmp_path) if name == "from step"]
    assert [text.split(",")[0] for text in found] == ["0", "6"]
    assert [text.split(", ")[-1] for text in found] == ["2 min", "30 s"]
