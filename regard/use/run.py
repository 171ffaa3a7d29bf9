"""The folder of a run, made ready to use."""

from dataclasses import dataclass
from pathlib import Path

import torch

from regard.config import from_table, read_recipe
from regard.data.tokenizer import TokenizerConfig, load_tokenizer
from regard.models.store import RECIPE, load_model
from regard.tasks.kinds import TaskConfig
from regard.use.ready import Origin, Ready, usual_frame


@dataclass(frozen=True, kw_only=True)
class Known:
    """What a run's recipe says of using its model; the model itself is in another file."""

    task: TaskConfig
    tokenizer: TokenizerConfig | None = None


def is_run(folder: Path) -> bool:
    """Tell whether a folder is that of a run."""
    return (folder / RECIPE).is_file()


def open_run(folder: Path, device: torch.device) -> Ready:
    """Read the model of a run, and what its task says of using it."""
    task, tokenizer_config, seed = read_task(folder)
    model = load_model(folder, device)
    tokenizer = None if tokenizer_config is None else load_tokenizer(folder)
    return Ready(
        model=model,
        name=str(folder),
        tokenizer=tokenizer,
        frame=usual_frame(model, tokenizer),
        longest=getattr(task, "longest", None) or getattr(task, "window", None),
        classes=getattr(task, "classes", ()),
        mean=getattr(task, "mean", ()),
        std=getattr(task, "std", ()),
        origin=Origin(str(folder), task, None if tokenizer_config is None else tokenizer_config.dropout, seed),
    )


def read_task(folder: Path) -> tuple[TaskConfig, TokenizerConfig | None, int]:
    """Read what a run was for, how its texts became tokens, and the seed that chose its validation data."""
    table = read_recipe(folder / RECIPE)
    known = from_table({key: table[key] for key in ("task", "tokenizer") if key in table}, Known)
    return known.task, known.tokenizer, int(table.get("train", {}).get("seed", 0))
