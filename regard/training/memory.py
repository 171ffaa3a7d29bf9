"""The memory that a run uses, and that it will need, before anything is allocated."""

import re
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn

from regard.data.device import free_memory
from regard.errors import RegardError
from regard.machine import available_memory
from regard.models.recipe import ModelConfig, build_empty
from regard.models.store import tensors
from regard.quantity import short_size
from regard.tasks.task import Task
from regard.training.config import TrainConfig
from regard.training.optimizer import MuonConfig
from regard.training.ranks import Ranks

SPARE_SHARE = 1.6  # of what is counted: measured, updates of twenty recipes took 0.9 to 1.5 times as much


def peak_memory(device: torch.device) -> int:
    """Return the most memory that was in use so far, of an accelerator or of this process on a CPU, in bytes."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    try:
        status = Path("/proc/self/status").read_text(encoding="ascii")
    except OSError:  # not available on every system
        return 0
    found = re.search(r"^VmHWM:\s*(\d+) kB$", status, re.MULTILINE)
    return 0 if found is None else int(found[1]) * 1024


def bytes_of_state(weights: int, config: TrainConfig, world: int = 1) -> int:
    """Return the bytes of the weights of a model, of their gradients, the optimizer's state and the moving average."""
    copies = 2 + (1 if isinstance(config.optimizer, MuonConfig) else 2) + (config.ema is not None)
    return weights * copies // (world if config.parallel == "fsdp" else 1)


class UpdateMemory(NamedTuple):
    """The bytes that an update needs besides weights, gradients and the optimizer's state."""

    once: int  # for any number of tokens: weights with dropout, tables of positions
    token: int  # for each token

    def of(self, tokens: float) -> int:
        """Return the bytes for an update, or a part of one, of this many tokens."""
        return int(self.once + self.token * tokens)


def memory_of_update(model: nn.Module, task: Task) -> UpdateMemory | None:
    """Return the bytes that an update needs until its gradients are computed; None if that is not known.

    The model is on the device `meta`, so nothing is computed or allocated. What two rows need more than one belongs to
    their tokens, and the rest is needed once: dropout of weights alone may save more than all tokens of a row.
    """
    try:
        inputs = {name: value.to("meta") for name, value in task.probe(task.usual_length() or 64).items()}
        one, two = (_bytes_of_pass(model, [value.repeat_interleave(n, 0) for value in inputs.values()]) for n in (1, 2))
    except Exception:  # a part of the user may need values, which the device `meta` does not have
        return None
    image = getattr(model, "image", None)
    tokens = next(reversed(inputs.values())).shape[1] if image is None else image.patches
    once, row = (SPARE_SHARE * task.passes() * found for found in (2 * one - two, two - one))
    return UpdateMemory(max(int(once), 0), int(row / max(tokens, 1)))


def _bytes_of_pass(model: nn.Module, inputs: list[Tensor]) -> int:
    """Return the bytes that autograd saves, and three times the output for the loss: logits, softmax, its gradient."""
    saved: dict[int, int] = {}  # bytes by address
    kept: list[Tensor] = []  # so that no later tensor gets the same address

    def note(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        saved[storage._cdata] = storage.nbytes()
        kept.append(tensor)
        return tensor

    weights = {weight.untyped_storage()._cdata for weight in model.parameters()}
    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        output = model.train()(*inputs)
    outputs = output if isinstance(output, tuple) else (output,)
    written = sum(each.numel() * each.element_size() for each in outputs)
    return sum(size for address, size in saved.items() if address not in weights) + 3 * written


def split_to_fit(model: ModelConfig, config: TrainConfig, task: Task, ranks: Ranks, remedy: str) -> tuple[int, str]:
    """Compare the memory that a run needs with what is available; return the parts that its updates are split into.

    On a CPU a program that takes too much is killed without a word, so this is done before anything is allocated. On an
    accelerator an update that is too large raises an error, and is split then. The text says why more parts are needed
    than the config has; it is empty if they are not. An error, which ends with `remedy`, if even a row is too large.
    """
    device, empty = ranks.device, build_empty(model)
    weights = sum(tensor.numel() * tensor.element_size() for tensor in tensors(empty).values())
    state = bytes_of_state(weights, config, ranks.world)
    host = available_memory()
    _check_memory(state if device.type == "cpu" else weights, host, "this machine", remedy)
    _check_memory(state, free_memory(device), str(device), remedy)
    update = memory_of_update(empty, task) if device.type == "cpu" else None
    if update is None or host is None:
        return config.accumulate, ""
    amount = task.amount()
    tokens = min(config.tokens, amount.tokens)  # an update has no more than all of the data
    rows = tokens / min(task.usual_length() or 64, amount.tokens / max(amount.rows, 1))
    own, parts = tokens / ranks.world, config.accumulate
    while update.of(own / parts) > host - state and parts < rows:
        parts *= 2
    if update.of(own / parts) > host - state:
        _check_memory(state + update.of(own / parts), host, "this machine", remedy)
    if parts == config.accumulate:
        return parts, ""
    needed = f"an update of {config.tokens:,} tokens needs about {short_size(update.of(own))}"
    rule = f"{needed}, and {short_size(host)} are available"
    return parts, f"{rule}; it is split into {parts} parts (train.accumulate), with the same result"


def _check_memory(needed: int, available: int | None, place: str, remedy: str) -> None:
    """Reject a model that cannot be trained in the memory that is left."""
    if available is not None and needed > available:
        rule = f"training needs at least {short_size(needed)} (weights, gradients, optimizer), and {place} has"
        raise RegardError(f"not enough memory: {rule} {short_size(available)} left; {remedy}")
