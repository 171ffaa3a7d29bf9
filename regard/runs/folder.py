"""Read a run folder; `layout.py` lists its files, and `ownership.py` says who may write to it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from regard.config import from_table
from regard.data.tokenizer import Tokenizer, TokenizerConfig, load_tokenizer
from regard.errors import ConfigError, RegardError
from regard.models.model import Model
from regard.models.store import WEIGHTS
from regard.recipe_files import in_file, read_recipe
from regard.runs.checkpoint import newest_facts
from regard.runs.layout import CHECKPOINTS, RECIPE
from regard.runs.weights import load_model, load_step
from regard.tasks.kinds import TaskConfig
from regard.tasks.task import Task


@dataclass(frozen=True)
class RunFolder:
    """A run folder and what its recipe says about using the model: the task, the tokenizer, the seed."""

    path: Path
    task_config: Any  # one of the configs of `tasks/kinds.py`
    tokenizer_config: TokenizerConfig | None
    seed: int  # of BPE-dropout

    def model(self, device: str | torch.device = "cpu", step: int | None = None) -> Model:
        """Load the best weights, or those of a step."""
        return load_model(self.path, device) if step is None else load_step(self.path, step, device)

    def tokenizer(self) -> Tokenizer | None:
        """Load the tokenizer; None if the task has none."""
        return None if self.tokenizer_config is None else load_tokenizer(self.path)

    def learned_from(self, task: Task) -> bool:
        """Return whether the run was trained on the data of a task: unless its last checkpoint says otherwise."""
        trained = newest_facts(self.path / CHECKPOINTS).get("fingerprint")
        return trained is None or trained == task.fingerprint()

    def open_task(
        self,
        files: Sequence[str] = (),
        say: Callable[[str], None] = lambda text: None,
        columns: Sequence[str] = (),
    ) -> Task:
        """Open files as validation data for the task of this run; without files, the data of the run.

        Tables are read as those of training, unless `columns` says otherwise: `task.text=body`.
        """
        task: Task
        if files:
            task = self.task_config.with_other_columns(columns).evaluation(self.tokenizer(), list(files))
        else:
            given = self.tokenizer_config
            learned = None if given is None else TokenizerConfig(path=str(self.path), dropout=given.dropout)
            task = self.task_config.prepare(learned, self.seed, say)
        return task


def is_run(folder: Path) -> bool:
    """Return whether a folder is a run folder."""
    return (folder / RECIPE).is_file()


def read_run(folder: str | Path) -> RunFolder:
    """Read what the use of a run's model needs; the model and the training options of the recipe are not checked."""
    folder = Path(folder)
    table = read_run_recipe(folder)
    with in_file(folder / RECIPE):
        task = from_table(table.get("task", {}), TaskConfig, "task")
        tokenizer = from_table(table["tokenizer"], TokenizerConfig, "tokenizer") if "tokenizer" in table else None
    train = table.get("train", {})
    seed = train.get("seed", 0) if isinstance(train, dict) else None
    if type(seed) is not int:
        raise ConfigError(f"{seed!r} must be a whole number", f"{folder / RECIPE}: train.seed")
    return RunFolder(folder, task, tokenizer, seed)


def read_run_recipe(folder: Path) -> dict[str, Any]:
    """Read the resolved recipe of a run as a table."""
    if not is_run(folder):
        raise RegardError(not_a_run(folder, "give the folder that `regard train` printed"))
    return read_recipe(folder / RECIPE)


def not_a_run(folder: Path, remedy: str) -> str:
    """Return the message for a folder that is not a run."""
    if not folder.is_dir():
        return f"{folder}: no such folder; {remedy}"
    what = "holds a model but no run" if (folder / WEIGHTS).exists() else "is not the folder of a run"
    return f"{folder}: {what}: there is no {RECIPE}; {remedy}"
