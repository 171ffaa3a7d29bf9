"""Registering parts of one's own, and importing the file that does it."""

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

import regard
from regard.config import Registry
from regard.errors import ConfigError, RegardError
from regard.extend import REGISTRIES, import_file, open_registry, registered
from regard.parts.score import Score, ScoreConfig

from .cli.command import Command

FILE = """
from dataclasses import dataclass

import regard
from regard.parts import Score, ScoreConfig


@regard.register("score", "constant")
@dataclass(frozen=True)
class ConstantScoreConfig(ScoreConfig):
    size: float = 1.0

    def build(self, query_dim, key_dim):
        return Score(scale=self.size)
"""
OVERRIDES = ["model.layers.block.mixer.score.kind=constant", "model.depth=1", "model.dim=8"]
OVERRIDES += ["model.layers.block.mixer.heads.heads=2", "model.vocabulary=11"]


@pytest.fixture(autouse=True)
def registries_as_before() -> Iterator[None]:
    """Take out what a test registers."""
    registries = [open_registry(sort) for sort in REGISTRIES]
    before = [dict(registry._items.maps[0]) for registry in registries]
    yield
    for registry, items in zip(registries, before, strict=True):
        registry._items.maps[0] = items


@pytest.fixture
def own_file(tmp_path: Path) -> Path:
    path = tmp_path / "my_parts.py"
    path.write_text(FILE, encoding="utf-8")
    return path


@pytest.mark.parametrize("sort", REGISTRIES)
def test_every_registry_is_where_the_table_says_and_has_its_name(sort: str) -> None:
    registry = open_registry(sort)
    assert isinstance(registry, Registry)
    assert registry.sort == sort


def test_an_unknown_sort_of_part_names_the_nearest() -> None:
    with pytest.raises(RegardError, match="'scores' cannot be registered; did you mean 'score'?"):
        regard.register("scores", "mine")


def test_what_is_registered_can_be_built_saved_and_loaded(own_file: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"mixer.score.kind: 'constant' is not a known score; .*\(--import FILE\)"):
        regard.build("gpt2", *OVERRIDES)
    import_file(own_file)
    model = regard.build("gpt2", *OVERRIDES, "model.layers.block.mixer.score.size=0.5")
    regard.save_model(model, tmp_path / "saved")
    loaded = regard.load_model(tmp_path / "saved")
    tokens = torch.tensor([[1, 2, 3]])
    assert torch.equal(loaded.eval()(tokens), model.eval()(tokens))
    assert loaded.config == model.config


def test_a_checkpoint_of_a_kind_that_is_not_registered_names_what_is_missing(own_file: Path, tmp_path: Path) -> None:
    import_file(own_file)
    regard.save_model(regard.build("gpt2", *OVERRIDES), tmp_path / "saved")
    del open_registry("score")._items["constant"]
    with pytest.raises(ConfigError, match=r"score.kind: 'constant' is not a known score; .*import the file that regis"):
        regard.load_model(tmp_path / "saved")


def test_parts_are_registered_together_or_not_at_all() -> None:
    mine = dataclass(frozen=True)(type("MineConfig", (ScoreConfig,), {}))
    parts = (("score", "mine", mine), ("score", "other", mine))
    with pytest.raises(RegardError, match="MineConfig is already registered as 'mine'"), registered(*parts):
        pass
    assert "mine" not in open_registry("score")


def test_a_config_that_is_not_registered_is_refused_when_it_is_used() -> None:
    from regard.parts import AttentionConfig, MultiHeadsConfig

    @dataclass(frozen=True)
    class Stray(ScoreConfig):
        def build(self, query_dim: int, key_dim: int) -> Score:
            return Score(1.0)

    with pytest.raises(ConfigError, match="score=Stray is not a registered score; register it with @regard.register"):
        AttentionConfig(MultiHeadsConfig(2), score=Stray())


def test_what_is_registered_as_a_cell_is_a_mixer_too() -> None:
    from regard.parts import LSTMConfig

    regard.register("cell", "mine")(dataclass(frozen=True)(type("MineConfig", (LSTMConfig,), {})))
    assert "mine" in open_registry("mixer")


def test_a_file_that_cannot_be_imported(tmp_path: Path) -> None:
    with pytest.raises(RegardError, match="none.py: cannot be imported: there is no such file"):
        import_file(tmp_path / "none.py")
    text = tmp_path / "parts.txt"
    text.write_text("", encoding="utf-8")
    with pytest.raises(RegardError, match="parts.txt: cannot be imported: it must be a Python file"):
        import_file(text)


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(monkeypatch, capsys)


@pytest.mark.parametrize(
    "form", [["--import", "{}", "show", "gpt2"], ["show", "gpt2", "--import", "{}"], ["show", "--import={}", "gpt2"]]
)
def test_the_command_imports_before_or_after_the_verb(own_file: Path, command: Command, form: list[str]) -> None:
    words = [word.format(own_file) for word in form]
    assert "constant" in command(*words, *OVERRIDES, "--toml").out


def test_nothing_is_imported_after_two_dashes(own_file: Path, command: Command) -> None:
    assert "no recipe has the name '--import'" in command.refused("show", "--", "--import", own_file)


def test_a_file_is_run_once_and_python_sees_it_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "my_counted.py"
    path.write_text(
        "from pathlib import Path\nPath(__file__).with_suffix('.txt').open('a').write('x')\n", encoding="utf-8"
    )
    monkeypatch.syspath_prepend(tmp_path)
    for _ in range(2):
        import_file(path)
    __import__("my_counted")
    assert path.with_suffix(".txt").read_text(encoding="utf-8") == "x"
    monkeypatch.delitem(sys.modules, "my_counted")


def test_a_file_with_the_name_of_another_module_is_run_once(tmp_path: Path) -> None:
    path = tmp_path / "random.py"
    path.write_text(
        "from pathlib import Path\nPath(__file__).with_suffix('.txt').open('a').write('x')\n", encoding="utf-8"
    )
    for _ in range(2):
        import_file(path)
    assert path.with_suffix(".txt").read_text(encoding="utf-8") == "x"
    del sys.modules["imported_random"]


def test_a_file_that_failed_is_run_again_when_it_is_corrected(tmp_path: Path) -> None:
    path = tmp_path / "my_corrected.py"
    path.write_text("1 / 0\n", encoding="utf-8")
    with pytest.raises(ZeroDivisionError):
        import_file(path)
    path.write_text("DONE = True\n", encoding="utf-8")
    import_file(path)
    assert sys.modules.pop("my_corrected").DONE


def test_a_model_with_a_part_replaced_by_hand_is_not_saved(tmp_path: Path) -> None:
    from regard.parts import ConvolutionConfig

    model = regard.build("gpt2", *OVERRIDES[1:])
    model.stack.layers[0].mixer = ConvolutionConfig().build(8)
    with pytest.raises(RegardError, match=r"layers.0.mixer.* is not what the config describes: .*register the part"):
        regard.save_model(model, tmp_path / "saved")
    assert not (tmp_path / "saved").exists()
