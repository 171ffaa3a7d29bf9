"""Every command of the documentation exists, and those that need nothing but the package run.

A command in a block of code must be complete: verb, arguments, options and their values. A command in a sentence may
leave something out. Names of recipes, experiments and data sets exist, and so do the keys of a run.

Commands that look at the package (`show`, `recipes`, ...) run as they are. Those that use a model of the reader's run
with a model that comes with the package, on files that the test writes. Trainings are only parsed here:
tests/cli/test_syllabus.py and tests/test_extending.py run those of their pages.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import typer
from PIL import Image

from regard.cli.help import UsageError
from regard.cli.main import app
from regard.data.known_datasets import DATASETS
from regard.errors import RegardError
from regard.lab.experiments import EXPERIMENTS, find_experiment
from regard.recipe_files import is_shipped
from regard.tasks.kinds import TASKS
from regard.training.config import TrainConfig
from regard.use.box import IMAGE_SUFFIXES, box_names

from .cli.command import Command
from .pages import PAGES, DocumentedCommand, commands, name, read

STAND_INS = {"TASK": "language", "COMMAND": "language", "...": "language", "N": "1", "results/NAME": "results/ptb"}
ENDS = ("]", "]...")  # of a word that says what may be left out: [KEY=VALUE]...
PARTIAL = ("MissingParameter", "NoArgsIsHelpError")  # a sentence may leave out arguments
QUICK = {"recipes", "models", "results", "show"}  # verbs that look at the package
ANSWERS = {"translate", "generate", "classify", "fill", "embed", "parse", "annotate", "look", "convert"}  # with a model
# Words that stand for what cannot be invented.
PLACEHOLDER = {"NAME", "PART", "TEXT", "FILE", "LIST", "OTHER", "...", "[OPTIONS]"}
PICTURES = {"--export", "--png", "--svg", "--csv"}  # options with which `look` writes a file and ends
# Options that need other files, or time.
NOT_HERE = {
    "--import",
    "--step",
    "--column",
    "--engine",
    "--length",
    "--nearest",
    "--allow-pickle",
    "--alignment",
    "--grammar",
}


class Parsed(NamedTuple):
    """A command as it was understood."""

    path: str
    values: dict[str, Any]


@cache
def parser() -> tuple[Any, list[Parsed]]:
    """Return the command `regard`, whose verbs note what they are called with and do nothing."""
    root, noted = typer.main.get_command(app), []

    def note(path: str) -> Callable[..., None]:
        return lambda **values: noted.append(Parsed(path, values))

    def replace(command: Any, path: str) -> None:
        command.callback = note(path)
        if hasattr(command, "commands"):
            command.commands = dict(command.commands)  # otherwise a verb is made again when it is looked up
            for verb, inner in command.commands.items():
                replace(inner, f"{path} {verb}".strip())

    replace(root, "")
    return root, noted


def parse(command: DocumentedCommand) -> Parsed | None:
    """Return a command as it is understood; None if it only mentions a verb or says how commands look."""
    words = [STAND_INS.get(word, word) for word in command.words if not (word.startswith("[") and word.endswith(ENDS))]
    if words[0] == "VERB" or "--import" in words:  # what a file of the reader registers is not known here
        return None
    root, noted = parser()
    noted.clear()
    try:
        root.main(words, prog_name="regard", standalone_mode=False)
    except SystemExit:  # an option that prints something instead of running a verb: --version
        return None
    except UsageError as error:
        if command.is_complete or type(error).__name__ not in PARTIAL:
            raise
        return None
    return noted[-1] if noted else None


def check_names(found: Parsed, written: set[str]) -> Iterator[str]:
    """Yield what a command names that does not exist and was not written by a command before it."""
    verb, values = found.path.split(" ")[0], found.values
    recipes = [] if values.get("keys") else [values.get("recipe")]
    recipes += values.get("models") or [] if verb == "compare" else []
    for recipe in recipes:
        is_name = recipe and re.fullmatch(r"[a-z0-9-]+", str(recipe))  # neither a file nor a change
        if is_name and str(recipe) not in written and not is_shipped(str(recipe)):
            yield f"no recipe has the name {recipe}"
    named = values.get("name")
    if verb == "lab" and named and not named.endswith(".py") and named.islower() and named not in EXPERIMENTS:
        yield f"no experiment has the name {named}"
    if verb == "data" and named and named.islower() and named not in DATASETS:
        yield f"no data set has the name {named}"
    changes = [*(values.get("files") or []), *(values.get("changes") or []), *(values.get("overrides") or [])]
    kind = found.path.partition(" ")[2] if verb == "train" else str(values.get("task"))
    keys = {"train": {field.name for field in fields(TrainConfig)}}
    if kind in TASKS:
        keys["task"] = {field.name for field in fields(TASKS[kind])}
    for change in map(str, changes):
        table, _, key = change.partition("=")[0].partition(".")
        if "=" in change and table in keys and key.partition(".")[0] not in keys[table]:
            yield f"{change}: no such key"


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_the_commands_of_a_page_exist(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))  # --install-completion writes into it
    problems, written = [], set[str]()
    for command in commands(read(page)):
        try:
            found = parse(command)
        except (UsageError, RegardError) as error:
            problems.append(f"{command}: {error}")
            continue
        if found is not None:
            problems += [f"{command}: {problem}" for problem in check_names(found, written)]
            written |= set(command.words) if found.path == "convert" else set()
    assert problems == []


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_the_commands_that_an_experiment_proposes_exist(name: str) -> None:
    experiment = find_experiment(name)
    settings = {field.name for field in fields(experiment.scales["default"])}
    text = re.sub(r"^    (regard .*)$", r"```\n\1\n```", experiment.vary, flags=re.MULTILINE)
    proposed = [found for command in commands(text) if (found := parse(command)) is not None]
    assert proposed, experiment.vary
    for found in proposed:
        assert list(check_names(found, set())) == []
        if found.values.get("name") == name:
            assert {change.partition("=")[0] for change in found.values["changes"] or ()} <= settings


# --- Running them ----------------------------------------------------------------------------------------------------


def runnable(command: DocumentedCommand) -> list[str] | None:
    """Return the words that run a command with what comes with the package, or None if that is not possible."""
    verb, words = command.words[0], list(command.words)
    if NOT_HERE & set(words) or PLACEHOLDER & set(words) or any(word.endswith(ENDS[1]) for word in words):
        return None
    if verb in QUICK:
        found = parse(command)
        is_known = found is not None and list(check_names(found, set())) == []
        is_example = not any(word.isupper() or word.startswith("...") for word in words)
        return words if is_known and is_example and (len(words) > 1 or verb != "show") else None
    found = parse(command) if verb in ANSWERS else None
    if found is None:
        return None
    text = found.values.get("texts") or [found.values.get("text")]
    given = found.values.get("file")
    if not (given or text[0] or verb == "convert") or "@" in str(text[0]) or str(text[0]).endswith(".txt"):
        return None
    words = _with_known_model(verb, words, str(text[0]))
    if verb == "generate":
        words += ["--tokens", "3"]
    if verb == "look" and not PICTURES & set(words):
        words += ["--export", "page.html"]
    return words


def _with_known_model(verb: str, words: list[str], text: str) -> list[str]:
    """Return the words of a command, with a model that comes with the package instead of the reader's."""
    if verb == "convert":
        return [verb, "en-fr", *words[2:]]
    kept, models = [], []
    for before, word in zip(["", *words], words, strict=False):
        if before == "-m":
            models.append(word)
        elif word != "-m":
            kept.append(word)
    if models and models[0] in box_names():
        return words
    if verb == "look" and "--tokens" in words:
        return [*kept, "-m", "shakespeare"]
    return [*kept, "-m", "english"] if verb == "look" and "[MASK]" in text else kept


