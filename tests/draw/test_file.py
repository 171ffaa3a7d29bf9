"""Picture files: the same bytes every time, complete or absent, and matplotlib's settings unchanged."""

import errno
import os
import subprocess
import sys
import threading
from pathlib import Path

import matplotlib
import numpy as np
import pytest

from regard import draw
from regard.errors import RegardError

from ..processes import PATIENCE

BEGINS = {"png": b"\x89PNG\r\n\x1a\n", "svg": b"<?xml", "pdf": b"%PDF"}
MASK = np.tril(np.ones((3, 3), bool))


def figures(look=draw.LIGHT):
    weights = MASK / MASK.sum(-1, keepdims=True)
    words = ["ein", "中", "$x$"]
    yield draw.heatmap(weights, words, words, title="L1.H1", mask=MASK, look=look)
    yield draw.heads(np.stack([[weights, weights]]), masks=[MASK], look=look)
    yield draw.alignment(weights, words, words, look=look)
    yield draw.positions(weights - 0.5, weights, look=look)
    yield draw.curves([draw.Panel("Loss", [draw.Curve("training", {1: 2.0, 2: 1.0})])], look=look)


@pytest.mark.parametrize(("suffix", "kind"), [("png", "png"), ("svg", "svg"), ("pdf", "pdf"), ("PNG", "png")])
def test_the_suffix_selects_the_format(suffix, kind, tmp_path):
    path = tmp_path / f"picture.{suffix}"
    figure = next(figures())
    draw.write_figure(figure, path)
    assert path.read_bytes().startswith(BEGINS[kind])
    assert path.read_bytes() == draw.encode_figure(figure, kind)
    assert list(tmp_path.iterdir()) == [path]


PROGRAM = """
import hashlib, sys
import matplotlib
{before}
from regard import draw
from tests.draw.test_file import figures
for number, figure in enumerate(figures(draw.DARK)):
    for kind in ["svg"] if number else ["svg", "png", "pdf"]:
        print(hashlib.sha256(draw.encode_figure(figure, kind)).hexdigest())
print("pyplot" if "matplotlib.pyplot" in sys.modules else "no pyplot")
"""
USER_SETTINGS = (
    "matplotlib.rcParams.update({'text.usetex': True, 'font.size': 30, 'axes.grid': True, 'hatch.color': 'r'})"
)


def test_the_same_figure_has_the_same_bytes_in_any_process_and_with_any_settings():
    """With another hash seed, another time, no display, and settings of the user."""
    answers = set()
    for seed, epoch, before in (("1", "0", ""), ("2", "1000000000", USER_SETTINGS)):
        surroundings = {**os.environ, "PYTHONHASHSEED": seed, "SOURCE_DATE_EPOCH": epoch, "MPLBACKEND": "TkAgg"}
        surroundings.pop("DISPLAY", None)
        command = [sys.executable, "-c", PROGRAM.format(before=before)]
        place = Path(__file__).parents[2]
        run = subprocess.run(
            command, env=surroundings, cwd=place, capture_output=True, text=True, check=True, timeout=PATIENCE
        )
        answers.add(run.stdout)
    [answer] = answers
    assert answer.splitlines()[-1] == "no pyplot"
    assert len(set(answer.splitlines())) == 5 + 2 + 1


def test_the_settings_of_matplotlib_are_not_changed(tmp_path):
    with matplotlib.rc_context({"font.size": 17, "text.usetex": True}):
        before = dict(matplotlib.rcParams.copy())
        for number, figure in enumerate(figures()):
            draw.write_figure(figure, tmp_path / f"{number}.svg")
        with pytest.raises(RegardError):
            draw.write_figure(figure, tmp_path / "nowhere" / "0.svg")
        assert dict(matplotlib.rcParams.copy()) == before


def test_threads_draw_one_after_another():
    """Matplotlib's settings are global: two threads must not mix theirs."""
    before = dict(matplotlib.rcParams.copy())
    made = []
    threads = [
        threading.Thread(target=lambda: made.append(draw.encode_figure(next(figures()), "svg"))) for _ in range(6)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 6
    assert len(set(made)) == 1
    assert dict(matplotlib.rcParams.copy()) == before


def test_importing_the_package_does_not_import_matplotlib():
    command = [sys.executable, "-c", "import sys, regard.draw; print('matplotlib' in sys.modules)"]
    run = subprocess.run(command, capture_output=True, text=True, check=True, timeout=PATIENCE)
    assert run.stdout == "False\n"


# --- mistakes --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "rest"),
    [
        ("a.gif", "unknown picture format '.gif'; use one of .pdf, .png, .svg"),
        ("a.pgn", "unknown picture format '.pgn'; did you mean '.png'? (one of .pdf, .png, .svg)"),
        ("a", "unknown picture format ''; use one of .pdf, .png, .svg"),
        (
            "nowhere/a.png",
            "cannot be written: the folder {folder}/nowhere does not exist; create it, or choose another folder",
        ),
    ],
)
def test_wrong_paths(tmp_path, name, rest):
    with pytest.raises(RegardError) as caught:
        draw.write_figure(next(figures()), tmp_path / name)
    assert str(caught.value) == f"{tmp_path / name}: {rest.format(folder=tmp_path)}"
    assert not list(tmp_path.iterdir())


def test_a_full_disk_keeps_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "a.png"
    path.write_bytes(b"old")

    def write_half(self, content):
        with self.open("wb") as file:
            file.write(content[:100])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "write_bytes", write_half)
    with pytest.raises(RegardError) as caught:
        draw.write_figure(next(figures()), path)
    message = "cannot be written: No space left on device; free some space, or choose another folder"
    assert str(caught.value) == f"{path}: {message}"
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_of_the_same_name(tmp_path):
    path = tmp_path / "a.svg"
    path.mkdir()
    with pytest.raises(RegardError) as caught:
        draw.write_figure(next(figures()), path)
    assert str(caught.value) == f"{path}: cannot be written: Is a directory; choose another folder"
    assert list(tmp_path.iterdir()) == [path]
