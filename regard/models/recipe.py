"""Recipes: read a model's description by name or path, apply overrides, and build it."""

from dataclasses import dataclass
from pathlib import Path

import torch

from regard.config import Config, Kinds, from_table, to_table
from regard.errors import at
from regard.models.encoder import EncoderConfig
from regard.models.init import initialise
from regard.models.language import LanguageConfig
from regard.models.model import Model
from regard.models.model import ModelConfig as ModelConfig  # with its kinds
from regard.models.recurrent_seq2seq import RecurrentSeq2SeqConfig
from regard.models.seq2seq import Seq2SeqConfig
from regard.models.vision import VisionConfig
from regard.recipe_files import override, read_recipe

MODELS = Kinds(
    "model",
    ModelConfig,
    {
        "language": LanguageConfig,
        "encoder": EncoderConfig,
        "seq2seq": Seq2SeqConfig,
        "recurrent-seq2seq": RecurrentSeq2SeqConfig,
        "vision": VisionConfig,
    },
)

TRAINING_TABLES = ("task", "tokenizer", "train")  # tables of a recipe that describe training, not the model


@dataclass(frozen=True)
class Recipe(Config):
    """A model, what it is about, and the paper it comes from."""

    model: ModelConfig
    about: str = ""
    paper: str = ""


def load_recipe(recipe: str | Path, *overrides: str) -> Recipe:
    """Read a recipe by name or path, with overrides such as `model.depth=4`; tables about training are left out."""
    table = {key: value for key, value in read_recipe(recipe).items() if key not in TRAINING_TABLES}
    return from_table(override(table, overrides), Recipe)


def build(
    recipe: str | Path | Recipe | ModelConfig,
    *overrides: str,
    device: str | torch.device = "cpu",
    dtype: torch.dtype = torch.float32,
    seed: int | None = None,
) -> Model:
    """Build the model of a recipe, with random weights: `build("gpt2", "model.depth=4")`.

    Mistakes are found before memory is allocated. The config is kept as `model.config`.
    """
    if isinstance(recipe, str | Path):
        config = load_recipe(recipe, *overrides).model
    else:
        whole = recipe if isinstance(recipe, Recipe) else Recipe(recipe)
        config = from_table(override(to_table(whole), overrides), Recipe).model if overrides else whole.model
    model = build_empty(config).to(dtype).to_empty(device=device)
    generator = None if seed is None else torch.Generator(device).manual_seed(seed)
    initialise(model, config.init, generator)
    return model


def build_empty(config: ModelConfig) -> Model:
    """Build a model without allocating its weights (on the device `meta`): shapes only."""
    with torch.device("meta"), at("model"):
        model = config.build()
    model.config = config
    return model
