"""The folder of a run, and what can be read back from it.

recipe.toml          the resolved config: `regard train RUN/recipe.toml --run OTHER` repeats the run
config.json          the model's part of it, with
model.safetensors    the weights that did best on the validation data
tokenizer.json
checkpoints/         to resume from            averaging/  weights of the last validations
probe/               what the model attended to in one row, at a few steps: see probe.py
metrics.jsonl, samples.jsonl, tensorboard/, curves.png, report.html
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from regard.config import from_table, read_recipe, to_toml
from regard.data.tokenizer import Tokenizer, load_tokenizer
from regard.errors import RegardError
from regard.models.model import Model
from regard.models.store import RECIPE, WEIGHTS, load_model
from regard.tasks.task import Task
from regard.training.config import RunConfig
from regard.training.log import read_metrics

CHECKPOINTS = "checkpoints"
AVERAGING = "averaging"
PROBE = "probe"


@dataclass(frozen=True)
class Run:
    """A run that was trained, or is being trained."""

    folder: Path
    config: RunConfig = field(repr=False)  # which would fill a screen

    @property
    def metrics(self) -> list[dict[str, Any]]:
        """All that was measured, in order; `kind` is "train" or "valid"."""
        return read_metrics(self.folder)

    def model(self, device: str | torch.device = "cpu") -> Model:
        """Load the best weights, ready to use."""
        return load_model(self.folder, device).eval()

    def tokenizer(self) -> Tokenizer | None:
        """Load the tokenizer, if the task has one."""
        return None if self.config.tokenizer is None else load_tokenizer(self.folder)

    def evaluate(self, *files: str | Path, device: str | torch.device = "cpu") -> dict[str, float]:
        """Measure the model on files of its task, or on its own validation data."""
        return self.task(*files, device=device).measure(self.model(device))

    def task(self, *files: str | Path, device: str | torch.device = "cpu") -> Task:
        """Open files, or the run's own data, for the task of this run."""
        config: Any = self.config.task
        if files:
            task: Task = config.evaluation(self.tokenizer(), [str(file) for file in files])
        else:
            given = self.config.tokenizer
            tokenizer = None if given is None else type(given)(path=str(self.folder), dropout=given.dropout)
            task = config.prepare(tokenizer, self.config.train.seed, lambda text: None)
        task.to(torch.device(device))
        return task


def open_run(folder: str | Path) -> Run:
    """Open the folder of a run."""
    folder = Path(folder)
    if not (folder / RECIPE).is_file():
        what = "holds a model but no run" if (folder / WEIGHTS).exists() else "is not the folder of a run"
        raise RegardError(f"{folder}: {what}: there is no {RECIPE}; give the folder that `regard train` printed")
    return Run(folder, from_table(read_recipe(folder / RECIPE), RunConfig))


def check_free(folder: Path) -> None:
    """Refuse a folder for a new run that holds anything of another; it may exist and hold other files."""
    if folder.exists() and not folder.is_dir():
        raise RegardError(f"{folder}: is a file, and a run needs a folder; choose another --run")
    if (folder / RECIPE).exists():
        remedy = f"go on with it by --resume {folder}, or choose another --run"
        raise RegardError(f"{folder}: there is a run here already; {remedy}")
    for name in (WEIGHTS, CHECKPOINTS, AVERAGING, PROBE):
        if (folder / name).exists():
            raise RegardError(f"{folder}: holds {name} of something else; choose another --run")


def create_run(folder: Path, config: RunConfig) -> Run:
    """Make a folder a run: what else it needs must be there already."""
    check_free(folder)
    write_config(folder, config)
    return Run(folder, config)


def write_config(folder: Path, config: RunConfig) -> None:
    """Write the resolved config, whole or not at all."""
    part = folder / f"{RECIPE}.part"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        part.write_text(to_toml(config), encoding="utf-8")
        part.replace(folder / RECIPE)
    except OSError as error:
        what = f"the run folder cannot be written: {error.strerror}"
        raise RegardError(f"{folder}: {what}; make room there, or choose another --run") from None
