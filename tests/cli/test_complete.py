"""What a shell offers when the tab key is pressed, as the scripts of `regard --show-completion` ask for it."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from regard.data.known_datasets import DATASETS
from regard.lab.experiments import EXPERIMENTS
from regard.recipe_files import recipe_names
from regard.use.box import box_names

from ..processes import PATIENCE
from .command import Command


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a run, another model and a recipe."""
    for name in ("runs/language-1/recipe.toml", "models/bert/config.json", "runs/empty/a.txt", "mine.toml"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def offered(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    def complete(line: str) -> list[str]:
        """Return what is offered for the last word of a line."""
        words = line.split(" ")
        monkeypatch.setenv("_REGARD_COMPLETE", "complete_bash")
        monkeypatch.setenv("COMP_WORDS", line)
        monkeypatch.setenv("COMP_CWORD", str(len(words) - 1))
        done = Command(monkeypatch, capsys)()
        assert (done.code, done.err) == (0, "")
        return done.out.split()

    return complete


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("regard tr", ["train", "translate"]),
        ("regard --vers", ["--version"]),
        ("regard train vis", ["vision"]),
        ("regard train results/wikitext2-l", ["results/wikitext2-lstm"]),
        ("regard train --resume ", ["runs/language-1"]),
        ("regard train language a.txt --si", ["--size"]),
        ("regard train language a.txt --size b", ["base", "big"]),
        ("regard train language a.txt --recipe mi", ["mine.toml"]),
        ("regard train nothing --dry", ["--dry-run"]),
        ("regard --threads 2 show transformer-b", ["transformer-base", "transformer-big"]),
        ("regard data tinysh", ["tinyshakespeare"]),
        ("regard data nothing-like-this", []),
        ("regard lab look", ["lookup"]),
        ("regard results wikitext2-l", ["wikitext2-lstm"]),
        ("regard models shake", ["shakespeare"]),
        ("regard translate -m ru", ["runs/language-1"]),
        ("regard translate -m models/", ["models/bert"]),
        ("regard look --model=shake", ["shakespeare"]),
        ("regard convert runs/language-1 new --to h", ["huggingface"]),
        ("regard generate --device c", ["cpu", "cuda"]),
    ],
)
def test_words_are_completed(offered, line: str, words: list[str]) -> None:
    assert offered(line) == words


def test_all_names_are_offered_for_an_empty_word(offered) -> None:
    assert offered("regard data ") == list(DATASETS)
    assert offered("regard lab ") == list(EXPERIMENTS)
    assert offered("regard show ") == [*recipe_names(), "mine.toml"]
    assert offered("regard translate -m ") == [*box_names(), "runs/language-1"]


def test_torch_is_not_imported(folder: Path) -> None:
    program = """
import atexit, sys
from regard.cli.main import main
atexit.register(lambda: print("torch" in sys.modules))
main()
"""
    asked = {"_REGARD_COMPLETE": "complete_bash", "COMP_WORDS": "regard translate -m ", "COMP_CWORD": "3"}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, env={**os.environ, **asked}, capture_output=True, text=True, timeout=PATIENCE)
    assert done.stdout.split()[-2:] == ["runs/language-1", "False"]


def test_the_script_for_bash_works(folder: Path) -> None:
    program = folder / "regard"
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m regard "$@"\n')
    program.chmod(0o755)
    script = """
source <(regard --show-completion bash)
COMP_WORDS=(regard tr) COMP_CWORD=1
_regard_completion regard
echo "${COMPREPLY[@]}"
complete -p regard
"""
    env = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    done = subprocess.run(["bash", "-c", script], env=env, capture_output=True, text=True, timeout=PATIENCE)
    assert done.stdout == "train translate\ncomplete -o default -F _regard_completion regard\n", done.stderr
