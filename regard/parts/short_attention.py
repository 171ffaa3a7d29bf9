"""Attention over rows of at most 128 tokens on CUDA, as one operator, in which a program has a whole row.

The usual kernels are made for long rows: they split them over programs and keep sums for the backward pass. For 512
rows of 64 tokens and 8 heads, that takes more than twice the time in which the memory can deliver the data.
"""

from typing import Any

import torch
from torch import Tensor

from regard.machine import has_triton

LONGEST = 128  # tokens of a row
WIDTHS = (16, 32, 64)  # of heads
HAS_TRITON = has_triton()


def suits_short(query: Tensor, key: Tensor, value: Tensor, dropout: float) -> bool:
    """Return whether `short_attention` can compute this, and takes less time than the others: while compiled code is
    trained, in half precision, without dropout.
    """
    trains = HAS_TRITON and query.is_cuda and torch.compiler.is_compiling() and torch.is_grad_enabled()
    short = 1 < query.shape[2] <= LONGEST and key.shape[2] <= LONGEST and query.shape[1] == key.shape[1]
    wide = query.shape[3] in WIDTHS and value.shape[3] in WIDTHS
    half = query.dtype == key.dtype == value.dtype and query.dtype in (torch.bfloat16, torch.float16)
    return trains and short and wide and half and dropout == 0


@torch.library.custom_op("regard::short_attention", mutates_args=())
def short_attention(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, causal: bool, scale: float
) -> Tensor:
    """Return softmax(scale QK' + mask) V; `mask` is added to the scores of (B, H, T, S), or of fewer that are repeated.
    A query that sees no key gets zeros.
    """
    from regard.parts.short_attention_kernel import attend_short

    return attend_short(_packed(query), _packed(key), _packed(value), mask, causal, scale)


@short_attention.register_fake
def _(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, causal: bool, scale: float) -> Tensor:
    return beside(query, value.shape[3])


@torch.library.custom_op("regard::short_attention_backward", mutates_args=())
def short_attention_backward(
    gradient: Tensor, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, causal: bool, scale: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of queries, keys and values."""
    from regard.parts.short_attention_kernel import attend_short_backward

    given = (_packed(gradient), _packed(query), _packed(key), _packed(value))
    return attend_short_backward(*given, mask, causal, scale)


@short_attention_backward.register_fake
def _(
    gradient: Tensor, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, causal: bool, scale: float
) -> tuple[Tensor, Tensor, Tensor]:
    return tuple(beside(each, each.shape[3]) for each in (query, key, value))  # type: ignore[return-value]


def beside(like: Tensor, width: int) -> Tensor:
    """Return an empty tensor (B, H, T, width) in which the heads of a token lie beside each other."""
    B, H, T, _ = like.shape
    return like.new_empty(B, T, H, width).transpose(1, 2)


def _packed(tensor: Tensor) -> Tensor:
    """Return a tensor whose vectors are contiguous."""
    return tensor if tensor.stride(-1) == 1 else tensor.contiguous()


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    query, key, value, mask, ctx.causal, ctx.scale = inputs
    ctx.save_for_backward(query, key, value, mask)


def _gradients(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
    found = short_attention_backward(gradient, *ctx.saved_tensors, ctx.causal, ctx.scale)
    return *found, None, None, None


short_attention.register_autograd(_gradients, setup_context=_keep)
