"""Recipes: read a model's description by name or path, apply overrides, and build it."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, is_dataclass
from numbers import Integral
from pathlib import Path
from threading import get_ident
from typing import Any

import torch
from torch.nn.modules.module import (
    register_module_module_registration_hook,
    register_module_parameter_registration_hook,
)

from regard.config import Config, Kinds, field_types, from_table, to_table
from regard.errors import ConfigError, InputError, at
from regard.models.encoder import EncoderConfig
from regard.models.evoformer import EvoformerConfig
from regard.models.init import allocate, initialise, without_memory
from regard.models.language import LanguageConfig
from regard.models.model import Model
from regard.models.model import ModelConfig as ModelConfig  # with its kinds
from regard.models.recurrent_seq2seq import RecurrentSeq2SeqConfig
from regard.models.seq2seq import Seq2SeqConfig
from regard.models.trajectory import TrajectoryConfig
from regard.models.vision import VisionConfig
from regard.models.word2vec import Word2VecConfig
from regard.recipe_files import find_lost_keys, in_file, override, read_recipe

MODELS = Kinds(
    "model",
    ModelConfig,
    {
        "language": LanguageConfig,
        "encoder": EncoderConfig,
        "seq2seq": Seq2SeqConfig,
        "recurrent-seq2seq": RecurrentSeq2SeqConfig,
        "vision": VisionConfig,
        "trajectory": TrajectoryConfig,
        "evoformer": EvoformerConfig,
        "word2vec": Word2VecConfig,
    },
)

LARGEST = 2**24  # a number in the description of a model, which may be the size of a table in memory
TRAINING_TABLES = ("task", "tokenizer", "train", "result", "box")  # tables of a recipe that are not about the model


@dataclass(frozen=True)
class Recipe(Config):
    """A model, what it is about, and the paper it comes from."""

    model: ModelConfig
    about: str = ""
    paper: str = ""


def load_recipe(recipe: str | Path, *overrides: str) -> Recipe:
    """Read a recipe by name or path, with overrides such as `model.depth=4`; tables about training are left out."""
    whole = read_recipe(recipe)
    with in_file(recipe, overrides):
        table = override({key: value for key, value in whole.items() if key not in TRAINING_TABLES}, overrides)
        model = table.get("model", {})
        if "task" in whole and isinstance(model, Mapping) and "kind" not in model:
            remedy = f"`regard train {recipe} --dry-run` shows it"
            raise ConfigError(f"this recipe describes a training whose model depends on the data; {remedy}", "model")
        return from_table(table, Recipe)


def caution_of_lost_keys(recipe: str | Path, model: ModelConfig) -> str:
    """Return a caution of inherited keys of the model that a recipe loses by another `kind`, which has them, too.

    "" if there are none: the other keys do not suit the new kind, or have the same value there.
    """
    table = to_table(Recipe(model))
    lost = [
        f"{path}={json.dumps(value)}"
        for path, value in find_lost_keys(recipe)
        if path.startswith("model.")
        and _has_field(model, path.split(".")[1:])
        and not _agrees(value, _value_at(table, path.split(".")))
    ]
    if not lost:
        return ""
    again = "write it again to keep it" if len(lost) == 1 else "write them again to keep them"
    return f"{recipe} does not inherit {', '.join(lost)}, since it changes the kind of the table; {again}"


def _has_field(config: Any, keys: Sequence[str]) -> bool:
    """Return whether the config at the end of this path, below another one, has the last key."""
    key, *rest = keys
    if not rest:
        return is_dataclass(config) and key in field_types(type(config))
    below = config.get(key) if isinstance(config, Mapping) else getattr(config, key, None)
    return _has_field(below, rest)


def _value_at(table: Any, keys: Sequence[str]) -> Any:
    for key in keys:
        table = table.get(key) if isinstance(table, Mapping) else None
    return table


def _agrees(said: Any, found: Any) -> bool:
    """Return whether a value, or every value that a table has, is also in the resolved table."""
    if isinstance(said, Mapping) and isinstance(found, Mapping):
        return all(_agrees(value, found.get(key)) for key, value in said.items())
    return bool(said == found)


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
    if not (isinstance(dtype, torch.dtype) and dtype.is_floating_point):
        raise InputError(f"dtype={dtype!r} must be a precision of torch, such as torch.bfloat16")
    if seed is not None and not (isinstance(seed, Integral) and -(2**63) <= seed < 2**64):
        raise InputError(f"seed={seed!r} must be a whole number of at most 64 bits")
    if isinstance(recipe, str | Path):
        config = load_recipe(recipe, *overrides).model
    else:
        whole = recipe if isinstance(recipe, Recipe) else Recipe(recipe)
        config = from_table(override(to_table(whole), overrides), Recipe).model if overrides else whole.model
    model = allocate(build_empty(config).to(dtype), device)
    generator = None if seed is None else torch.Generator(device).manual_seed(int(seed))
    initialise(model, config.init, generator)
    return model


def build_empty(config: ModelConfig, most: int | None = None) -> Model:
    """Build a model without allocating its weights (on the device `meta`): shapes only.

    With `most`, building stops with an error when the model has more parts (modules and weights) than that.
    """
    for path, number in whole_numbers(to_table(config), "model"):
        if number > LARGEST:
            raise ConfigError(f"{number} must be at most {LARGEST}", path)
    with without_memory(), at("model"), nullcontext() if most is None else _at_most(most):
        model = config.build()
    model.config = config
    return model


def whole_numbers(value: Any, path: str) -> Iterator[tuple[str, int]]:
    """Yield the whole numbers in a table with their paths. Any of them may be the size of a weight."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from whole_numbers(item, f"{path}.{key}")
    elif type(value) is int:
        yield path, value


@contextmanager
def _at_most(most: int) -> Iterator[None]:
    """Raise a `ConfigError` when this thread has built more than `most` modules and weights."""
    thread, built = get_ident(), 0

    def count(*registered: Any) -> None:
        nonlocal built
        built += get_ident() == thread
        if built > most:
            raise ConfigError("describes a model of many more parts than there are weights in its file")

    with register_module_module_registration_hook(count), register_module_parameter_registration_hook(count):
        yield
