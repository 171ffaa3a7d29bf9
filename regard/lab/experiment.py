"""What an experiment is: a claim, and how it is measured, drawn and judged; and the `Lab` that it measures with."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import torch

from regard.atomic import make_folder, write_text
from regard.config import to_toml
from regard.models.model import Model
from regard.models.recipe import build, load_recipe
from regard.runs.checkpoint import checkpoint_steps
from regard.runs.layout import CHECKPOINTS, RECIPE, REPORT
from regard.tasks.kinds import TASKS
from regard.terminal import plain_console
from regard.training.run import Run, open_run
from regard.training.start import resume, train

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Row: TypeAlias = Mapping[str, Any]  # one line of the CSV: texts and numbers by the name of their column

RUNS, RECIPES, DATA = "runs", "recipes", "data"  # folders inside that of an experiment


@dataclass(frozen=True)
class Picture:
    """A plot of the page; `name` is that of its files."""

    name: str
    caption: str
    figure: Figure


@dataclass(frozen=True)
class Verdict:
    """Whether the claim holds, in one or two sentences with numbers; None: the data does not decide it."""

    holds: bool | None
    text: str


@dataclass(frozen=True)
class Experiment:
    """A claim of the lectures that can be measured.

    Texts are plain: blank lines separate paragraphs, `backticks` mark code, and a paragraph indented by four spaces
    keeps its lines. `measure` is called once for each seed; the others see the rows of all seeds, which have the
    column `seed` besides their own.
    """

    name: str
    title: str
    claim: str
    source: str
    method: str
    vary: str
    scales: Mapping[str, Any]  # "tiny", "default" and "full": instances of the file's own dataclass
    measure: Callable[[Lab, Any], Iterable[Row]]
    draw: Callable[[Sequence[Row]], Iterable[Picture]]
    judge: Callable[[Sequence[Row]], Verdict]
    seeds: int = 3
    recipes: bool = False  # whether --recipe makes sense; `Lab.recipe` is None unless it is given
    worked: Callable[[Sequence[Row]], str] | None = None  # a text with a fixed layout, for the terminal and the page
    table: Callable[[Sequence[Row]], Sequence[Row]] | None = None  # the table of the page; default: means over seeds


@dataclass
class Lab:
    """What an experiment measures with: one seed, a device, a folder, models and the trainer of the package."""

    seed: int
    folder: Path
    device: torch.device
    recipe: str | None = None
    say: Callable[[str, float], None] = field(default=lambda text, done: None, repr=False)
    now: tuple[str, float] = ("", 0.0)

    def progress(self, text: str, done: float) -> None:
        """Show what is being measured, and which share of this seed is done (0 to 1)."""
        self.now = (text, done)
        self.say(text, done)

    def build(self, recipe: str, *overrides: str) -> Model:
        """Build the model of a recipe with the weights of this seed; its resolved recipe is kept with the results."""
        found = load_recipe(recipe, *overrides)
        self._keep_recipe(Path(recipe).stem, to_toml(found))
        return build(found, device=self.device, seed=self.seed)

    def train(
        self,
        name: str,
        task: str,
        files: Sequence[str | Path],
        *,
        valid: Sequence[str | Path] = (),
        recipe: str | Path | None = None,
        size: str = "auto",
        steps: int | None = None,
        overrides: Sequence[str] = (),
    ) -> Run:
        """Train with `regard.train` in the folder runs/NAME-SEED; a finished run is opened, a stopped one resumed.

        With `steps`, there are that many updates, and one validation, at the end.
        """
        folder = self.folder / RUNS / f"{name}-{self.seed}"
        if not (folder / REPORT).is_file():  # the last file that training writes
            how: dict[str, Any] = {
                "device": str(self.device),
                "console": plain_console(quiet=True),
                "callbacks": [self],
            }
            if checkpoint_steps(folder / CHECKPOINTS):
                resume(folder, **how)
            else:
                table = TASKS[task].from_files([str(file) for file in files], [str(file) for file in valid])
                length = () if steps is None else (f"train.steps={steps}", f"train.validate_every={steps}")
                changes = (*overrides, *length, f"train.seed={self.seed}")
                what = {"kind": task, **table}
                train(what, *changes, run=folder, overwrite=True, size=size, recipe=recipe, **how)
        run = open_run(folder)
        kept = self.folder / RECIPES / f"{name}.toml"  # of one seed; the others differ in the seed and their files
        if not kept.exists():
            make_folder(kept.parent)
            write_text(kept, (folder / RECIPE).read_text(encoding="utf-8"))
        return run

    def on_update(self, step: int, metrics: Mapping[str, float]) -> None:
        """Show the step of a training run: the trainer calls this."""
        text, done = self.now
        self.say(f"{text}, step {step}", done)

    def file(self, name: str, text: str) -> Path:
        """Write a file of generated data; return its path. A file with this content is left as it is."""
        path = self.folder / DATA / f"{self.seed}" / name
        make_folder(path.parent)
        if not (path.is_file() and path.read_text(encoding="utf-8") == text):
            write_text(path, text)
        return path

    def _keep_recipe(self, name: str, text: str) -> None:
        """Keep a resolved recipe once, under its name, or its name and a number."""
        make_folder(self.folder / RECIPES)
        number = 1
        while True:
            path = self.folder / RECIPES / f"{name}{'' if number == 1 else f'-{number}'}.toml"
            if not path.exists():
                write_text(path, text)
            if path.read_text(encoding="utf-8") == text:
                return
            number += 1
