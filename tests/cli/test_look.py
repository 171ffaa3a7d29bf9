"""`regard look`: files without a server, and the server as a real process."""

import base64
import csv
import http.client
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from urllib.error import HTTPError
from urllib.request import urlopen

import numpy as np
import pytest
from PIL import Image

from regard.quantity import short_size
from regard.use import box
from regard.viewer import export, html
from regard.viewer.recording import Recording, unpack_recordings
from regard.viewer.server import listen

from ..processes import PATIENCE, patient
from ..tasks.corpora import sentences
from ..use.made import image, run
from ..viewer.fake import put_page, put_sample
from .command import Command

TEXT = sentences(1)[0]


@pytest.fixture
def regard(monkeypatch, capsys, tmp_path) -> Command:
    monkeypatch.chdir(tmp_path)
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"):
        monkeypatch.delenv(name, raising=False)
    put_page(tmp_path / "page", monkeypatch)
    return Command(monkeypatch, capsys)


@pytest.fixture
def bundle(tmp_path, monkeypatch) -> dict[str, Recording]:
    return put_sample(tmp_path / "sample", monkeypatch)


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    for kind in ("translation", "language", "vision"):
        run(kind, folder / kind)
    return folder


def carried(path: str | Path) -> dict[str, Recording]:
    """The recordings inside a page."""
    _, _, after = Path(path).read_text(encoding="utf-8").partition(f'id="{html.RECORDINGS}">')
    return unpack_recordings(base64.b64decode(after.partition("<")[0], validate=True))


def numbers(path: str | Path) -> tuple[list[str], list[str], np.ndarray]:
    """The words and weights of a table."""
    with Path(path).open(newline="", encoding="utf-8") as file:
        first, *rows = csv.reader(file)
    return [row[0] for row in rows], first[1:], np.array([row[1:] for row in rows], float)


# --- files -----------------------------------------------------------------------------------------------------------


def test_all_files_of_a_model_at_once(regard, runs):
    files = ["--export", "p.html", "--png", "p.png", "--svg", "p.svg", "--csv", "p.csv"]
    done = regard("look", TEXT, "-m", runs / "translation", *files)
    assert (done.code, done.err) == (0, "")
    names = ("p.html", "p.png", "p.svg", "p.csv")
    assert done.out.splitlines() == [f"{name} ({short_size(Path(name).stat().st_size)})" for name in names]
    (one,) = carried("p.html").values()
    said = one.manifest()
    assert (said["title"], said["text"]) == ("translation", TEXT)
    begin = said["begin"]
    (chosen,) = (each for each in said["attentions"] if each["id"] == begin["attention"])
    rows, columns, weights = numbers("p.csv")
    assert rows == [token["text"] for token in said["sequences"][chosen["queries"]]]
    assert columns == [token["text"] for token in said["sequences"][chosen["keys"]]]
    for query, row in enumerate(weights):
        stored_row = one.blob(f"row/{chosen['id']}/{begin['head']}/{query}.f32")
        assert np.array_equal(row.astype("<f4"), np.frombuffer(stored_row, "<f4")[-len(columns) :])
    with Image.open("p.png") as picture:
        assert picture.format == "PNG"
    assert f"translation · L{chosen['layer']}.H{begin['head'] + 1}" in Path("p.svg").read_text(encoding="utf-8")


def test_a_run_that_is_read_as_a_text_is_named(regard, runs):
    done = regard("look", runs / "language", "-m", runs / "translation", "--csv", "p.csv", "--target", "a dog")
    assert done.err == f"regard: {runs}/language is read as a text; -m {runs}/language uses the model in this folder\n"


def test_a_chosen_head(regard, runs):
    done = regard("look", TEXT, "-m", runs / "translation", "--attention", "cross.2", "--head", 3, "--svg", "p.svg")
    assert done.code == 0
    assert "translation · L2.H3 · cross" in Path("p.svg").read_text(encoding="utf-8")


def test_a_page_begins_with_a_chosen_head(regard, runs):
    chosen = ["--attention", "cross.2", "--head", 3]
    assert regard("look", TEXT, "-m", runs / "translation", *chosen, "--export", "p.html").code == 0
    (one,) = carried("p.html").values()
    begin = one.manifest()["begin"]
    assert (begin["attention"], begin["head"]) == ("cross.2", 2)


def test_a_target_and_a_number_of_tokens(regard, runs):
    target = " ".join(reversed(TEXT.split()))
    assert regard("look", TEXT, "-m", runs / "translation", "--target", target, "--export", "p.html").code == 0
    tokens = carried("p.html")["1"].manifest()["sequences"]["target"]
    assert [token["text"].strip() for token in tokens if not token["special"]] == target.split()
    lengths = []
    for number in (0, 2):
        assert regard("look", TEXT, "-m", runs / "language", "--tokens", number, "--export", "p.html").code == 0
        lengths.append(len(carried("p.html")["1"].manifest()["sequences"]["tokens"]))
    assert 0 < lengths[1] - lengths[0] <= 2


