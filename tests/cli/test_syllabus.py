"""Every command of docs/syllabus.md runs: on small files with the names of the page, with small models.

Experiments are not run again, since tests/lab runs all of them: here their commands are parsed, their names looked up.
"""

import re
import shlex
from itertools import chain, pairwise, takewhile
from pathlib import Path

import numpy as np
import pytest
import typer

from regard.cli.main import app
from regard.lab.experiments import find_experiment
from regard.runs.layout import REPORT
from regard.tasks.kinds import TASKS
from regard.training import start

from ..data.test_image_arrays import write_idx
from ..tasks.corpora import sentences, write, write_chains, write_structures
from ..training.tiny import shrunk
from .command import Command

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
    """Write small files with the names of the page."""
    folder = tmp_path_factory.mktemp("syllabus")
    lines = sentences(80)
    for name in ("tinyshakespeare", "multi30k", "sst2", "fashion-mnist"):
        (folder / "data" / name).mkdir(parents=True)
    write(folder / "data/tinyshakespeare/input.txt", [*lines, *["the king and the man and the woman"] * 20])
    (folder / "data/treebank-sample").mkdir()
    trees = [f"(S (NP (NN {letter})) (VP (VBZ runs)))" for letter in "abcdefgh" * 4]
    write(folder / "data/treebank-sample/train.mrg", trees)
    for language in ("en", "de", "fr"):
        write(folder / f"data/multi30k/train.{language}", [f"{line} {language}" for line in lines])
    write(folder / "data/sst2/train.tsv", ["text\tlabel", *(f"{line}\t{line[0]}" for line in lines)])
    for part in ("train", "val", "test"):
        (folder / "data/ethucy/zara1" / part).mkdir(parents=True)
        steps = [f"{10 * step} {agent} {step + agent} {agent}" for step in range(12) for agent in (1, 2)]
        write(folder / "data/ethucy/zara1" / part / "crowds_zara01.txt", steps)
    for name in ("cb513", "structures"):
        (folder / "data" / name).mkdir()
    write_chains(folder / "data/cb513/chains.tsv")
    write_structures(folder / "data/structures/structures.jsonl")
    chance = np.random.default_rng(0)
    for name in ("train-", "t10k-"):
        images, labels = chance.integers(0, 255, (40, 8, 12), dtype=np.uint8), chance.integers(0, 3, 40, dtype=np.uint8)
        write_idx(folder / "data/fashion-mnist", name, images, labels)
    return folder


@pytest.fixture
def regard(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], world: Path) -> Command:
    """The command in the folder with the files, without reports, which take longer than a tiny run."""
    monkeypatch.chdir(world)
    monkeypatch.setenv("REGARD_CACHE", str(world / "cache"))
    monkeypatch.setattr(start, "finish", lambda run, *rest: (run.folder / REPORT).write_text("left out by a test"))
    return Command(monkeypatch, capsys)


@pytest.mark.parametrize("row", COMMANDS)
def test_every_command_of_a_row_works(row: str, regard: Command):
    for command in COMMANDS[row]:
        run(command, regard)


def run(command: str, regard: Command) -> None:
    """Run a command, after the one that trains the model that it uses; not again what has run before."""
    _, *words = shlex.split(command)
    if words[0] == "lab":
        find_experiment(parse(words)["name"])
        return
    options = dict(pairwise(words))
    if "-m" in options:
        earlier = takewhile(lambda each: each != command, chain(*COMMANDS.values()))
        trains = [each for each in earlier if f"--run {options['-m']}" in each]
        assert trains, f"no command before this one trains its model: {command}"
        run(trains[0], regard)
    if "--run" in options and Path(options["--run"]).exists():
        return
    if words[0] == "train":
        recipe = options.get("--recipe") or TASKS[words[1]].recipe
        other = tuple(word.partition("kind=")[0] for word in words if ".kind=" in word)  # tables of another kind
        if not any(word.startswith("task.alignment") for word in words):
            other += ("model.alignment",)  # a table that a model of single sequences does not have
        smaller = [change for change in shrunk(recipe) if not change.startswith(other)]
        words += [*smaller, *SHORT, *FOR_TASK.get(words[1], WORDS)]
    done = regard(*words)
    assert done.code == 0, f"{command}\n{done.err}"


def parse(words: list[str]) -> dict[str, object]:
    """Return the values of a command's parameters, without running it."""
    group = typer.main.get_command(app)
    name, command, rest = group.resolve_command(typer.Context(group), words)
    return command.make_context(name, rest).params
