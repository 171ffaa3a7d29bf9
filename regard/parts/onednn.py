"""Wx + b by oneDNN, on processors where it is faster than the library that torch multiplies with (MKL).

On processors of AMD, MKL does not use vectors of 512 bits. oneDNN does, and takes less than half the time where the
processor computes them at once (docs/performance.md).
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import Function, once_differentiable

from regard.machine import prefers_onednn

LEAST_OPERATIONS = 2**21  # multiplications of a product from which calling oneDNN pays

_USED: ContextVar[bool] = ContextVar("used", default=False)


@contextmanager
def fast_products() -> Iterator[None]:
    """Compute products in this thread by the library that is faster on this processor, with their gradients.

    Gradients of gradients and transforms of `torch.func` are not supported inside the `with`.
    """
    token = _USED.set(is_onednn_faster())
    try:
        yield
    finally:
        _USED.reset(token)


@cache
def is_onednn_faster() -> bool:
    """Return whether oneDNN is used for products in float32."""
    return prefers_onednn() and hasattr(torch.ops.mkldnn, "_linear_pointwise")


def affine(
    x: Float[Tensor, "*rows D"], weight: Float[Tensor, "O D"], bias: Float[Tensor, "O"] | None
) -> Float[Tensor, "*rows O"]:
    """Return Wx + b; inside `fast_products`, large products are computed by the faster library."""
    if torch.compiler.is_compiling() or not _USED.get() or not _suits(x, weight):
        return F.linear(x, weight, bias)
    if not torch.is_grad_enabled():
        return _multiply(x, weight, bias)
    found: Tensor = _FastAffine.apply(x, weight, bias)  # type: ignore[no-untyped-call]
    return found


def _suits(x: Tensor, weight: Tensor) -> bool:
    exact = x.dtype == weight.dtype == torch.float32 and not torch.is_autocast_enabled("cpu")
    large = x.device.type == "cpu" and x.numel() * len(weight) >= LEAST_OPERATIONS
    return exact and large and _is_dense(weight)


def _is_dense(matrix: Tensor) -> bool:
    """Return whether rows or columns lie one after the other; oneDNN takes a thousand times as long for other W."""
    return matrix.is_contiguous() or matrix.mT.is_contiguous()


def _multiply(x: Float[Tensor, "*rows D"], weight: Float[Tensor, "O D"], bias: Tensor | None = None) -> Tensor:
    """Return XW' + b; X may lie in any order."""
    weight = weight if _is_dense(weight) else weight.contiguous()
    found: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
    return found


class _FastAffine(Function):
    """Wx + b. The second factor of a product should be the larger one."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """Return Wx + b."""
        ctx.save_for_backward(x, weight)
        return _multiply(x, weight, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients of x, W and b."""
        x, weight = ctx.saved_tensors
        of_x, of_weight, of_bias = ctx.needs_input_grad
        rows, vectors = gradient.reshape(-1, gradient.shape[-1]), x.reshape(-1, x.shape[-1])
        return (
            _multiply(gradient, weight.mT) if of_x else None,
            _gradient_of_weight(rows, vectors) if of_weight else None,
            rows.sum(0) if of_bias else None,
        )


def _gradient_of_weight(rows: Float[Tensor, "N O"], vectors: Float[Tensor, "N D"]) -> Float[Tensor, "O D"]:
    """Return G'X."""
    if rows.shape[1] > vectors.shape[1]:
        return _multiply(vectors.mT, rows.mT).mT.contiguous()
    return _multiply(rows.mT, vectors.mT)
