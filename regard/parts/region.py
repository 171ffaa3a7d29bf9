"""Regions: the functions of a model that training compiles, each on its own.

All layers of a stack are the same function of different weights, so it is compiled once and not for each of them. Other
callers of the model (validation, decoding, a viewer) run the functions as they are.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import ParamSpec, TypeVar

import torch

Given = ParamSpec("Given")
Made = TypeVar("Made")

# In torch 2.11, joining the gradient of a norm with that of its weights makes updates slower (docs/performance.md).
OPTIONS = {"triton.mix_order_reduction": False} if "2.10" <= torch.__version__ < "2.12" else {}
_COMPILES: ContextVar[bool] = ContextVar("compiles", default=False)
_COMPILED: dict[Callable[..., object], Callable[..., object]] = {}


def region(function: Callable[Given, Made]) -> Callable[Given, Made]:
    """Mark a function as a region: inside `compiled_regions` it runs compiled."""

    @wraps(function)
    def call(*args: Given.args, **named: Given.kwargs) -> Made:
        if torch.compiler.is_compiling() or not _COMPILES.get():
            return function(*args, **named)
        if function not in _COMPILED:
            _COMPILED[function] = compile_fixed(function)
        return _COMPILED[function](*args, **named)  # type: ignore[return-value]

    return call


def compile_fixed(function: Callable[Given, Made]) -> Callable[Given, Made]:
    """Compile a function or a module, for each shape of its arguments on its own."""
    return torch.compile(function, dynamic=False, options={**OPTIONS} if OPTIONS else None)


def is_compiled() -> bool:
    """Return whether regions that are called now run compiled, on their own or as parts of a compiled model."""
    return torch.compiler.is_compiling() or _COMPILES.get()


@contextmanager
def compiled_regions() -> Iterator[None]:
    """Run regions compiled in this thread."""
    token = _COMPILES.set(True)
    try:
        yield
    finally:
        _COMPILES.reset(token)
