"""What a shell offers when the user presses the tab key in a word: names of models, recipes, data sets and so on.

None of these functions imports torch. Typer keeps the names that begin with the word; if none does, the shell offers
files.
"""

from collections.abc import Callable
from glob import escape, glob
from pathlib import Path

MODEL_FILES = ("recipe.toml", "config.json")  # one of them is in the folder of each run or Hugging Face model


def offer(*names: str) -> Callable[[], list[str]]:
    """Return a function that offers these names."""
    return lambda: list(names)


def complete_folder(incomplete: str) -> list[str]:
    """Offer the folders of models in runs/, or wherever the word leads."""
    found = {folder.rstrip("/") for pattern in (f"{escape(incomplete)}*/", "runs/*/") for folder in glob(pattern)}
    return sorted(folder for folder in found if any((Path(folder) / name).is_file() for name in MODEL_FILES))


def complete_model(incomplete: str) -> list[str]:
    """Offer the models that come with regard, then folders."""
    from regard.use.box import box_names

    return [*box_names(), *complete_folder(incomplete)]


def complete_box() -> list[str]:
    """Offer the models that come with regard."""
    from regard.use.box import box_names

    return box_names()


def complete_recipe(incomplete: str) -> list[str]:
    """Offer the recipes that come with regard, then recipe files."""
    from regard.recipe_files import recipe_names

    return [*recipe_names(), *sorted(glob(f"{escape(incomplete)}*.toml"))]


def complete_result() -> list[str]:
    """Offer the recipes with results."""
    from regard.recipe_files import result_names

    return result_names()


def complete_dataset() -> list[str]:
    """Offer the known data sets."""
    from regard.data.known_datasets import DATASETS

    return list(DATASETS)


def complete_experiment() -> list[str]:
    """Offer the experiments of `regard lab`."""
    from regard.lab.experiments import EXPERIMENTS

    return list(EXPERIMENTS)
