"""Autocast: turn it off for a computation, or ask which dtype it uses."""

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor


def without_autocast(x: Tensor) -> AbstractContextManager[object]:
    """Return a context without autocast on the device of x: tensors keep their own dtypes."""
    return nullcontext() if x.device.type == "meta" else torch.autocast(x.device.type, enabled=False)


def autocast_dtype(x: Tensor) -> torch.dtype:
    """Return the dtype in which products of x are computed: its own, or the lower one of autocast."""
    kind = x.device.type
    return torch.get_autocast_dtype(kind) if kind != "meta" and torch.is_autocast_enabled(kind) else x.dtype


def at_least_float32(x: Tensor) -> Tensor:
    """Return x in float32, or in its own dtype if that is more precise: for sums over time and exponents."""
    return x.to(torch.promote_types(x.dtype, torch.float32))
