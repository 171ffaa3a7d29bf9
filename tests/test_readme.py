"""The README: its measured parts are current, and what it says of recipes and commands is true."""

import re
import shlex
from pathlib import Path

import pytest

from bench.readme import README, blocks, commands
from regard.hub.families import FAMILIES
from regard.models.recipe import build_empty, load_recipe
from regard.runs.results_table import results_summary

from .cli.command import Command

TEXT = README.read_text(encoding="utf-8")
CHANGES = re.findall(r"^\| `('?model\.[^|]+)` \|", TEXT, re.MULTILINE)


def test_the_results_are_those_that_are_measured():
    assert blocks()["results"].strip() == results_summary().strip(), "run `make readme`"


def test_a_recipe_with_a_cache_has_its_scores_without_and_with_it():
    rows = [row.split(" | ")[1] for row in results_summary().splitlines() if "a neural cache" in row]
    assert rows == 2 * ["word perplexity", "word perplexity with a cache"]  # of two data sets


def test_three_commands_have_their_output():
    assert len(commands()) == 3
    outputs = re.split(r"^\$ .*\n", blocks()["commands"], flags=re.MULTILINE)[1:]
    assert all(output.strip(" `\n") for output in outputs)


@pytest.mark.slow
@pytest.mark.parametrize("command", commands())
def test_a_command_prints_what_the_readme_shows(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    """Compare the first two words: the rest contains rounding errors, and samples that depend on them."""
    monkeypatch.chdir(tmp_path)
    program, *words = shlex.split(command)
    assert program == "regard"
    readme = blocks()["commands"].partition(f"$ {command}\n")[2]
    assert Command(monkeypatch, capsys)(*words).out.split()[:2] == readme.split()[:2], "run `make readme`"


def test_there_are_changes():
    assert len(CHANGES) >= 5


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_builds_another_model(change: str):
    before, after = (build_empty(load_recipe("gpt2", *changes).model) for changes in ((), shlex.split(change)))
    assert str(before) != str(after) or before.config != after.config


def test_the_number_of_architectures_of_hugging_face():
    assert f"reads and writes {len(FAMILIES)} of its architectures" in TEXT
