"""The models of a run: the best weights, or those after a step."""

from collections.abc import Iterable
from pathlib import Path
from shlex import quote

import torch
from safetensors import SafetensorError
from torch import Tensor

from regard.arguments import check_path
from regard.errors import RegardError
from regard.models.model import Model
from regard.models.recipe import load_recipe
from regard.models.store import CONFIG, WEIGHTS, build_with, read_model, read_tensors
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
    folder = check_path(folder, "folder")
    if CHECKPOINT_NAME.fullmatch(folder.name) and (folder / CHECKSUMS).exists():
        return _with_weights(folder.parent.parent, _of_checkpoint(folder), folder, device)
    check_best(folder)
    return read_model(folder, device)


def check_best(folder: Path) -> None:
    """Raise an error if a folder is a run whose best weights cannot be loaded: there are none yet, or no config."""
    if not (folder / RECIPE).is_file() or (folder / CONFIG).is_file():
        return
    if (folder / WEIGHTS).is_file():
        raise own_module_error(folder)
    steps = saved_steps(folder)
    only = f", only those of {_name_steps(steps)}" if steps else ""
    rule = f"this run has no best weights yet{only}"
    raise RegardError(f"{folder}: {rule}; continue it with: regard train --resume {quote(str(folder))}")


def own_module_error(run: Path) -> RegardError:
    """Return the error for a run that trained a module of the user: its weights are there, but no config."""
    remedy = f"module.load_state_dict(safetensors.torch.load_file({str(run / WEIGHTS)!r}))"
    return RegardError(f"{run}: was trained with a module of your own; read its weights with {remedy}")


def load_step(run: Path, step: int, device: str | torch.device = "cpu") -> Model:
    """Read the model of a run as it was after a step."""
    paths = saved_steps(run)
    if step not in paths:
        known = f"there are weights of {_name_steps(paths)}" if paths else "only its best weights were saved"
        raise RegardError(f"{run}: no weights were saved after step {step}; {known}")
    path = paths[step]
    return _with_weights(run, _of_checkpoint(path) if path.is_dir() else _of_file(path), path, device)


def saved_steps(run: Path) -> dict[int, Path]:
    """Find the weights of each step: in checkpoints, and in the files that are kept for averaging."""
    kept = [(match, path) for path in (run / AVERAGING).glob("*") if (match := STEP_FILE.fullmatch(path.name))]
    found = {int(match[1]): path for match, path in kept} | checkpoint_paths(run / CHECKPOINTS)
    return dict(sorted(found.items()))


def _name_steps(steps: Iterable[int]) -> str:
    there = [str(step) for step in steps]
    return f"step {there[0]}" if len(there) == 1 else f"the steps {', '.join(there)}"


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
