"""The models of a run: the best weights, or those after a step."""

from pathlib import Path

import torch
from safetensors import SafetensorError
from torch import Tensor

from regard.errors import RegardError
from regard.models.model import Model
from regard.models.recipe import load_recipe
from regard.models.store import build_with, read_model, read_tensors
from regard.runs.checkpoint import (
    CHECKPOINT_NAME,
    CHECKSUMS,
    DamageError,
    check_checkpoint,
    checkpoint_paths,
    read_state,
)
from regard.runs.layout import AVERAGING, CHECKPOINTS, RECIPE, STEP_FILE


def load_model(folder: str | Path, device: str | torch.device = "cpu") -> Model:
    """Read a model: from a folder that `save_model` wrote, a run (its best weights) or a checkpoint of a run."""
    folder = Path(folder)
    if CHECKPOINT_NAME.fullmatch(folder.name) and (folder / CHECKSUMS).exists():
        return _with_weights(folder.parent.parent, _of_checkpoint(folder), folder, device)
    return read_model(folder, device)


def load_step(run: Path, step: int, device: str | torch.device = "cpu") -> Model:
    """Read the model of a run as it was after a step."""
    paths = saved_steps(run)
    if step not in paths:
        there = ", ".join(map(str, paths))
        known = f"there are weights of the steps {there}" if paths else "only its best weights were saved"
        raise RegardError(f"{run}: no weights were saved after step {step}; {known}")
    path = paths[step]
    return _with_weights(run, _of_checkpoint(path) if path.is_dir() else _of_file(path), path, device)


def saved_steps(run: Path) -> dict[int, Path]:
    """Find the weights of each step: in checkpoints, and in the files that are kept for averaging."""
    kept = [(match, path) for path in (run / AVERAGING).glob("*") if (match := STEP_FILE.fullmatch(path.name))]
    found = {int(match[1]): path for match, path in kept} | checkpoint_paths(run / CHECKPOINTS)
    return dict(sorted(found.items()))


def _of_checkpoint(path: Path) -> dict[str, Tensor]:
    """Read the weights that validation measured: the moving average if there is one, else the model's own."""
    try:
        check_checkpoint(path)
        state = read_state(path, {})
    except DamageError as damage:
        raise RegardError(f"{path}: the checkpoint is damaged ({damage}); take another step") from None
    prefix = "average/" if any(name.startswith("average/") for name in state) else "model/"
    # copied out of the mapped file into aligned memory; see `read_tensors`
    return {name.removeprefix(prefix): tensor.clone() for name, tensor in state.items() if name.startswith(prefix)}


def _of_file(path: Path) -> dict[str, Tensor]:
    try:
        return dict(read_tensors(path))
    except (OSError, SafetensorError) as error:
        raise RegardError(f"{path}: cannot be read: {error}; take another step") from None


def _with_weights(run: Path, weights: dict[str, Tensor], source: Path, device: str | torch.device) -> Model:
    """Build the model of a run with these weights."""
    return build_with(load_recipe(run / RECIPE).model, weights, source, device)
