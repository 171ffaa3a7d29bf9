"""The precision in which a model computes: float32, bfloat16 or int8."""

import torch

from regard.decode.layout import lay_out
from regard.decode.quantise import quantise
from regard.errors import InputError, choices
from regard.models.model import Model, writes

PRECISIONS = ("auto", "float32", "bfloat16", "int8")


def check_precision(name: str) -> None:
    """Reject unknown precisions."""
    if name not in PRECISIONS:
        raise InputError(f"unknown precision {name!r}; {choices(name, PRECISIONS)}")


def prepare(model: Model, precision: str = "auto", engine: str = "auto") -> Model:
    """Convert a model to a precision, and arrange its weights for decode steps if it writes."""
    device = next(model.parameters()).device.type
    check_combination(precision, device, engine)
    if precision == "int8":
        quantise(model.float())
        return model.eval()
    model.to(dtype_for(model, precision, device))
    if writes(model):
        lay_out(model)
    return model.eval()


def check_combination(precision: str, device: str, engine: str) -> None:
    """Reject a precision that the device or the engine does not support."""
    if precision == "int8" and device != "cpu":
        raise InputError(f"int8 works on the CPU only, not on {device}; use --device cpu, or --precision bfloat16")
    if precision == "int8" and engine == "compiled":
        raise InputError("int8 does not work with the engine 'compiled'; leave one of them out")
    if precision == "bfloat16" and device == "cpu":
        raise InputError("bfloat16 is slow on the CPU; use --precision int8 or float32, or another --device")


def dtype_for(model: Model, precision: str, device: str) -> torch.dtype:
    """Return the dtype that is asked for, or the one that suits a model on a device.

    A decode step is limited by reading the weights, so on CUDA they are in bfloat16. On a CPU half precision is slow,
    or needs instructions that it does not have.
    """
    if precision != "auto":
        return {"float32": torch.float32, "bfloat16": torch.bfloat16}[precision]
    stored = next(model.parameters()).dtype
    if device == "cpu":
        return torch.promote_types(stored, torch.float32)
    return torch.bfloat16 if device == "cuda" and writes(model) else stored
