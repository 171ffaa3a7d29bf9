"""Stages of planning a run (planning.py) that keep the time between updates small: validations and checkpoints."""

from collections.abc import Callable
from dataclasses import replace

from regard.config import Table, from_table
from regard.errors import ConfigError
from regard.training.config import TrainConfig
from regard.training.draft import Draft, chosen_by
from regard.training.execution import estimate_kernels
from regard.training.model_choice import find_facts
from regard.training.request import changed_keys
from regard.training.suggestions import suggest_checkpoints, suggest_part, suggest_rare_until
from regard.training.validation import measured_rows


def limit_validations(draft: Draft) -> None:
    """Make fewer validations, and if need be of a part of the data, where they would take long beside the updates.

    What the user says of validations is kept.
    """
    config, task = from_table(draft.train_table, TrainConfig, "train"), draft.task
    if config.valid_part is not None and task.least_rows is None:
        raise ConfigError(f"{draft.kind} always measures all validation data; leave it out", "train.valid_part")
    said = draft.given["train"].keys() | changed_keys(draft.changes["train"])
    if said & {"validate_every", "rare_until"}:
        return
    cost = cost_of_validation(draft, config)
    source = chosen_by("train.steps, train.tokens and the validation data", limit_validations)
    config = replace(config, rare_until=suggest_rare_until(config, cost(measured_rows(task, config))))
    found: Table = {"rare_until": config.rare_until}
    if task.least_rows is not None and "valid_part" not in said:
        part = suggest_part(config, cost, task.least_rows)
        found |= {} if part is None else {"valid_part": part}
    if task.least_written is not None and "valid_rows" not in said:
        part = suggest_part(config, cost, task.least_written, config.valid_rows)
        found |= {} if part is None else {"valid_rows": part}
    draft.note("train", found, source)
    draft.train_table = draft.train_table | found


def limit_checkpoints(draft: Draft) -> None:
    """Make fewer checkpoints on an accelerator where they would be seconds apart, unless the user wants several."""
    said = draft.given["train"].keys() | changed_keys(draft.changes["train"])
    if draft.device == "cpu" or said & {"checkpoint_every", "keep"}:
        return
    config = from_table(draft.train_table, TrainConfig, "train")
    every = suggest_checkpoints(config, estimate_update(draft, config))
    draft.note("train.checkpoint_every", every, chosen_by("train.steps and the device", suggest_checkpoints))
    draft.train_table = draft.train_table | {"checkpoint_every": every}


def cost_of_validation(draft: Draft, config: TrainConfig) -> Callable[[int | None], float]:
    """Return what measuring some rows, or all, costs in updates.

    On a CPU, the forward pass of a token costs a third of what an update does for it. On an accelerator, a validation
    waits most of the time for its kernels to be launched.
    """
    task, tokens = draft.task, config.tokens * draft.task.passes()
    if draft.device == "cpu":
        return lambda rows: task.validation_cost(rows) / (3 * tokens)
    flops, update = find_facts(draft).flops, estimate_update(draft, config)
    return lambda rows: (estimate_kernels(flops * task.validation_cost(rows)) + task.validation_latency(rows)) / update


def estimate_update(draft: Draft, config: TrainConfig) -> float:
    """Estimate the seconds of an update on an accelerator."""
    passes = draft.task.passes()
    return estimate_kernels(3 * find_facts(draft).flops * config.tokens * passes, passes)