def test_an_image(regard, runs):
    image(Path("a.png"))
    done = regard("look", "a.png", "-m", runs / "vision", "--export", "p.html", "--png", "p.png")
    assert (done.code, done.err) == (0, "")
    (one,) = carried("p.html").values()
    assert one.manifest()["model"] == "a classifier of images"
    assert one.blob("image.png").startswith(b"\x89PNG")


def test_several_models_in_one_page(regard, runs):
    shutil.copytree(runs / "language", "other")
    done = regard("look", TEXT, "-m", runs / "language", "-m", "other", "--export", "p.html")
    assert done.code == 0
    assert [one.manifest()["title"] for one in carried("p.html").values()] == ["language", "other"]


def test_chosen_layers(regard, runs):
    assert regard("look", TEXT, "-m", runs / "language", "--layers", "2", "--export", "p.html").code == 0
    assert [one["id"] for one in carried("p.html")["1"].manifest()["attentions"]] == ["self.2"]


def test_without_a_model_the_bundled_sample_is_written(regard, bundle):
    done = regard("look", "--export", "p.html", "--csv", "p.csv")
    assert (done.code, done.err) == (0, "")
    found = carried("p.html")
    assert {id: one.manifest() for id, one in found.items()} == {id: one.manifest() for id, one in bundle.items()}
    assert numbers("p.csv")[1] == ["ein", "Hund"]


def test_an_existing_file_is_replaced_completely_or_stays(regard, bundle, monkeypatch):
    Path("p.html").write_text("old")
    Path("p.csv").write_text("old")
    regard.refused("look", "--export", "p.html", "--csv", "p.csv", "--attention", "self.1")
    assert (Path("p.html").read_text(), Path("p.csv").read_text()) == ("old", "old")
    assert regard("look", "--export", "p.html", "--csv", "p.csv").code == 0
    assert carried("p.html")
    assert not list(Path().glob("*.part"))


def test_what_was_left_out_is_printed(regard, runs, monkeypatch):
    assert regard("look", TEXT, "-m", runs / "language", "--export", "p.html").code == 0
    monkeypatch.setattr(export, "LARGEST", Path("p.html").stat().st_size * 3 // 4 - 2000)
    done = regard("look", TEXT, "-m", runs / "language", "--export", "p.html")
    assert done.code == 0
    assert done.err.startswith("regard: To keep this file below 20 MB, the scores of the Next view")
    assert done.err.count("\n") == 1
    assert "the scores of the Next view" in carried("p.html")["1"].manifest()["notes"][-1]


# --- mistakes --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["a text"], "name a model: -m RUN, the folder that `regard train` printed"),
        (["a text", "--export", "p.html"], "name a model: -m RUN, the folder that"),
        (["a text", "-m", "nowhere"], "nowhere: no such folder; give the folder that `regard train` printed"),
        (["a text", "-m", "page", "--export", "p.html"], "page: is not the folder of a run: there is no recipe.toml"),
        (["-m", "{runs}/language", "--png", "p.png"], "language: has no snapshots of its training"),
        (["-m", "{runs}/language", "-m", "{runs}/language"], "language: was given twice"),
        (["--target", "a dog"], "--target and --tokens need a text for the model to read"),
        (["--tokens", "3"], "--target and --tokens need a text for the model to read"),
        (["--layers", "1"], "--layers chooses what an exported page contains; add --export NAME.html"),
        (["--layers", "x", "--export", "p.html"], "--layers x: 'x' is not a layer; write layers as 1,3-4"),
        (["--layers", "7", "--export", "p.html"], "layer 7 has no attention to show; choose from the layers 1-3"),
        (["--layers", "1,3-9", "--export", "p.html"], "layer 4 has no attention to show; choose from the layers 1-3"),
        (["--export", "p.png"], "p.png: the name of this file must end in .html"),
        (["--png", "p.svg"], "p.svg: the name of this file must end in .png"),
        (["--svg", "p"], "p: the name of this file must end in .svg"),
        (["--csv", "no/p.csv"], "no/p.csv: no folder no; create it first"),
        (["--png", "p.png", "--attention", "cros.1"], "attention cros.1: no such attention; did you mean"),
        (["--png", "p.png", "--head", "3"], "head 3: cross.2 has heads 1 to 2"),
        (["", "-m", "{runs}/translation", "--export", "p.html"], "the text is empty"),
        (["a.png", "-m", "{runs}/vision", "--export", "p.html"], "a.png: "),
        (["x", "-m", "{runs}/language", "-m", "{runs}/vision", "--csv", "p.csv"], "a picture or a table shows one"),
        (["x", "-m", "{runs}/language", "--target", "y", "--csv", "p.csv"], "not a translator; leave the target out"),
        (["x", "-m", "{runs}/translation", "--tokens", "4", "--csv", "p.csv"], "leave --tokens 4 out"),
        (["x", "-m", "{runs}/language", "--device", "gpu", "--csv", "p.csv"], "gpu"),
    ],
)  # fmt: skip
def test_a_mistake_is_one_line(regard, runs, bundle, arguments, message, monkeypatch):
    monkeypatch.setattr(box, "FOLDER", Path("nowhere"))
    said = regard.refused("look", *(argument.format(runs=runs) for argument in arguments))
    assert message in said
    assert not list(Path().glob("p*.*"))


