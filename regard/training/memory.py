"""The memory that a run uses, and that it will need, before anything is allocated."""

import os
from pathlib import Path

import torch
from torch import Tensor, nn

from regard.data.device import free_memory
from regard.errors import RegardError
from regard.machine import available_memory
from regard.models.recipe import ModelConfig, build_empty
from regard.models.store import tensors
from regard.tasks.task import Task
from regard.training.config import TrainConfig
from regard.training.optimizer import MuonConfig
from regard.training.ranks import Ranks

SPARE_SHARE = 1.25  # of what is counted: measured, updates of a Transformer took 1.2 to 1.4 times as much


def memory_in_use(device: torch.device) -> int:
    """Return the peak of an accelerator's memory, or the resident memory of this process, in bytes."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")
    except OSError:  # not available on every system
        return 0


def bytes_of_state(weights: int, config: TrainConfig, world: int = 1) -> int:
    """Return the bytes of the weights of a model, of their gradients, the optimizer's state and the moving average."""
    copies = 2 + (1 if isinstance(config.optimizer, MuonConfig) else 2) + (config.ema is not None)
    return weights * copies // (world if config.parallel == "fsdp" else 1)


def bytes_of_token(model: nn.Module, task: Task) -> int | None:
    """Return the bytes that a token of an update needs until its gradient is computed; None if that is not known.

    The model is on the device `meta`, so nothing is computed or allocated. What autograd saves is counted, and three
    times the output for the loss: the logits, their softmax and its gradient; and a quarter for what is needed briefly.
    """
    saved: dict[int, int] = {}  # bytes by address

    def note(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        saved[storage._cdata] = storage.nbytes()
        kept.append(tensor)  # so that no later tensor gets the same address
        return tensor

    kept: list[Tensor] = []
    weights = {weight.untyped_storage()._cdata for weight in model.parameters()}
    try:
        inputs = {name: value.to("meta") for name, value in task.probe(task.usual_length() or 64).items()}
        with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
            output = model.train()(*inputs.values())
    except Exception:  # a part of the user may need values, which the device `meta` does not have
        return None
    image = getattr(model, "image", None)
    tokens = next(reversed(inputs.values())).shape[1] if image is None else image.patches
    total = sum(size for address, size in saved.items() if address not in weights)
    outputs = output if isinstance(output, tuple) else (output,)
    written = sum(each.numel() * each.element_size() for each in outputs)
    return int(SPARE_SHARE * (total + 3 * written) / max(tokens, 1))


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
    each = bytes_of_token(empty, task) if device.type == "cpu" else None
    if each is None or host is None:
        return config.accumulate, ""
    amount = task.amount()
    tokens = min(config.tokens, amount.tokens)  # an update has no more than all of the data
    rows = tokens / min(task.usual_length() or 64, amount.tokens / max(amount.rows, 1))
    update, parts = each * tokens // ranks.world, config.accumulate
    while update // parts > host - state and parts < rows:
        parts *= 2
    if update // parts > host - state:
        _check_memory(state + update // parts, host, "this machine", remedy)
    if parts == config.accumulate:
        return parts, ""
    rule = f"an update of {config.tokens:,} tokens needs about {in_bytes(update)}, and {in_bytes(host)} are available"
    return parts, f"{rule}; it is split into {parts} parts (train.accumulate), with the same result"


def _check_memory(needed: int, available: int | None, place: str, remedy: str) -> None:
    """Reject a model that cannot be trained in the memory that is left."""
    if available is not None and needed > available:
        rule = f"training needs at least {in_bytes(needed)} (weights, gradients, optimizer), and {place} has"
        raise RegardError(f"not enough memory: {rule} {in_bytes(available)} left; {remedy}")


def in_bytes(count: int) -> str:
    """Return a number of bytes in the usual units: 6.4 GB."""
    for unit, letter in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M")):
        if count >= unit:
            return f"{count / unit:.3g} {letter}B"
    return f"{count / 1e3:.3g} kB"
