"""`regard train trajectories`, then forecast, evaluate and look; and what is wrong with files."""

from pathlib import Path

import pytest
from rich.console import Console

import regard as package
from regard.training import start

from ..laws.cases import SHRINK
from ..tasks.corpora import walks, write
from .command import Command

BRIEF = ["train.steps=3", "train.validate_every=3", "train.checkpoint_every=3", "train.tokens=64"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A folder with tracks and a run."""
    folder = tmp_path_factory.mktemp("walks")
    task = {"kind": "trajectories", "train": [walks(folder / "a.txt")], "valid": [walks(folder / "b.txt", seed=1)]}
    task |= {"observed": 3, "predicted": 2}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(start, "finish", lambda *arguments: None)
        package.train(task, *BRIEF, *SHRINK["forecaster"], run=folder / "run", console=Console(quiet=True))
    return folder


@pytest.fixture
def regard(monkeypatch, capsys, folder) -> Command:
    monkeypatch.chdir(folder)
    return Command(monkeypatch, capsys)


def test_a_table_and_a_picture(regard, folder):
    done = regard("forecast", "a.txt", "-m", "run", "--frame", "100", "--picture", "scene.svg")
    assert done.code == 0, done.err
    lines = done.out.splitlines()
    assert lines[0] == "frame,agent,future,probability,x,y"
    assert len(lines) == 1 + 3 * 3 * 2
    assert lines[1].startswith("110,1,1,0.")
    picture = (folder / "scene.svg").read_text(encoding="utf-8")
    assert "a.txt, frame 100" in picture
    assert regard("forecast", "a.txt", "-m", "run", "--frame", "100", "-o", "out.csv").out == ""
    assert (folder / "out.csv").read_text(encoding="utf-8") == done.out


def test_without_a_model_and_a_file_it_shows_the_scene_that_comes_with_regard(regard, folder):
    done = regard("forecast", "--picture", "crossing.svg")
    assert done.code == 0, done.err
    assert "using crossing, which comes with regard" in done.err
    assert "the scene is" in done.err
    assert len(done.out.splitlines()) % (20 * 12) == 1
    assert "check.txt, frame" in (folder / "crossing.svg").read_text(encoding="utf-8")
    assert "name a FILE with rows of frame, agent, x and y" in regard.refused("forecast", "-m", "run")


def test_it_is_measured_and_shown(regard, folder):
    done = regard("evaluate", "b.txt", "-m", "run")
    assert done.code == 0, done.err
    assert "ade" in done.out
    assert "fde" in done.out
    done = regard("look", "a.txt@100", "-m", "run", "--csv", "head.csv")
    assert done.code == 0, done.err
    assert (folder / "head.csv").read_text(encoding="utf-8").startswith(",1@1,1@2,1@3,2@1,")
    assert regard("look", "-m", "run", "--svg", "training.svg").code == 0
    assert "regard.errors" not in done.err


def test_what_is_refused(regard, folder):
    write(folder / "words.txt", ["0 a x 1"])
    assert regard.refused("forecast", "words.txt", "-m", "run").startswith("words.txt:1: x 'x' must be a number")
    assert "no agent is in frame 5; choose one of frames 0 to 290" in regard.refused(
        "forecast", "a.txt", "-m", "run", "--frame", "5"
    )
    assert "unknown picture format '.gif'" in regard.refused("forecast", "a.txt", "-m", "run", "--picture", "x.gif")
    picture = ("--picture", "nowhere/x.svg", "-o", "futures.csv")
    assert "the folder nowhere does not exist" in regard.refused("forecast", "a.txt", "-m", "run", *picture)
    assert not (folder / "futures.csv").exists()
    same = regard.refused("forecast", "a.txt", "-m", "run", "--picture", "x.svg", "-o", "./x.svg")
    assert same.startswith("x.svg: would hold both the answers and the picture")
    assert not (folder / "x.svg").exists()
    assert "nowhere.txt" in regard.refused("forecast", "nowhere.txt", "-m", "run")
    assert "words.txt:1" in regard.refused("train", "trajectories", "words.txt")
    assert "cannot classify; use `forecast`" in regard.refused("classify", "a", "-m", "run")
    assert "the text:2: has 3 columns" in regard.refused("look", "0 a 1 1; 10 a 2", "-m", "run", "--csv", "x.csv")
    assert "no agent is present for 20 consecutive" in regard.refused(
        "train", "trajectories", write(folder / "short.txt", ["0 a 0 0", "10 a 1 1"])
    )


def test_an_agent_of_one_step_a_scene_of_one_agent_and_rows_between_steps(regard, folder):
    rows = ["0 a 0 0", "10 a 1 0", "15 b 5 5", "20 a 2 0", "20 c 3 3"]
    done = regard("forecast", write(folder / "brief.txt", rows), "-m", "run")
    assert done.code == 0, done.err
    assert "1 row of a frame between two steps skipped" in done.err
    assert {line.split(",")[1] for line in done.out.splitlines()[1:]} == {"a", "c"}
    assert "nan" not in done.out
    done = regard("forecast", write(folder / "alone.txt", ["0 a 1 2"]), "-m", "run")
    assert done.code == 0, done.err
    assert len(done.out.splitlines()) == 1 + 3 * 2
    walk = write(folder / "walk.txt", [f"{10 * step} a {step} {step % 3}" for step in range(40)])
    settings = ["task.observed=3", "task.predicted=2", *BRIEF, *SHRINK["forecaster"]]
    done = regard("train", "trajectories", walk, *settings, "--run", "single", "--device", "cpu")
    assert done.code == 0, done.err
