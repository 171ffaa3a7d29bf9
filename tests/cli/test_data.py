"""`regard data`: the list, a data set from a folder, from a server, and the progress bar on a terminal."""

import hashlib
import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from regard.cli.data import data_command
from regard.cli.train import train_command
from regard.data.known_datasets import DATASETS, DatasetFile, KnownDataset
from regard.errors import InputError, RegardError
from tests.data.server import serve
from tests.processes import patient

CONTENT = b"to be or not to be\n" * 100

app = typer.Typer()
app.command()(data_command)


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("no_proxy", "*")


@pytest.fixture
def know(monkeypatch):
    def add(url: str | None = None) -> None:
        file = DatasetFile("input.txt", len(CONTENT), hashlib.sha256(CONTENT).hexdigest())
        known = KnownDataset("a play", "free", "a shelf", "regard train gpt2 {to}/input.txt", (file,), url)
        monkeypatch.setitem(DATASETS, "play", known)

    return add


def regard_data(*arguments: str) -> str:
    done = CliRunner().invoke(app, arguments)
    if done.exception is not None:
        raise done.exception
    return done.stdout


def test_the_list_has_every_set(monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    listing = regard_data()
    for name, known in DATASETS.items():
        assert re.search(
            rf"^{name} +{re.escape(known.about)} +[\d.]+ [kM]B +{re.escape(known.licence)} *$", listing, re.M
        )
    rows = json.loads(regard_data("--json"))
    assert [row["name"] for row in rows] == list(DATASETS)
    assert rows[0] == {
        "name": "multi30k",
        "about": DATASETS["multi30k"].about,
        "size": 6_441_127,
        "licence": DATASETS["multi30k"].licence,
        "source": DATASETS["multi30k"].source,
        "download": True,
    }
    assert [row["name"] for row in rows if not row["download"]] == [
        "iwslt15-envi",
        "tatoeba",
        "trec",
        "cb513",
        "structures",
        "ethucy",
    ]


@pytest.mark.parametrize("width", [40, 60, 79])
def test_the_list_on_a_narrow_terminal(monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    listing = regard_data()
    assert all(len(line) <= width for line in listing.splitlines())
    words = " ".join(listing.split())
    for name, known in DATASETS.items():
        assert re.search(rf"{name} [\d.]+ [kM]B {re.escape(known.about)} licence: {re.escape(known.licence)}", words)
    assert (
        "iwslt15-envi, tatoeba, trec, cb513, structures, ethucy cannot be downloaded, only read with --from." in words
    )


def test_from_a_folder(know):
    know()
    Path("shelf").mkdir()
    Path("shelf/input.txt").write_bytes(CONTENT)
    printed = regard_data("play", "--from", "shelf")
    assert printed == (
        "data/play/input.txt\n\nsource:  a shelf\nlicence: free\ntrain:   regard train gpt2 data/play/input.txt\n"
    )
    assert Path("data/play/input.txt").read_bytes() == CONTENT


def test_another_folder_and_json(know):
    know()
    Path("input.txt").write_bytes(CONTENT)
    printed = json.loads(regard_data("play", "--from", ".", "--to", "my plays", "--json"))
    assert printed == {
        "name": "play",
        "files": ["my plays/input.txt"],
        "train": "regard train gpt2 'my plays'/input.txt",
    }
    assert Path("my plays/input.txt").read_bytes() == CONTENT


def test_from_a_server(know):
    with serve({"/input.txt": CONTENT}) as served:
        know(served.address + "/{name}")
        assert regard_data("play").startswith("data/play/input.txt\n")
    assert Path("data/play/input.txt").read_bytes() == CONTENT


@pytest.mark.parametrize("name", DATASETS)
def test_the_command_is_one_that_train_takes(name):
    """Parse the words as `regard train` does, without running it."""
    _, _, task, *words = DATASETS[name].train.format(to="data").split()
    verbs = typer.main.get_command(train_command)
    assert task in verbs.commands
    verbs.commands[task].make_context(task, words)


def test_mistakes(know):
    know()
    with pytest.raises(InputError, match="^no known data set has the name 'plai'; did you mean 'play'"):
        regard_data("plai")
    with pytest.raises(RegardError, match="^play: cannot be downloaded: .* with --from$"):
        regard_data("play")
    for option in ("--from", "--to"):
        with pytest.raises(InputError, match="^--from and --to need the NAME of a data set; `regard data`"):
            regard_data(option, ".")


def test_a_bar_on_a_terminal_and_paths_on_standard_output():
    script = """
import sys
from regard.cli.data import data_command
from regard.cli.train import train_command
from regard.data.known_datasets import DATASETS, DatasetFile, KnownDataset
DATASETS["play"] = KnownDataset("", "", "", "", (DatasetFile("input.txt", int(sys.argv[1]), sys.argv[2]),), sys.argv[3])
data_command("play")
"""
    with serve({"/input.txt": CONTENT}) as served:
        arguments = [str(len(CONTENT)), hashlib.sha256(CONTENT).hexdigest(), served.address + "/{name}"]
        leader, follower = pty.openpty()
        environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "80", "REGARD_CHECK_SHAPES": "0"}
        command = [sys.executable, "-c", script, *arguments]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=follower, env=environment)
        os.close(follower)
        shown = b""
        with patient(process):
            while True:
                try:
                    block = os.read(leader, 4096)
                except OSError:  # Linux says so at the end
                    break
                if not block:
                    break
                shown += block
            os.close(leader)
            assert process.stdout is not None
            printed = process.stdout.read()
            process.stdout.close()
            assert process.wait() == 0, shown.decode()
    assert printed.startswith(b"data/play/input.txt\n")
    assert b"input.txt" in shown
    assert b"1.9/1.9 kB" in shown
