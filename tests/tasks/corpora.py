"""Tiny corpora, and models that fit them."""

from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from regard.data.tokenizer import TokenizerConfig
from regard.models.model import Model
from regard.models.recipe import build
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
