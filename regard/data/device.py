"""Choose the device of a model, and copy arrays to it."""

from errno import ENOMEM

import numpy as np
import torch
from torch import Tensor

from regard.errors import RegardError

KINDS = ("cpu", "cuda", "mps", "xpu")


def to_device(array: np.ndarray, device: torch.device) -> Tensor:
    """Copy an array to a device without waiting for it, which CUDA can only do from pinned memory."""
    tensor = torch.from_numpy(array)
    if device.type == "cuda":
        tensor = tensor.pin_memory()
    return tensor.to(device, non_blocking=True)


def free_memory(device: torch.device) -> int | None:
    """Return the free bytes of an accelerator; None if unknown, or if it shares the host's memory."""
    return torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else None


def release_memory(device: torch.device) -> None:
    """Return memory that torch keeps for later to an accelerator, after memory ran out."""
    if device.type == "cuda":
        torch.cuda.empty_cache()


OUT_OF_MEMORY = (
    "out of memory",
    "can't allocate memory",
    "cannot allocate memory",
    "not enough memory",
    "alloc_failed",
)


def out_of_memory(error: BaseException) -> bool:
    """Return whether an error means that memory ran out, on an accelerator or the host; torch has several classes."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    if isinstance(error, OSError):
        return error.errno == ENOMEM
    return isinstance(error, RuntimeError) and any(sign in str(error).lower() for sign in OUT_OF_MEMORY)


def choose_device(name: str) -> torch.device:
    """Return the named device; "auto" is the accelerator if there is one."""
    if name == "auto":
        return torch.accelerator.current_accelerator(check_available=True) or torch.device("cpu")
    if str(name).partition(":")[0] not in KINDS:
        raise RegardError(f"unknown device {name!r}; use auto, cpu, cuda, cuda:1 (the second one), mps or xpu")
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0].partition(". ")[0]  # advice for building torch follows
        raise RegardError(f"the device {name!r} cannot be used: {reason}; try --device cpu") from None
    return device
