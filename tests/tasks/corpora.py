"""Tiny corpora, and models that fit them."""

import json
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from regard.data.tokenizer import TokenizerConfig
from regard.models.model import Model
from regard.models.recipe import build
from regard.models.residues import AMINO_ACIDS
from regard.tasks.kinds import TASKS
from regard.tasks.task import Task

from ..laws.cases import SHRINK

WORDS = ("red", "green", "blue", "one", "two", "three", "dog", "cat", "runs", "sleeps")


def sentences(count: int, seed: int = 0, shortest: int = 2, longest: int = 7) -> list[str]:
    """Return random sentences of a few words."""
    chance = np.random.default_rng(seed)
    return [" ".join(chance.choice(WORDS, chance.integers(shortest, longest + 1))) for _ in range(count)]


def write(path: Path, lines: list[str]) -> str:
    """Write lines and return the name of the file."""
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return str(path)


def walks(path: Path, steps: int = 30, agents: int = 3, seed: int = 0) -> str:
    """Write tracks of agents that walk on noisy lines; agent n appears n steps late. Return the name of the file."""
    chance = np.random.default_rng(seed)
    speeds = chance.normal(0, 0.5, (agents, 2))
    rows = [
        f"{10 * step}\t{agent + 1}.0\t{x:.3f}\t{y:.3f}"
        for step in range(steps)
        for agent in range(min(step + 1, agents))
        for x, y in [speeds[agent] * step + chance.normal(0, 0.05, 2) + 3 * agent]
    ]
    return write(path, rows)


def prepare(kind: str, tokenizer: TokenizerConfig | None = None, seed: int = 0, **values) -> Task:
    """Read the files of a task, as a run does."""
    return TASKS[kind](**values).prepare(tokenizer or TokenizerConfig("word", 50), seed, lambda text: None)


def model_for(task: Task, recipe: str, *changes: str) -> Model:
    """Build the shrunk model of a recipe in the vocabulary of the task, with weights that matter; without dropout."""
    overrides = [change for change in SHRINK[recipe] if not change.startswith("model.vocabulary")]
    model = build(recipe, *overrides, f"model.vocabulary={task.tokenizer.size}", *changes, dtype=torch.float64, seed=0)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.2 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
    return model.eval()


def nll(logits: Tensor, labels: Tensor) -> float:
    """Sum -log p of the labels, directly from the definition."""
    return -sum(float(F.log_softmax(row, -1)[label]) for row, label in zip(logits, labels.tolist(), strict=True))


def write_chains(path: Path, count: int = 12, seed: int = 0, rows: int = 3) -> str:
    """Write random chains as a table: alanine, leucine and glutamate are helix, valine and isoleucine strand."""
    chance = np.random.default_rng(seed)
    lines = ["id\tsequence\tstructure\talignment"]
    for number in range(count):
        letters = chance.choice(list(AMINO_ACIDS), chance.integers(9, 30))
        states = "".join("H" if letter in "ALE" else "E" if letter in "VI" else "_" for letter in letters)
        others = []
        for _ in range(int(chance.integers(0, rows + 1))):
            changed = np.where(chance.random(len(letters)) < 0.2, chance.choice(list("ACD-"), len(letters)), letters)
            others.append("".join(changed))
        lines.append(f"c{number}\t{''.join(letters)}\t{states}\t{' '.join(others)}")
    return write(path, lines)


def write_structures(path: Path, count: int = 8, seed: int = 0) -> str:
    """Write random walks as structures, one in each line."""
    chance = np.random.default_rng(seed)
    lines = []
    for number in range(count):
        length = int(chance.integers(28, 40))
        places = np.cumsum(chance.normal(size=(length, 3)) * 2.2, 0).round(2).tolist()
        sequence = "".join(chance.choice(list(AMINO_ACIDS), length))
        lines.append(json.dumps({"id": f"s{number}", "chain": "A", "seq": sequence, "CA": places}))
    return write(path, lines)
