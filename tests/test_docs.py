"""What the documents say works."""

import re
from pathlib import Path

import pytest

from regard.config import recipe_names
from regard.models.recipe import build_empty, load_recipe

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
SYLLABUS = (ROOT / "docs" / "syllabus.md").read_text(encoding="utf-8")
ARCHITECTURE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")


def test_the_python_of_the_readme_runs():
    blocks = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert len(blocks) == 2
    exec("\n".join(blocks), {})


def test_the_recipe_of_the_readme_is_that_of_the_package():
    (block,) = re.findall(r"```toml\n(.*?)```", README, re.DOTALL)
    shipped = (ROOT / "regard" / "recipes" / "gpt2.toml").read_text(encoding="utf-8")
    assert block == shipped[shipped.index("[model]") :]


@pytest.mark.parametrize(
    "command", re.findall(r"regard show ([a-z0-9-]+ model\.[^`#\n]*?)(?:`| +#)", README + SYLLABUS)
)
def test_the_commands_build(command: str):
    recipe, *overrides = command.split()
    build_empty(load_recipe(recipe, *overrides).model)


def test_the_recipes_of_the_syllabus_exist_and_none_is_forgotten():
    named = set(re.findall(r"`([a-z0-9-]+)`", " ".join(re.findall(r"recipes? (`.*?)(?:\||;|\n)", SYLLABUS))))
    assert named == set(recipe_names())


@pytest.mark.parametrize("path", sorted(set(re.findall(r"`((?:parts|models|tests|examples)/[\w/]+\.py)`", SYLLABUS))))
def test_the_files_of_the_syllabus_exist(path: str):
    assert (ROOT / path).exists() or (ROOT / "regard" / path).exists()


@pytest.mark.parametrize("name", sorted(path.name for path in (ROOT / "regard").rglob("*.py") if path.name[0] != "_"))
def test_every_file_has_its_place_in_the_architecture(name: str):
    assert name in ARCHITECTURE or "cli" in str(next((ROOT / "regard").rglob(name)))
