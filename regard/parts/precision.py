"""The precision of computation where autocast does not decide it."""

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor


def without_autocast(x: Tensor) -> AbstractContextManager[object]:
    """Compute in the dtypes of the tensors themselves, on the device of x."""
    return nullcontext() if x.device.type == "meta" else torch.autocast(x.device.type, enabled=False)


def autocast_dtype(x: Tensor) -> torch.dtype:
    """Return the dtype in which products of x are computed: its own, or the lower one of autocast."""
    kind = x.device.type
    return torch.get_autocast_dtype(kind) if kind != "meta" and torch.is_autocast_enabled(kind) else x.dtype
