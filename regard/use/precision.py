"""In which numbers a model computes: float32, bfloat16 or int8."""

import torch

from regard.decode.layout import lay_out
from regard.decode.quantise import quantise
from regard.errors import InputError, choices
from regard.models.model import Model, StepModel

PRECISIONS = ("auto", "float32", "bfloat16", "int8")


def check_precision(name: str) -> None:
    """Refuse a precision that there is not."""
    if name not in PRECISIONS:
        raise InputError(f"there is no precision {name!r}; {choices(name, PRECISIONS)}")


def prepare(model: Model, precision: str = "auto", engine: str = "auto") -> Model:
    """Prepare a model for use: in the numbers that are wanted, and laid out for steps if it writes."""
    device = next(model.parameters()).device.type
    check_together(precision, device, engine)
    if precision == "int8":
        quantise(model.float())
        return model.eval()
    model.to(dtype_for(model, precision, device))
    if isinstance(model, StepModel):
        lay_out(model)
    return model.eval()


def check_together(precision: str, device: str, engine: str) -> None:
    """Refuse a precision that does not go with the device or the engine."""
    if precision == "int8" and device != "cpu":
        raise InputError(f"int8 is for the CPU, not for {device}; take --device cpu, or --precision bfloat16")
    if precision == "int8" and engine == "compiled":
        raise InputError("int8 is not for the engine 'compiled'; leave out the one or the other")
    if precision == "bfloat16" and device == "cpu":
        raise InputError("bfloat16 is not for the CPU; take --precision int8 or float32, or another --device")


def dtype_for(model: Model, precision: str, device: str) -> torch.dtype:
    """Give the numbers that are wanted, or those that suit a model on a device.

    One that writes waits for its weights, so on CUDA it has them in bfloat16. On a CPU half precision is slow, or needs
    instructions that it does not have.
    """
    if precision != "auto":
        return {"float32": torch.float32, "bfloat16": torch.bfloat16}[precision]
    stored = next(model.parameters()).dtype
    if device == "cpu":
        return torch.promote_types(stored, torch.float32)
    return torch.bfloat16 if device == "cuda" and isinstance(model, StepModel) else stored
