"""Keep the last weights, `validate_every` updates apart, to average them at the end (Vaswani et al. 2017)."""

from pathlib import Path

from safetensors.torch import load_file
from torch import Tensor

from regard.models.store import save_weights
from regard.runs.layout import step_name


def keep_weights(folder: Path, step: int, weights: dict[str, Tensor], count: int) -> None:
    """Save the weights of a step, and keep only the last `count` files up to this step.

    Files of later steps are left from before the run was resumed at an earlier step; they will be written again.
    """
    save_weights(weights, folder / f"{step_name(step)}.safetensors")
    needed = last_weights(folder, step, count)
    for path in folder.glob("step-*.safetensors"):
        if path not in needed:
            path.unlink()


def last_weights(folder: Path, step: int, count: int) -> list[Path]:
    """Find the last `count` files up to a step, the oldest first."""
    paths = sorted(folder.glob("step-*.safetensors"))
    return [path for path in paths if step_of(path) <= step][-count:] if count else []


def step_of(path: Path) -> int:
    """Return the step of which a file has the weights."""
    return int(path.stem.removeprefix("step-"))


def mean_of(paths: list[Path]) -> dict[str, Tensor]:
    """Average the weights of several files; integer tensors are taken from the last file."""
    mean = load_file(paths[0])
    for number, path in enumerate(paths[1:], 2):  # one at a time, to bound memory
        for name, tensor in load_file(path).items():
            mean[name] = mean[name].lerp(tensor, 1 / number) if tensor.is_floating_point() else tensor
    return mean
