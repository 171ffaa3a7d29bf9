"""Commands in messages can be copied: names with blanks are in quotes."""

from collections.abc import Callable
from io import StringIO
from pathlib import Path

import pytest

from regard.cli.train import _find_other
from regard.errors import RegardError
from regard.lab.comparison.models import find_contenders
from regard.lab.halving import Search, TunedSetting
from regard.lab.tune import print_search
from regard.terminal import plain_console
from regard.training.probe import read_probe
from regard.training.result import read_result
from regard.use.evaluate import open_task


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a run without weights, with a damaged result."""
    monkeypatch.chdir(tmp_path)
    found = Path("my runs")
    found.mkdir()
    (found / "recipe.toml").touch()
    (found / "evaluation.json").touch()
    return found


@pytest.mark.parametrize(
    ("work", "command"),
    [
        (read_result, "regard train --resume 'my runs'"),
        (read_probe, "regard train 'my runs/recipe.toml' --run OTHER"),
        (lambda folder: find_contenders([folder]), "regard train --resume 'my runs'"),
        (lambda folder: _find_other(str(folder)), "--resume 'my runs', or repeat it with 'my runs/recipe.toml'"),
        (lambda folder: open_task(None, [str(folder)], (), print), "-m 'my runs'"),
    ],
)
def test_the_remedy_is_a_command_to_copy(folder: Path, work: Callable[[Path], object], command: str) -> None:
    with pytest.raises(RegardError) as error:
        work(folder)
    assert command in str(error.value)


def test_the_recipe_that_a_search_found_is_in_quotes(folder: Path) -> None:
    output = StringIO()
    search = Search("loss", [TunedSetting(1, {}, [], 1.0, [20], [2.0])], steps=20)
    print_search(plain_console(file=output), search, folder)
    assert output.getvalue().endswith("regard train 'my runs/found.toml'\n")
