"""A run: what `regard.train` and `regard.open_run` return."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from regard.arguments import check_path
from regard.atomic import make_folder, write_text
from regard.config import from_table, kind_of, to_toml
from regard.data.tokenizer import Tokenizer
from regard.html_table import html_table
from regard.models.model import Model, ModelConfig
from regard.recipe_files import in_file
from regard.runs.folder import RunFolder, read_run_recipe
from regard.runs.layout import RECIPE
from regard.runs.records import read_metrics
from regard.runs.weights import own_module_error
from regard.tasks.task import Task
from regard.training.config import RunConfig
from regard.training.notebook_progress import curve_svg
from regard.training.result import read_result
from regard.use.evaluate import Evaluation
from regard.use.load import load
from regard.use.loaded_model import LoadedModel


@dataclass(frozen=True)
class Run:
    """A run that was trained, or is being trained. It can be given wherever the path of a run folder can."""

    folder: Path
    config: RunConfig = field(repr=False)  # left out because it is long

    def __fspath__(self) -> str:
        return str(self.folder)

    def _repr_html_(self) -> str:
        """Return a table of what the run has reached, and its curve."""
        lines = self.metrics
        curves = {
            kind: [(one["step"], one["loss"]) for one in lines if one["kind"] == kind and one.get("loss") is not None]
            for kind in ("train", "valid")
        }
        result = read_result(self.folder)
        step = lines[-1]["step"] if lines else 0
        rows: list[tuple[str, object]] = [
            ("folder", self.folder),
            ("task", kind_of(type(self.config.task))),
            ("steps", f"{step:,} of {self.config.train.steps:,}"),
        ]
        if result is not None:
            rows += [("weights of", result.weights), *result.evaluation.shown()]
        return html_table((), rows, "a run") + curve_svg(curves["train"], curves["valid"])

    @property
    def files(self) -> RunFolder:
        """The run folder, from which the model, the tokenizer and the data are read."""
        config = self.config
        return RunFolder(self.folder, config.task, config.tokenizer, config.train.seed)

    @property
    def metrics(self) -> list[dict[str, Any]]:
        """All lines of `metrics.jsonl`, in order; `kind` is "train" or "valid"."""
        return read_metrics(self.folder)

    @property
    def model_config(self) -> ModelConfig:
        """The config of the model; an error if the run trained a module of the user, which has none."""
        if self.config.model is None:
            raise own_module_error(self.folder)
        return self.config.model

    def model(self, device: str | torch.device = "cpu", step: int | None = None) -> Model:
        """Load the best weights, or those of a step, as a module in evaluation mode."""
        _ = self.model_config  # raises an error if there is none
        return self.files.model(device, step).eval()

    def tokenizer(self) -> Tokenizer | None:
        """Load the tokenizer; None if the task has none."""
        return self.files.tokenizer()

    def task(self, *files: str | Path, device: str | torch.device = "cpu") -> Task:
        """Open files, or the run's own data, for the task of this run."""
        task = self.files.open_task([str(file) for file in files])
        task.to(torch.device(device))
        return task

    def load(self, device: str = "auto", step: int | None = None) -> LoadedModel:
        """Load the model with a method for every verb, as `regard.load` does."""
        _ = self.model_config  # raises an error if there is none
        return load(self.folder, device, step=step)

    def evaluate(self, *files: str | Path, beam: int | None = None, device: str = "auto") -> Evaluation:
        """Measure the best weights on files of the task, or on the run's validation data, as `regard evaluate` does."""
        return self.load(device).evaluate(*files, beam=beam)


def open_run(folder: str | Path) -> Run:
    """Open the folder of a run."""
    folder = check_path(folder, "folder")
    with in_file(folder / RECIPE):
        return Run(folder, from_table(read_run_recipe(folder), RunConfig))


def write_config(folder: Path, config: RunConfig) -> None:
    """Write the resolved recipe."""
    remedy = "free some space, or choose another run=FOLDER"
    make_folder(folder, remedy)
    write_text(folder / RECIPE, to_toml(config), remedy)
