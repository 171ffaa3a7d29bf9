"""Checks of the tensors that a model is called with: what is wrong is an error in one line, before it is computed.

Values are checked only where they can be read without waiting for an accelerator.
"""

from reprlib import repr as shortened

import torch
from jaxtyping import Int
from torch import Tensor

from regard.errors import InputError
from regard.parts.transforms import is_transformed


def check_tensor(given: object, name: str) -> None:
    """Reject what is not a tensor, such as a list."""
    if not isinstance(given, Tensor):
        raise InputError(f"{name}={shortened(given)} must be a tensor; torch.tensor makes one of a list")


def check_token_ids(tokens: Tensor) -> None:
    """Reject what is not a batch of rows of token ids."""
    check_tensor(tokens, "tokens")
    if tokens.ndim != 2 or tokens.is_floating_point() or tokens.shape[1] == 0:
        shape = tuple(tokens.shape)
        raise InputError(
            f"tokens must be integers of shape (rows, 1 or more tokens), not {tokens.dtype} of shape {shape}"
        )


def check_lengths(tokens: Int[Tensor, "B T"], lengths: Int[Tensor, "_B"] | None, least: int) -> None:
    """Reject lengths that do not fit the rows of `tokens`."""
    if lengths is None:
        return
    check_tensor(lengths, "lengths")
    B, T = tokens.shape
    if lengths.shape != (B,):
        raise InputError(f"{B} rows need {B} lengths, not lengths of shape {tuple(lengths.shape)}")
    if not can_read(lengths) or B == 0:
        return
    if int(lengths.min()) < least or int(lengths.max()) > T:
        raise InputError(f"lengths {lengths.tolist()} must be between {least} and the {T} tokens of a row")


def find_outside(ids: Int[Tensor, "B T"], known: int) -> str | None:
    """Return the first id outside 0 .. known-1 and its place; None: there is none, or it cannot be read."""
    if not can_read(ids) or ids.numel() == 0:
        return None
    low, high = ids.aminmax()
    if low >= 0 and high < known:
        return None
    row, column = ((ids < 0) | (ids >= known)).nonzero()[0].tolist()
    return f"{int(ids[row, column])} at row {row}, place {column}"


def can_read(values: Tensor) -> bool:
    """Return whether values can be read now: not in compiled code, not on an accelerator, not inside torch.func."""
    return not torch.compiler.is_compiling() and values.device.type == "cpu" and not is_transformed()
