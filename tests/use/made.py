"""LoadedModel models, and folders of runs that were never trained: small random weights, in float64."""

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from regard.data.tokenizer import Tokenizer, TokenizerConfig, train_tokenizer
from regard.data.trees import parse_tree
from regard.data.vocabulary import SPECIAL
from regard.decode.engine import eager
from regard.models.model import Model, StepModel
from regard.models.recipe import build
from regard.models.store import save_model
from regard.models.template import Template
from regard.tasks.linear_trees import symbol_names
from regard.tasks.proteins import protein_tokenizer
from regard.use.bundle import Bundle
from regard.use.loaded_model import LoadedModel

from ..laws.cases import SHRINK
from ..tasks.corpora import sentences, walks, write, write_chains

RECIPE = {
    "translation": "transformer-base",
    "language": "gpt2",
    "masked": "bert",
    "classification": "bert",
    "vision": "vit",
    "trajectories": "forecaster",
    "parsing": "transformer-base",
    "residues": "annotator",
}
WITHOUT_TEXT = ("vision", "trajectories")
TREES = (
    "(S (NP (CD one) (JJ red) (NN dog)) (VP (VBZ runs)))",
    "(S (NP (NP (CD two) (JJ blue) (NN cat)) (PP (IN three))) (VP (VBZ sleeps)))",
    "(NP (JJ green) (NN dog) (NN cat))",
)
CLASSES = ("high", "low", "middle")


@cache
def tokenizer_of(kind: str = "word") -> Tokenizer:
    """A tokenizer of a few words, with some letters that take several bytes."""
    sizes = {"bpe": 300, "unigram": 60}
    texts = [*sentences(200), "grüne Bäume, schöne Häuser. 日本語 😀"] * 2
    if kind == "trees":
        return tokenizer_of("bpe").adding(symbol_names(map(parse_tree, TREES)))
    if kind == "residues":
        return protein_tokenizer(TokenizerConfig("char"))
    return train_tokenizer(texts, TokenizerConfig(kind, sizes.get(kind)))


def model_of(kind: str, tokenizer: str = "word", recipe: str | None = None, *changes: str) -> Model:
    """Build the shrunk model of a task, with weights that matter; tests may choose other recipes in RECIPE."""
    return _model_of(kind, tokenizer, recipe or RECIPE[kind], *changes)


@cache
def _model_of(kind: str, tokenizer: str, recipe: str, *changes: str) -> Model:
    overrides = [change for change in SHRINK[recipe] if not change.startswith("model.vocabulary")]
    if kind not in WITHOUT_TEXT:
        overrides.append(f"model.vocabulary={tokenizer_of(tokenizer).size}")
    if kind in ("classification", "vision"):
        overrides += ["model.head.kind=classes", f"model.head.classes={len(CLASSES)}"]
    model = build(recipe, *overrides, *changes, dtype=torch.float64, seed=0)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.3 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
        if kind == "translation":  # so that even random weights generate words
            model.embed.tokens.table.weight[: len(SPECIAL)] = 0.0
    return model.eval()


def loaded(
    kind: str, tokenizer: str = "word", recipe: str | None = None, *changes: str, **facts: object
) -> LoadedModel:
    """A model ready to use, without a folder."""
    model = model_of(kind, tokenizer, recipe, *changes)
    text = None if kind in WITHOUT_TEXT else tokenizer_of(tokenizer)
    engine = eager(model) if isinstance(model, StepModel) else None
    images = {"mean": (0.5,) * 3, "std": (0.2,) * 3} if kind == "vision" else {}
    classes = CLASSES if kind in ("classification", "vision") else ()
    known = {
        "name": "here",
        "tokenizer": text,
        "template": Template() if text is None else model.template(text),
        "classes": classes,
    }
    return LoadedModel(Bundle(**{"model": model, "engine": engine, **known, **images, **facts}))


def answers(pairs: Iterator[tuple[str, Any]]) -> Iterator[Any]:
    """Yield the answers without their lines."""
    return (answer for _, answer in pairs)


def run(kind: str, folder: Path, tokenizer: str = "word") -> Path:
    """Write what a run leaves and using it needs: the recipe, the tokenizer, the model."""
    folder.mkdir(parents=True)
    tokenizer = {"parsing": "trees", "residues": "residues"}.get(kind, tokenizer)
    save_model(model_of(kind, tokenizer), folder)
    lines = sentences(80, seed=5)
    task: dict[str, object] = {"kind": kind}
    if kind == "translation":
        turned = [" ".join(reversed(line.split())) for line in lines]
        task |= {"source": [write(folder / "a.txt", lines)], "target": [write(folder / "b.txt", turned)], "longest": 12}
    elif kind == "parsing":
        task |= {"train": [write(folder / "a.mrg", [*TREES] * 9)], "valid": [write(folder / "b.mrg", [*TREES])]}
    elif kind == "vision":
        task |= {"train": "nowhere", "classes": list(CLASSES), "mean": [0.5] * 3, "std": [0.2] * 3}
    elif kind == "residues":
        task |= {"train": [write_chains(folder / "a.tsv")], "alignment": "alignment"}
    elif kind == "trajectories":
        task |= {"train": [walks(folder / "a.txt")], "observed": 3, "predicted": 2}
    else:
        task |= {"train": [write(folder / "a.txt", lines)]}
        task |= {"classes": list(CLASSES)} if kind == "classification" else {"window": 16}
    rows = [f"{key} = {_toml(value)}" for key, value in task.items()]
    rows = ["[task]", *rows]
    if kind not in WITHOUT_TEXT:
        kinds = {"trees": "bpe", "residues": "char"}
        tokenizer_of(tokenizer).save(folder)
        rows += ["[tokenizer]", f'kind = "{kinds.get(tokenizer, tokenizer)}"']
    write(folder / "recipe.toml", rows)
    return folder


def _toml(value: object) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    return f'"{value}"' if isinstance(value, str) else str(value)


def image(path: Path, seed: int = 0, size: tuple[int, int] = (8, 12)) -> Path:
    """Write a random image."""
    from PIL.Image import fromarray

    pixels = np.random.default_rng(seed).integers(0, 255, (*size, 3), dtype=np.uint8)
    fromarray(pixels).save(path)
    return path
