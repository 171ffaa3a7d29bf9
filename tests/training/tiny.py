"""Tiny runs of every task, in this process: random data, shrunk models, and a trainer that prints into a text."""

from io import StringIO
from pathlib import Path

import numpy as np
import torch
from rich.console import Console

from regard.training.draft import RunPlan
from regard.training.loop import Trainer
from regard.training.planning import plan_run
from regard.training.progress import Progress
from regard.training.ranks import Ranks
from regard.training.request import RunRequest
from regard.training.run import Run, write_config
from regard.training.trial import build_model

from ..laws.cases import SHRINK
from ..tasks.corpora import sentences, walks, write, write_chains, write_structures

ALONE = Ranks(0, 1, torch.device("cpu"))
STILL = {  # without dropout
    "gpt2": ("embed.dropout", "layers.block.dropout", "layers.block.mixer.dropout"),
    "lstm": ("embed.dropout", "layers.recurrent.dropout"),
    "bert": ("embed.dropout", "layers.block.dropout", "layers.block.mixer.dropout"),
    "translator": ("embed.dropout", "encoder.layers.block.dropout", "decoder.layers.block.dropout"),
    "deepseek-like": (),
    "rnn-attention": ("embed.dropout", "dropout", "encoder.layers.recurrent.dropout"),
    "vit": ("dropout", "layers.block.dropout", "layers.block.mixer.dropout"),
    "forecaster": ("layers.block.dropout",),
    "word2vec": (),
}
RECIPE = {
    "language": "gpt2",
    "masked": "bert",
    "vectors": "word2vec",
    "classification": "bert",
    "translation": "translator",
    "vision": "vit",
    "trajectories": "forecaster",
}


def shrunk(recipe: str, *, still: bool = False) -> list[str]:
    """Return overrides that make a recipe small, for data of any vocabulary and any classes."""
    fixed = ("model.vocabulary", "model.patches.height", "model.patches.width", "model.head.classes")
    changes = [change for change in SHRINK[recipe] if not change.startswith(fixed)]
    return changes + ([f"model.{place}=0.0" for place in STILL[recipe]] if still else [])


def training(steps: int = 12, **changes: object) -> list[str]:
    """Return overrides for a short training in which no two events happen at the same step."""
    given = {"steps": steps, "tokens": 64, "validate_every": 4, "checkpoint_every": 3, "log_every": 5, **changes}
    return [f"train.{key}={value}" for key, value in given.items()]


def data(kind: str, folder: Path) -> dict[str, object]:
    """Write data for a task and return its table."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = sentences(100, seed=1)
    if kind in ("language", "masked", "vectors"):
        return {"kind": kind, "train": [write(folder / "text.txt", lines)], "window": 8}
    if kind == "translation":
        turned = [" ".join(reversed(line.split())) for line in lines]
        source, target = write(folder / "a.txt", lines), write(folder / "b.txt", turned)
        return {"kind": kind, "source": [source], "target": [target]}
    if kind == "classification":
        rows = [f"{line}\t{line.split()[0][0]}" for line in lines]
        return {"kind": kind, "train": [write(folder / "table.tsv", ["text\tlabel", *rows])]}
    if kind == "trajectories":
        steps = {"observed": 3, "predicted": 2}
        return {"kind": kind, "train": [walks(folder / "walks.txt", steps=60)], **steps}
    if kind == "parsing":
        trees = [f"(S {' '.join(f'(NN {word})' for word in line.split())})" for line in lines]
        return {"kind": kind, "train": [write(folder / "trees.mrg", trees)]}
    if kind == "residues":
        return {"kind": kind, "train": [write_chains(folder / "chains.tsv")]}
    if kind == "distances":
        return {"kind": kind, "train": [write_structures(folder / "structures.jsonl")]}
    chance = np.random.default_rng(0)
    pixels = chance.integers(0, 255, (40, 8, 12, 1), dtype=np.uint8)
    np.savez(folder / "images.npz", images=pixels, labels=chance.integers(0, 5, 40))
    return {"kind": kind, "train": str(folder / "images.npz")}


def plan(what: object, *overrides: str, **options: object) -> RunPlan:
    """Plan a run as `regard.train` does, on the CPU."""
    return plan_run(RunRequest(what, overrides, **options), ALONE)


def planned(kind: str, folder: Path, *changes: str, recipe: str | None = None, still: bool = False) -> RunPlan:
    """Plan a tiny run; words are tokens."""
    recipe = recipe or RECIPE[kind]
    words = [] if kind in ("vision", "trajectories") else ["tokenizer.kind=word"]
    size = {"translation": 512, "vision": 60}.get(kind, 64)  # tokens of an update: at least eight rows
    overrides = [*shrunk(recipe, still=still), *words, *training(tokens=size), *changes]
    return plan(data(kind, folder), *overrides, recipe=recipe)


def make_trainer(found: RunPlan, folder: Path) -> tuple[Trainer, StringIO]:
    """Build the trainer of a run; also return what it prints."""
    said = StringIO()
    progress = Progress(Console(file=said, width=200), found.config.train.steps, 1)
    write_config(folder, found.config)  # the evaluation at the end reads the run from its folder
    found.task.save(folder)
    found.task.to(ALONE.device)
    model = build_model(found.config, ALONE)
    return Trainer(Run(folder, found.config), found.task, model, ALONE, progress), said
