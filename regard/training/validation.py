"""Validation while a model is trained."""

from regard.tasks.task import Task
from regard.training.config import TrainConfig


def measured_rows(task: Task, config: TrainConfig) -> int | None:
    """Return how many rows a validation measures: of those that are written, or of those that are read; None: all."""
    return config.valid_rows if task.least_rows is None else config.valid_part
