"""The documentation matches the package."""

import re
from pathlib import Path

from regard.lab.experiments import EXPERIMENTS, ShippedExperiment
from regard.models.recipe import build_empty, load_recipe
from regard.recipe_files import recipe_names

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
SYLLABUS = (ROOT / "docs" / "syllabus.md").read_text(encoding="utf-8")
ARCHITECTURE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")


def test_the_python_of_the_readme_runs():
    blocks = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert blocks
    exec("\n".join(blocks), {})


def test_the_recipe_of_the_readme_is_that_of_the_package():
    (block,) = re.findall(r"```toml\n(.*?)```", README, re.DOTALL)
    shipped = (ROOT / "regard" / "recipes" / "gpt2.toml").read_text(encoding="utf-8")
    assert block == shipped[shipped.index("[model]") :]


def test_the_commands_build():
    commands = re.findall(r"regard show ([a-z0-9-]+ model\.[^`#\n]*?)(?:`| +#)", README + SYLLABUS)
    assert commands
    for command in commands:
        recipe, *overrides = command.split()
        build_empty(load_recipe(recipe, *overrides).model)


def test_the_syllabus_names_every_recipe_and_no_other():
    named = set(re.findall(r"`([a-z0-9-]+)`", " ".join(re.findall(r"recipes? (`.*?)(?:\||;|\n)", SYLLABUS))))
    assert named == set(recipe_names())


def test_the_syllabus_names_every_experiment_and_no_other():
    shipped = {name for name, experiment in EXPERIMENTS.items() if isinstance(experiment, ShippedExperiment)}
    assert set(re.findall(r"`regard lab ([a-z][a-z-]*)`", SYLLABUS)) == shipped


def test_the_files_of_the_syllabus_exist():
    named = set(re.findall(r"`((?:parts|models|tests|examples)/[\w/]+\.py)`", SYLLABUS))
    assert [path for path in sorted(named) if not ((ROOT / path).exists() or (ROOT / "regard" / path).exists())] == []


def files_of_the_tree() -> list[str]:
    """Read the paths of all .py files from the tree in architecture.md.

    A line with two leading spaces names a folder (`parts/`) or a file of `regard/`; a deeper line names files of the
    folder above it.
    """
    (tree,) = re.findall(r"```\nregard/\n(.*?)```", ARCHITECTURE, re.DOTALL)
    found, folder = [], ""
    for line in tree.splitlines():
        if not line.startswith("    "):
            (first,) = re.findall(r"^  (\S+)", line)
            folder = first if first.endswith("/") else ""
        found += [f"{folder}{name}" for name in re.findall(r"(?<![\w/.*])[a-z]\w*\.py\b", line)]
    return found


def test_the_tree_of_the_architecture_names_every_file_once():
    package = ROOT / "regard"
    files = [str(path.relative_to(package)) for path in package.rglob("*.py") if not path.name.startswith("_")]
    named = files_of_the_tree()
    problems = [f"{path} is not in the tree" for path in sorted(set(files) - set(named))]
    problems += [f"{path} does not exist" for path in sorted(set(named) - set(files))]
    problems += [f"{path} is in the tree {named.count(path)} times" for path in set(named) if named.count(path) > 1]
    assert not problems, "\n".join(problems)
