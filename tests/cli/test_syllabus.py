"""Every command of docs/syllabus.md runs: on small data sets, which its first commands make, and with small models.

Experiments run with one seed and `--scale tiny`, which takes a second each; tests/lab checks what they measure.
"""

import re
import shlex
from itertools import chain, pairwise, takewhile
from pathlib import Path

import pytest

from regard.runs.layout import REPORT
from regard.tasks.kinds import TASKS
from regard.training import start

from ..training.tiny import shrunk
from .command import Command
from .small_downloads import write_downloads

PAGE = Path(__file__).parents[2] / "docs" / "syllabus.md"
ROWS = {"A": range(1, 10), "B": range(1, 6), "C": range(1, 10), "D": range(1, 12), "E": range(1, 11)}
SHORT = ["train.steps=2", "train.validate_every=2", "train.checkpoint_every=2", "train.log_every=1", "train.tokens=512"]
WORDS = ["tokenizer.kind=word"]
FOR_TASK = {
    "vision": [],
    "parsing": [],
    "trajectories": ["task.observed=3", "task.predicted=2"],
    "residues": [],
    "distances": [],
    "language": [*WORDS, "task.window=16"],
    "masked": [*WORDS, "task.window=16"],
    "vectors": ["task.window=16"],
}


def commands() -> dict[str, list[str]]:
    """Read the commands of each row; a line without a number belongs to the row above it."""
    found: dict[str, list[str]] = {}
    number = ""
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.split("|")[1:-1]] if line.startswith("|") else []
        if not cells or cells[0] in ("#", "---"):
            continue
        number = cells[0] or number
        tried = re.findall(r"`(regard [^`]*)`", cells[-1])
        assert tried, f"no command to try in: {line}"
        found.setdefault(number, []).extend(tried)
    return found


COMMANDS = commands()


def test_every_row_has_a_command():
    assert list(COMMANDS) == [f"{letter}{row}" for letter, rows in ROWS.items() for row in rows]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which the commands run."""
    return tmp_path_factory.mktemp("syllabus")


@pytest.fixture
def regard(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], world: Path) -> Command:
    """The command in the folder with the data sets, without reports, which take longer than a tiny run."""
    monkeypatch.chdir(world)
    monkeypatch.setenv("REGARD_CACHE", str(world / "cache"))
    monkeypatch.setattr(start, "finish", lambda run, *rest: (run.folder / REPORT).write_text("left out by a test"))
    command = Command(monkeypatch, capsys)
    if not Path("data").exists():
        make_data_sets(command, monkeypatch)
    return command


def make_data_sets(regard: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the commands at the top of the page, on small files instead of downloads."""
    small = write_downloads(Path("downloads"))
    monkeypatch.setattr("regard.data.known_datasets.DATASETS", small)
    commands = re.findall(r"^regard data .*$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(command.split()[2] for command in commands) == sorted(small)
    for command in commands:
        done = regard(*command.removesuffix("--from FOLDER").split()[1:], "--from", "downloads")
        assert done.code == 0, f"{command}\n{done.err}"
        made = done.out.partition("\n\n")[0].splitlines()
        assert made
        assert all(Path(path).is_file() for path in made), made


@pytest.mark.parametrize("row", COMMANDS)
def test_every_command_of_a_row_works(row: str, regard: Command):
    for command in COMMANDS[row]:
        run(command, regard)


def run(command: str, regard: Command) -> None:
    """Run a command, after the one that trains the model that it uses; not again what has run before."""
    _, *words = shlex.split(command)
    options = dict(pairwise(words))
    if "-m" in options:
        earlier = takewhile(lambda each: each != command, chain(*COMMANDS.values()))
        trains = [each for each in earlier if f"--run {options['-m']}" in each]
        assert trains, f"no command before this one trains its model: {command}"
        run(trains[0], regard)
    if "--run" in options and Path(options["--run"]).exists():
        return
    if words[0] == "lab":
        if Path("lab-tiny", words[1]).exists():
            return
        words += ["--scale", "tiny", "--seeds", "1"]
    if words[0] == "train":
        recipe = options.get("--recipe") or TASKS[words[1]].recipe
        other = tuple(word.partition("kind=")[0] for word in words if ".kind=" in word)  # tables of another kind
        if not any(word.startswith("task.alignment") for word in words):
            other += ("model.alignment",)  # a table that a model of single sequences does not have
        smaller = [change for change in shrunk(recipe) if not change.startswith(other)]
        for_task = [] if any(word.startswith("tokenizer.") for word in words) else FOR_TASK.get(words[1], WORDS)
        words += [*smaller, *SHORT, *for_task]
    done = regard(*words)
    assert done.code == 0, f"{command}\n{done.err}"
