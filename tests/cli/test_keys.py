"""The reference of recipe keys: complete, from the classes themselves, and the page in docs is what it generates."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from regard.cli.keys import find_section, find_sections, keys_of, meanings, page
from regard.config import Config, Positive
from regard.extend import open_registry, register
from regard.parts.score import ScoreConfig
from regard.recipe_files import read_recipe, recipe_names

from ..processes import Ended, Forked
from .command import Command

DOCS = Path(__file__).parents[2] / "docs" / "recipes.md"
REMEDY = "write it again: python -c 'from regard.cli.keys import page; print(page(), end=\"\")' > docs/recipes.md"


@dataclass(frozen=True)
class GaussConfig(ScoreConfig):
    """e = -|q - k|^2 / width."""

    width: Positive = 1.0
    """Width of the bell."""


@pytest.fixture
def gauss() -> Iterator[None]:
    register("score", "gauss")(GaussConfig)
    yield
    del open_registry("score")._items["gauss"]


@pytest.fixture(scope="module")
def described() -> tuple[set[str], set[str]]:
    """The keys and the kinds that are described; to find them takes a second."""
    sections = find_sections().values()
    keys = {key.name for part in sections for config in part.classes.values() for key in keys_of(config)}
    return keys, {kind for part in sections for kind in part.classes}


@pytest.fixture
def regard(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(monkeypatch, capsys)


def test_the_page_in_docs_is_what_the_classes_say() -> None:
    """Other tests may have registered kinds of their own in this process."""
    assert Forked(print_page).end() == Ended(0, DOCS.read_text(encoding="utf-8")), REMEDY


def print_page() -> None:
    print(page(), end="")


def test_every_key_has_a_meaning() -> None:
    missing = [
        f"{config.__name__}.{key.name}"
        for section in find_sections().values()
        for config in section.classes.values()
        for key in keys_of(config)
        if not key.meaning
    ]
    assert missing == []


def test_every_class_says_what_it_is() -> None:
    for section in find_sections().values():
        for config in section.classes.values():
            assert config.__doc__, config
            assert not config.__doc__.startswith(f"{config.__name__}("), config  # which dataclass writes otherwise


@pytest.mark.parametrize("name", recipe_names())
def test_every_table_of_the_recipes_is_described(name: str, described: tuple[set[str], set[str]]) -> None:
    known, kinds = described

    def walk(table: dict[str, object], names_are_free: bool = False) -> None:
        for key, value in table.items():
            assert names_are_free or key in known | {"kind", "like"}, key
            assert key != "kind" or value in kinds, value
            if isinstance(value, dict):
                walk(value, names_are_free=key == "layers")

    walk(read_recipe(name))


def test_a_key_has_type_limits_default_and_meaning() -> None:
    text = page()
    assert "| `dropout` | a number, between 0 and 1 | `0.0` | Share of the attention weights that" in text
    assert "| `heads` | table: [heads](#heads) | *required* |" in text
    assert "| `score` | table: [score](#score) | `dot` |" in text
    assert "| `layers` | tables by name: [layer](#layer) | *required* |" in text
    assert "| `cross` | table: [mixer](#mixer) of kind `attention` | *absent* |" in text
    assert "| `residual` | [residual](#residual) | `pre` |" in text


def test_one_part_one_kind_or_the_place_of_a_part_can_be_asked_for(regard: Command) -> None:
    assert 'kind = "additive"' in regard("show", "--keys", "score").out
    assert "model.layers.NAME.mixer.score" in regard("show", "--keys").out
    only = regard("show", "--keys", "rope").out
    assert "base" in only
    assert "alibi" not in only
    assert find_section("model.layers.NAME.mixer.score").name == "score"
    assert "has the name 'scoer'; did you mean 'score'?" in regard.refused("show", "--keys", "scoer")


def test_a_key_names_the_parts_that_have_it(regard: Command) -> None:
    said = regard.refused("show", "--keys", "model.layers.block.mixer.window")
    start, parts = said.split(": ")
    assert start == "'window' is a key, not a part; describe a part that has it"
    assert {"mixer", "task"} <= set(parts.split(", "))


def test_what_is_registered_is_described(gauss: None, regard: Command) -> None:
    found = regard("show", "--keys", "gauss").out
    assert "e = -|q - k|^2 / width" in found
    assert "Width of the bell." in found


def test_meanings_are_inherited() -> None:
    @dataclass(frozen=True)
    class Narrow(GaussConfig):
        cap: Positive = 2.0

    assert meanings(Narrow) == {"width": "Width of the bell."}
    assert meanings(type("NoSource", (Config,), {})) == {}


def test_show_without_a_recipe_lists_the_recipes(regard: Command) -> None:
    assert regard.refused("show").startswith("name a recipe; use one of annotator, bert, ")


def test_a_key_without_its_table_names_the_table(regard: Command) -> None:
    assert regard.refused("show", "gpt2", "depth=5") == "depth: unknown key; did you mean 'model.depth'?"
