"""What `regard show` says about an architecture: its resolved recipe, its cost, and what it can be written for.

For the recipes of the package this is stored beside them in ARCHITECTURES, so that showing one does not import torch. A
test compares every stored entry with the model that is built; an entry whose recipe was edited is not used. Write the
file again with `python -m regard.cli.architecture`.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from hashlib import sha256
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from regard.errors import InputError
from regard.models.cost import Cost, read_cost
from regard.recipe_files import Table, read_recipe, recipe_names
from regard.untrusted import parse_json
from regard.use.box import find_model

if TYPE_CHECKING:
    from collections.abc import Iterable

    from regard.models.recipe import ModelConfig, Recipe

ARCHITECTURES = files("regard") / "recipes" / "architectures.json"


@dataclass(frozen=True)
class Architecture:
    """A recipe with its defaults filled in, what the model costs, and the formats of `regard convert`."""

    recipe: Table
    cost: Cost
    written_for: dict[str, str]


def describe(recipe: Recipe, length: int | None = None) -> Architecture:
    """Build the model of a recipe without memory, and count what it costs."""
    from regard.config import to_table
    from regard.models.count import cost
    from regard.models.recipe import build_empty

    return Architecture(to_table(recipe), cost(build_empty(recipe.model), length), written_for(recipe.model))


def open_recipe(recipe: str, overrides: list[str]) -> Recipe:
    """Read a recipe by its name or path, or the config of the model in a folder."""
    from regard.models.recipe import Recipe, load_recipe

    folder = find_model(recipe)
    if not folder.is_dir():
        from regard.training.request import check_training_tables

        check_training_tables(recipe)
        return load_recipe(recipe, *overrides)
    from regard.config import from_table, to_table
    from regard.hub.folder import is_huggingface, read_huggingface_config
    from regard.models.store import read_config
    from regard.recipe_files import override
    from regard.runs.folder import is_run
    from regard.runs.layout import RECIPE
    from regard.use.ctranslate2 import is_ctranslate2

    if is_ctranslate2(folder):
        raise InputError(f"{folder}: is a CTranslate2 folder; show the model that it was converted from")
    if is_run(folder):
        return load_recipe(folder / RECIPE, *overrides)
    config = read_huggingface_config(folder) if is_huggingface(folder) else read_config(folder)
    return from_table(override(to_table(Recipe(config)), overrides), Recipe)


def caution_of(recipe: str, opened: Recipe) -> str:
    """Return a caution of what a recipe does not inherit; "" if there is nothing to say, or a folder was opened."""
    from regard.models.recipe import caution_of_lost_keys

    return "" if find_model(recipe).is_dir() else caution_of_lost_keys(recipe, opened.model)


def written_for(config: ModelConfig) -> dict[str, str]:
    """Return for each format of `regard convert` the name of the model there, or "yes", or the reason why not."""
    from regard.errors import RegardError
    from regard.hub.ctranslate2 import ctranslate2_obstacle
    from regard.hub.folder import find_conversion

    try:
        theirs = find_conversion(config).family.model_type
    except RegardError as error:
        theirs = str(error)  # "no Hugging Face architecture can express this model; ..."
    reason = ctranslate2_obstacle(config)
    return {"Hugging Face": theirs, "CTranslate2": "yes" if reason is None else f"no: {reason}"}


# --- the recipes of the package --------------------------------------------------------------------------------------


def exportable_recipe(kinds: Iterable[str]) -> str | None:
    """Return the recipe, of these kinds of models, that can be written for Hugging Face and most other formats."""
    entries = parse_json(ARCHITECTURES.read_text(encoding="utf-8"), ARCHITECTURES)
    formats = {
        name: [key for key, text in entry["written_for"].items() if not text.startswith("no")]
        for name, entry in entries.items()
        if entry["recipe"]["model"]["kind"] in kinds
    }
    found = (name for name in formats if "Hugging Face" in formats[name])
    return max(found, key=lambda name: len(formats[name]), default=None)


def shipped_architecture(name: str) -> Architecture | None:
    """Return what is stored about a recipe of the package; None for another recipe, or one that was edited."""
    if name not in recipe_names() or Path(name).is_dir() or not ARCHITECTURES.is_file():
        return None
    entry = parse_json(ARCHITECTURES.read_text(encoding="utf-8"), ARCHITECTURES).get(name)
    if entry is None or entry["source"] != _source(name):
        return None
    return Architecture(entry["recipe"], read_cost(entry["cost"]), entry["written_for"])


def stored_architectures() -> str:
    """Return the text of ARCHITECTURES: a line for each recipe of the package."""
    entries = {name: {"source": _source(name), **asdict(describe(open_recipe(name, [])))} for name in recipe_names()}
    return "{\n" + ",\n".join(f"{json.dumps(name)}: {json.dumps(entries[name])}" for name in entries) + "\n}\n"


def _source(name: str) -> str:
    """Return a checksum of a recipe as it is read, with what it inherits."""
    return sha256(json.dumps(read_recipe(name), sort_keys=True).encode()).hexdigest()[:16]


if __name__ == "__main__":
    Path(str(ARCHITECTURES)).write_text(stored_architectures(), encoding="utf-8")
