"""Our training loop as a contestant: batches, schedule, clipping, logs and progress, as `regard train` runs them."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from rich.console import Console

from bench.case import Prepared, Setting
from regard.models.count import flops_per_token
from regard.models.recipe import build_empty, load_recipe
from regard.training.draft import RunPlan
from regard.training.log import Log
from regard.training.loop import Trainer
from regard.training.planning import plan_run
from regard.training.progress import Progress
from regard.training.ranks import Ranks
from regard.training.request import RunRequest
from regard.training.run import Run, write_config
from regard.training.trial import build_model
from regard.training.window import LogWindow

STEPS = 10_000  # of a run, from which follows how updates are executed
ENDLESS = (
    f"train.steps={STEPS}",
    *("train.validate_every=100000", "train.checkpoint_every=100000", "train.patience=none"),
)
ADAM = ("train.optimizer.kind=adamw", "train.optimizer.rate=0.0001")
NO_DROPOUT = ("model.embed.dropout=0.0", "model.layers.block.dropout=0.0", "model.layers.block.mixer.dropout=0.0")
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz .,;:!?'-&3$\n"
COUNTED = 50  # draws, over which useful tokens are averaged


def random_text(size: int) -> str:
    """Return random letters, blanks and lines, with as many different characters as tinyshakespeare."""
    letters = np.array(list(LETTERS))
    return "".join(letters[np.random.default_rng(0).integers(len(letters), size=size)])


def write_once(path: Path, make: Callable[[], str]) -> str:
    """Write a file; return its name."""
    path.write_text(make(), encoding="utf-8")
    return str(path)


def start_trainer(
    setting: Setting, request: RunRequest, vocabulary: int | None = None, endless: bool = True
) -> Trainer:
    """Return the trainer of a run; a `vocabulary` makes the model larger than its text needs."""
    ranks = Ranks(0, 1, torch.device(setting.device))
    overrides = (*(ENDLESS if endless else ()), *request.overrides, f"train.threads={setting.threads}")
    request = replace(request, overrides=overrides)
    plan: RunPlan = plan_run(request, ranks)
    if vocabulary is not None:
        assert plan.config.model is not None
        model = replace(plan.config.model, vocabulary=vocabulary)  # type: ignore[call-arg]
        plan = replace(plan, config=replace(plan.config, model=model))
    plan.task.to(ranks.device)
    folder = setting.folder / "run"
    write_config(folder, plan.config)
    progress = Progress(Console(quiet=True), plan.config.train.steps, 10)
    return Trainer(Run(folder, plan.config), plan.task, build_model(plan.config, ranks), ranks, progress)


def updates_of(trainer: Trainer, updates: int) -> Callable[[], None]:
    """Return a function that runs updates, with their logs and progress."""
    draws, log = trainer.draws(), Log(trainer.run.folder)

    def run() -> None:
        window = LogWindow()
        for _ in range(updates):
            window.add(trainer.advance(draws))
            if trainer.step % trainer.config.log_every == 0:
                trainer.show(log, window)
                window = LogWindow()

    return run


def our_loop(setting: Setting, request: RunRequest, updates: int, vocabulary: int | None = None) -> Prepared:
    """Prepare our training loop; the amount are the useful tokens (or images) of its updates."""
    trainer = start_trainer(setting, request, vocabulary)
    facts = {"parameters": float(sum(weight.numel() for weight in trainer.model.parameters()))}
    return Prepared(updates_of(trainer, updates), updates * useful(trainer), facts, updates)


def useful(trainer: Trainer) -> float:
    """Return the labels of an update, in the mean over some draws."""
    counts = []
    for draw, epoch, _ in trainer.draws():
        labels = trainer.feed.batch(draw, epoch)["labels"]
        counts.append(int((labels >= 0).sum()))
        if len(counts) == COUNTED:
            break
    return float(np.mean(counts))


def training_operations(recipe: str, *overrides: str, length: int | None = None) -> float:
    """Return the operations of training on one token: three times those of the forward pass."""
    return 3.0 * flops_per_token(build_empty(load_recipe(recipe, *overrides).model), length)
