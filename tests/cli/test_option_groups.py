"""Options that commands share as one parameter."""

from dataclasses import dataclass
from inspect import signature
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from regard.cli.option_groups import expand_groups


@dataclass(frozen=True)
class Place:
    folder: Annotated[str, typer.Option("--folder", "-d", help="Where.")]
    deep: bool = False


SEEN: list[object] = []


@expand_groups
def command(*, name: str = "x", place: Place, count: int = 1) -> None:
    """Do it."""
    SEEN.append((name, place, count))


def run(*arguments: str) -> int:
    app = typer.Typer()
    app.command()(command)
    return CliRunner().invoke(app, arguments).exit_code


def test_a_group_becomes_its_options_in_its_place():
    assert list(signature(command).parameters) == ["name", "folder", "deep", "count"]
    assert command.__doc__ == "Do it."


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        (["-d", "a"], ("x", Place("a"), 1)),
        (["--deep", "--count", "3", "--folder", "b", "--name", "y"], ("y", Place("b", deep=True), 3)),
    ],
)
def test_the_command_gets_the_group(given: list[str], wanted: object):
    SEEN.clear()
    assert run(*given) == 0
    assert [wanted] == SEEN


def test_an_option_without_a_default_is_required():
    SEEN.clear()
    assert run("--deep") == 2
    assert not SEEN