def all_runnable() -> list[list[str]]:
    """Return the commands to run; of those that differ only in their texts and files, the first."""
    found: dict[tuple[str, ...], list[str]] = {}
    for page in PAGES:
        for command in commands(read(page)):
            if words := runnable(command):
                form = (word for word in words if words[0] in QUICK or word.startswith("-") or word in box_names())
                is_image = any(word.endswith(IMAGE_SUFFIXES) for word in words)
                found.setdefault((words[0], *form, str(is_image)), words)
    return list(found.values())


def test_the_commands_that_need_no_data_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))
    regard, problems, verbs = Command(monkeypatch, capsys), [], set()
    for number, words in enumerate(all_runnable()):
        folder = tmp_path / str(number)
        (folder / "pages").mkdir(parents=True)  # where the tour writes its pages
        monkeypatch.chdir(folder)
        for word in words[1:]:
            if word.endswith(IMAGE_SUFFIXES) and words[0] in ("classify", "embed", "look"):
                (folder / word).parent.mkdir(parents=True, exist_ok=True)
                Image.new("RGB", (28, 28), "grey").save(folder / word)
        if "-f" in words:
            line = "ACDEFGHIK" if words[0] == "annotate" else "A red [MASK] runs."
            (folder / words[words.index("-f") + 1]).write_text(f"{line}\n", encoding="utf-8")
        done = regard(*words)
        verbs.add(words[0])
        if done.code != 0:
            problems.append(f"{' '.join(words)}: {done.err}")
    assert problems == []
    assert verbs == QUICK | ANSWERS