def test_a_page_that_is_too_large(regard, bundle, monkeypatch):
    monkeypatch.setattr(export, "LARGEST", 10)
    said = regard.refused("look", "--export", "p.html")
    assert said.startswith(
        "the page would have 2 MB, and the limit is 20 MB; choose some of the layers 1-3, for example 1 (--layers"
    )


def test_a_disk_that_is_full(regard, bundle, monkeypatch):
    def full(path: Path, data: bytes) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    assert "p.html: cannot be written: No space left on device" in regard.refused("look", "--export", "p.html")


def test_a_page_that_was_not_built(regard, bundle):
    Path("page/page.js").unlink()
    assert "page.js: the page has not been built" in regard.refused("look", "--export", "p.html")
    assert regard("look", "--csv", "p.csv").code == 0


# --- the server ------------------------------------------------------------------------------------------------------

PROGRAM = """
import sys
from pathlib import Path
from regard.quantity import short_size
from regard.use import box
from regard.viewer import html, sample
html.FOLDER, sample.FOLDER, box.FOLDER = Path("page").absolute(), Path("sample").absolute(), Path("box").absolute()
from regard.cli.main import main
{more}
main()
"""


class Viewer:
    """`regard look` in a process of its own."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.line = process.stdout.readline()
        found = re.match(r"http://127\.0\.0\.1:(\d+)/(?:\?token=([0-9a-f]{32}))?", self.line)
        assert found, (self.line, process.stderr.read())
        self.port, self.token = int(found[1]), found[2]
        self.address = f"http://127.0.0.1:{self.port}/?token={self.token}"

    def get(self, path: str) -> bytes:
        connection = http.client.HTTPConnection("127.0.0.1", self.port)
        connection.request("GET", path, headers={"cookie": f"regard-{self.port}={self.token}"})
        answer = connection.getresponse()
        assert answer.status == 200, answer.read()
        data = answer.read()
        connection.close()
        return data

    def settled(self) -> list[dict[str, object]]:
        """Return the models once each is ready or has failed."""
        while True:
            models = json.loads(self.get("/models.json"))
            if all(model["ready"] or model["error"] for model in models):
                return models
            Event().wait(0.1)  # as the page does

    def interrupt(self, number: int = signal.SIGINT) -> tuple[int, str, str]:
        """Press Ctrl-C, or send another signal; return the exit code and the remaining output."""
        self.process.send_signal(number)
        out, err = self.process.communicate(timeout=PATIENCE)
        return self.process.returncode, out, err


@contextmanager
def viewer(*arguments: object, more: str = "", **environment: str) -> Iterator[Viewer]:
    command = [sys.executable, "-c", PROGRAM.format(more=more), "look", *map(str, arguments)]
    env = {**os.environ, "REGARD_CHECK_SHAPES": "0", **environment}
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=env, start_new_session=True)
    with patient(process):
        yield Viewer(process)


def test_the_sample_at_once_and_a_quiet_end(regard, bundle):
    """Nothing heavy is imported before the first response, and only the address is printed."""
    with viewer("--port", 0) as shown:  # without a display there is no browser to open
        assert shown.line == f"{shown.address} (press Ctrl-C to stop)\n"
        with pytest.raises(HTTPError, match="403"):
            urlopen(f"http://127.0.0.1:{shown.port}/recordings.json")
        assert shown.get("/") == Path("page/index.html").read_bytes()
        assert [one["id"] for one in json.loads(shown.get("/recordings.json"))] == ["one", "two"]
        assert shown.get("/recordings/two/attention/0.f16") == bundle["two"].blob("attention/0.f16")
        loaded = Path(f"/proc/{shown.process.pid}/maps").read_text()
        assert "python" in loaded
        assert "libtorch" not in loaded
        assert "numpy" not in loaded
        assert json.loads(shown.get("/models.json")) == []
        assert shown.interrupt() == (0, "", "")


def test_models_are_loaded_in_the_background(regard, bundle, runs):
    shutil.copytree(runs / "language", "broken")
    Path("broken/model.safetensors").write_bytes(b"x" * 100)
    models = ["-m", runs / "language", "-m", "broken"]
    with viewer(TEXT, *models, "--tokens", 1, "--port", 0, "--no-browser") as shown:
        assert shown.get("/recordings/one/attention/0.f16")
        model, broken = shown.settled()
        assert (model["name"], model["ready"], model["error"]) == ("language", True, None)
        assert (broken["name"], broken["ready"]) == ("broken", False)
        assert "broken" in broken["error"]
        first, *rest = json.loads(shown.get("/recordings.json"))
        assert (first["title"], first["text"]) == ("language", TEXT)
        assert [one["id"] for one in rest] == ["one", "two"]
        said = json.loads(shown.get(f"/recordings/{first['id']}/manifest.json"))
        for attention in said["attentions"]:
            assert shown.get(f"/recordings/{first['id']}/row/{attention['id']}/0/0.f32")
        assert shown.process.stderr.readline() == f"regard: {broken['error']}\n"  # printed after the page can read it
        assert shown.interrupt() == (0, "", "")


def test_ctrl_c_while_a_model_is_loading(regard, runs):
    more = """
