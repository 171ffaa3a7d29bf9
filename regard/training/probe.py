"""Snapshots of attention: how the attention to one validation row develops, from the first step to the last.

    probe/inputs.safetensors           the row: source and target, tokens, or images
    probe/step-00000010.safetensors    after that step: the weights (H T S, float16) of each attention, by its name

They are small: there are few of them, and the row is chosen so that the weights of all heads together stay below a
limit. What is learned does not depend on them, and a resumed run writes the same ones.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from math import sqrt
from pathlib import Path
from shlex import quote

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from regard.errors import RegardError
from regard.models.model import Model, unwrapped
from regard.models.store import save_weights
from regard.parts.watch import Watchable, watch
from regard.runs.layout import PROBE, RECIPE, STEP_FILE, step_name
from regard.tasks.task import Batch, Task
from regard.tasks.text import spread
from regard.training.background import Work, at_once

INPUTS = "inputs.safetensors"
GAPS = 18  # between snapshots; fewer if a run is short
LIMIT = 256 * 1024  # bytes of the weights in one snapshot
LONGEST, SHORTEST = 64, 8  # tokens of the row: at most, and at least when it is shortened for the limit


def probe_steps(steps: int) -> list[int]:
    """Choose the steps for snapshots: close together at first, when most happens, from 0 to the last."""
    return sorted({(2 * steps * number**3 + GAPS**3) // (2 * GAPS**3) for number in range(GAPS + 1)})


# --- while a model learns --------------------------------------------------------------------------------------------


class Snapshots:
    """Takes the snapshots of a run; a model without attention has none."""

    def __init__(self, folder: Path, task: Task, model: nn.Module, steps: int) -> None:
        self.folder = folder / PROBE
        self.task = task
        self.attends = any(isinstance(module, Watchable) for module in model.modules())
        self.steps = frozenset(probe_steps(steps))
        self.inputs: Batch | None = None

    def begin(self, step: int) -> None:
        """Remove the snapshots after the step from which the run is resumed; new ones are of the same row.

        If the data has changed since, the task would choose another row.
        """
        for later, path in _paths(self.folder).items():
            if later > step:
                path.unlink(missing_ok=True)
        if step > 0 and (self.folder / INPUTS).exists():
            kept = _read(self.folder / INPUTS, f"remove {self.folder}, and the run writes new snapshots")
            self.inputs = {name: kept[name].to(self.task.device) for name in self.task.probe()}

    def wanted(self, step: int, ends: bool) -> bool:
        """Return whether to take a snapshot: at the chosen steps, and where a run `ends` early."""
        return self.attends and (ends or step in self.steps)

    def take(self, model: nn.Module, step: int, do: Callable[[Work], object] = at_once) -> None:
        """Write what the model attends to after a step; `do` may write it later."""
        inputs = self.inputs = fitting_inputs(model, self.task) if self.inputs is None else self.inputs
        weights = bounded(probe_weights(model, inputs))
        row = {name: tensor.cpu() for name, tensor in inputs.items()}

        def write() -> None:
            if step == 0 or not (self.folder / INPUTS).exists():
                save_weights(row, self.folder / INPUTS)
            save_weights(weights, self.folder / f"{step_name(step)}.safetensors")

        do(write)


def probe_weights(model: nn.Module, inputs: Batch) -> dict[str, Tensor]:
    """Return the weights of each attention for a batch of one; the model and the random generators do not change.

    Of a model that lists its attentions, only these count: others may not be between the tokens of the row.
    """
    training = model.training
    plain = unwrapped(model)
    listed = {role.name for role in plain.attentions()} if isinstance(plain, Model) else set()
    model.eval()
    try:
        with torch.no_grad():
            with watch(model) as tape:
                model(*inputs.values())
            return {
                name: tape.weights(name)[0].to(torch.float16).cpu()
                for name, calls in tape.items()
                if calls and (not listed or name in listed)
            }
    finally:
        model.train(training)


def fitting_inputs(model: nn.Module, task: Task) -> Batch:
    """Shorten the row until the weights of all heads are within the limit; images stay as they are."""
    longest = LONGEST
    while True:
        inputs = task.probe(longest)
        size = _bytes(probe_weights(model, inputs).values())
        if size <= LIMIT or longest <= SHORTEST:
            return inputs
        length = max(tensor.shape[1] for tensor in inputs.values())
        longest = max(SHORTEST, min(length - 1, int(length * sqrt(LIMIT / size))))


def bounded(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Drop weights beyond the limit, which can happen with images: middle layers first, then heads of the last."""
    names = list(weights)
    for count in range(len(names), 1, -1):
        chosen = {names[place]: weights[names[place]] for place in spread(np.arange(len(names)), count)}
        if _bytes(chosen.values()) <= LIMIT:
            return chosen
    last = names[-1]
    return {last: weights[last][: max(1, LIMIT // _bytes([weights[last][0]]))]}


def _bytes(weights: Iterable[Tensor]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in weights)


# --- afterwards ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Probe:
    """The snapshots of a run: the inputs of the model, and the steps."""

    folder: Path
    inputs: dict[str, Tensor]  # in the order of the model's `forward`
    steps: tuple[int, ...]

    def weights(self, step: int) -> dict[str, Tensor]:
        """Read the weights (H T S) of each attention after a step."""
        path = _paths(self.folder).get(step)
        if path is None:
            there = ", ".join(map(str, self.steps))
            raise RegardError(f"{self.folder}: there is no snapshot of step {step}; there are those of {there}")
        return _read(path, "remove it to look at the other steps")


def read_probe(folder: str | Path) -> Probe:
    """Open the snapshots in the folder of a run."""
    folder = Path(folder)
    steps = tuple(_paths(folder / PROBE))
    remedy = f"`regard train {quote(str(folder / RECIPE))} --run OTHER` makes new ones"
    if not steps:
        cause = "its model has no attention, or an older version trained it"
        raise RegardError(f"{folder}: the run has no snapshots of attention: {cause}; {remedy}")
    return Probe(folder / PROBE, _read(folder / PROBE / INPUTS, remedy), steps)


def _paths(folder: Path) -> dict[int, Path]:
    """Find the snapshots by step, the first one first."""
    if not folder.is_dir():
        return {}
    try:
        names = [path.name for path in folder.iterdir()]
    except OSError as error:
        raise RegardError(f"{folder}: cannot look for snapshots: {error.strerror}; make it readable") from None
    found = {int(match[1]): folder / match[0] for match in map(STEP_FILE.fullmatch, names) if match}
    return dict(sorted(found.items()))


def _read(path: Path, remedy: str) -> dict[str, Tensor]:
    """Read tensors in natural order: layer 10 comes after layer 9."""
    try:
        found = load_file(path)
    except FileNotFoundError:
        raise RegardError(f"{path}: is missing; {remedy}") from None
    except (OSError, SafetensorError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise RegardError(f"{path}: is damaged: {reason}; {remedy}") from None
    return {name: found[name] for name in sorted(found, key=_natural_key)}


def _natural_key(name: str) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isdigit() else (-1, part) for part in name.split(".")]
