"""The memory that a run uses, and that it will need, before anything is allocated."""

import os
from pathlib import Path

import torch
from torch import Tensor, nn

from regard.tasks.task import Task
from regard.training.config import TrainConfig
from regard.training.optimizer import MuonConfig

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
    return int(SPARE_SHARE * (total + 3 * output.numel() * output.element_size()) / max(tokens, 1))