from regard.viewer.model_handle import ModelHandle
from threading import Event
from urllib.error import HTTPError
from urllib.request import urlopen
def load(self):
    print("begun", flush=True)
    Event().wait()
ModelHandle.load = load
"""
    with viewer("-m", runs / "language", "--port", 0, "--no-browser", more=more) as shown:
        assert shown.process.stdout.readline() == "begun\n"
        assert shown.get("/recordings.json") == b"[]"
        assert shown.interrupt() == (0, "", "")


def test_a_second_viewer_takes_the_next_port_and_says_so(regard, bundle):
    with listen(0) as taken:
        port = taken.getsockname()[1]
        with viewer("--port", port, "--no-browser") as first, viewer("--port", port, "--no-browser") as second:
            assert port < min(first.port, second.port)  # another program may have released one between them
            assert first.port != second.port
            for shown in (first, second):
                assert shown.line == f"{shown.address} (port {port} is in use; press Ctrl-C to stop)\n"
                assert shown.get("/recordings/one/manifest.json")
                assert shown.interrupt() == (0, "", "")


def test_the_head_to_begin_with_is_in_the_address(regard, bundle):
    with viewer("--port", 0, "--attention", "cross.1", "--head", 2, "--no-browser") as shown:
        assert shown.line == f"{shown.address}#attention=cross.1&head=2 (press Ctrl-C to stop)\n"
        code, _, err = shown.interrupt()
        assert code == 0, err


def test_no_token_lets_everybody_in(regard, bundle):
    with viewer("--port", 0, "--no-token", "--no-browser") as shown:
        assert shown.line == f"http://127.0.0.1:{shown.port}/ (press Ctrl-C to stop)\n"
        with urlopen(f"http://127.0.0.1:{shown.port}/recordings.json") as answer:
            assert answer.status == 200
        assert shown.interrupt() == (0, "", "")


def test_the_browser_is_opened_unless_no_browser_is_given(regard, bundle, tmp_path):
    """The address is in a file that other users cannot read, since they can read the arguments of a process."""
    program, home = tmp_path / "browser", tmp_path / "home"
    home.mkdir()
    os.mkfifo(tmp_path / "opened")
    program.write_text(f'#!/bin/sh\necho noise\necho noise >&2\necho "$1" > {tmp_path}/opened\n')
    program.chmod(0o755)
    usual = "import signal; signal.signal(signal.SIGHUP, signal.SIG_DFL)  # the tests may run where it is ignored"
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        with viewer("--port", 0, BROWSER=f"{program} %s", HOME=str(home), more=usual) as shown:
            opened = (tmp_path / "opened").read_text().strip()
            (file,) = home.iterdir()
            assert (opened, file.stat().st_mode & 0o777) == (file.as_uri(), 0o600)
            assert f'content="0; url={shown.address}"' in file.read_text()
            assert shown.interrupt(number) == (0, "", "")
        assert not list(home.iterdir())
    Path("opened").unlink()
    with viewer("--port", 0, "--no-browser", BROWSER=f"{program} %s", HOME=str(home)) as shown:
        assert shown.get("/")
        assert shown.interrupt() == (0, "", "")
    assert not Path("opened").exists()


def test_a_browser_that_fails_is_ignored(regard, bundle):
    with viewer("--port", 0, BROWSER="/nowhere/at/all %s", HOME="/nowhere/at/all") as shown:
        assert shown.get("/")
        assert shown.interrupt() == (0, "", "")


def test_a_port_that_cannot_be_opened(regard, monkeypatch):
    def refuse(self: socket.socket, address: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(socket.socket, "bind", refuse)
    said = regard.refused("look", "--port", 80, "--no-browser")
    assert said == "port 80: cannot be opened: Permission denied; choose another --port"
