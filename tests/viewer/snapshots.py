"""Untrained runs with training snapshots."""

from pathlib import Path

import torch

from regard.models.model import Model
from regard.models.recipe import build
from regard.training.probe import Snapshots
from regard.training.run import write_config

from ..training.tiny import ALONE, planned

STEPS = (0, 10, 30)


def write(folder: Path, kind: str, recipe: str, *changes: str) -> tuple[Path, list[Model]]:
    """Write an untrained run, whose snapshots have other weights at every step."""
    found = planned(kind, folder, *changes, recipe=recipe)
    found.task.to(ALONE.device)
    run = folder / "a run"
    found.task.save(run)
    write_config(run, found.config)
    models = [build(found.config.model, seed=step) for step in STEPS]
    snapshots = Snapshots(run, found.task, models[0], 30)
    for model, step in zip(models, STEPS, strict=True):
        with torch.no_grad():
            for parameter in model.parameters():
                parameter += 0.3 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(step))
        snapshots.take(model, step)
    return run, models
