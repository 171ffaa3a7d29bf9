"""docs/lab.md, as a reader would follow it."""

import re
import shlex
import sys
from pathlib import Path

import pytest

from regard.lab.experiments import EXPERIMENTS
from tests.cli.command import Command

PAGE = (Path(__file__).parents[2] / "docs" / "lab.md").read_text(encoding="utf-8")


def test_the_experiment_of_the_reader_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (code,) = re.findall(r"```python\n(# my_experiment\.py\n.*?)```", PAGE, re.S)
    (tmp_path / "my_experiment.py").write_text(code, encoding="utf-8")
    (command,) = re.findall(r"^regard (lab sharpness .*)$", PAGE, re.M)
    try:
        done = Command(monkeypatch, capsys)(*shlex.split(command))
    finally:
        EXPERIMENTS._items.maps[0].pop("sharpness", None)
        sys.modules.pop("my_experiment", None)
    assert done.code == 0, done
    assert "sharpness: holds. It is " in done.out
    assert (tmp_path / "lab-tiny" / "sharpness" / "sharpness.svg").is_file()


def test_the_experiments_and_options_of_the_page_exist():
    commands = re.findall(r"^regard lab ([a-z-]+)", PAGE, re.M)
    assert {name for name in commands if not name.startswith("--")} <= {*EXPERIMENTS, "sharpness"}
    with pytest.raises(KeyError):
        EXPERIMENTS["sharpness"]
