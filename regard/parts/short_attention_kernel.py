# mypy: disable-error-code="import-not-found,no-untyped-def,untyped-decorator"
"""Attention over short rows and its gradient as Triton kernels; `short_attention.py` calls them.

A program computes one head of one row, with all its scores in registers. So each of Q, K, V and their gradients is read
or written once, and the backward pass needs nothing of the forward pass but its inputs. This module needs triton, which
torch brings where there is CUDA.
"""

from typing import Any

import triton
import triton.language as tl
from torch import Tensor

from regard.parts.short_attention import beside

WARPS = 4  # of a program, for up to 64 tokens; twice as many for more


@triton.jit
def _weights(query, key, mask, i, j, T, S, mask_i, mask_j, scale, CAUSAL: tl.constexpr, MASKED: tl.constexpr):
    """Return softmax(scale QK' + mask) in float32; a query that sees no key has zeros."""
    scores = tl.dot(query, tl.trans(key)) * scale
    seen = j[None, :] < S
    if CAUSAL:
        seen = seen & (i[:, None] >= j[None, :])
    if MASKED:
        places = i[:, None] * mask_i + j[None, :] * mask_j
        scores += tl.load(mask + places, (i[:, None] < T) & (j[None, :] < S), other=0.0).to(tl.float32)
    scores = tl.where(seen, scores, -float("inf"))
    top = tl.max(scores, 1)
    weights = tl.exp(scores - tl.where(top == -float("inf"), 0.0, top)[:, None])
    total = tl.sum(weights, 1)
    return weights / tl.where(total == 0, 1.0, total)[:, None]


@triton.jit
def _forward(
    query_in, key_in, value_in, mask, out,
    q_b, q_h, q_t, k_b, k_h, k_t, v_b, v_h, v_t, o_b, o_h, o_t, m_b, m_h, m_i, m_j,
    H, T, S, scale,
    CAUSAL: tl.constexpr, MASKED: tl.constexpr, E: tl.constexpr, G: tl.constexpr, BLOCK_T: tl.constexpr,
    BLOCK_S: tl.constexpr,
):  # fmt: skip
    """Write Y of one head of one row."""
    b, h = (tl.program_id(0) // H).to(tl.int64), (tl.program_id(0) % H).to(tl.int64)
    i, j, e, g = tl.arange(0, BLOCK_T), tl.arange(0, BLOCK_S), tl.arange(0, E), tl.arange(0, G)
    queries, keys = i[:, None] < T, j[:, None] < S
    query = tl.load(query_in + b * q_b + h * q_h + i[:, None] * q_t + e[None, :], queries, other=0.0)
    key = tl.load(key_in + b * k_b + h * k_h + j[:, None] * k_t + e[None, :], keys, other=0.0)
    value = tl.load(value_in + b * v_b + h * v_h + j[:, None] * v_t + g[None, :], keys, other=0.0)
    weights = _weights(query, key, mask + b * m_b + h * m_h, i, j, T, S, m_i, m_j, scale, CAUSAL, MASKED)
    mixed = tl.dot(weights.to(value.dtype), value)
    tl.store(out + b * o_b + h * o_h + i[:, None] * o_t + g[None, :], mixed.to(value.dtype), queries)


@triton.jit
def _backward(
    query_in, key_in, value_in, mask, d_out, d_query, d_key, d_value,
    q_b, q_h, q_t, k_b, k_h, k_t, v_b, v_h, v_t, o_b, o_h, o_t, m_b, m_h, m_i, m_j,
    dq_b, dq_h, dq_t, dk_b, dk_h, dk_t, dv_b, dv_h, dv_t,
    H, T, S, scale,
    CAUSAL: tl.constexpr, MASKED: tl.constexpr, E: tl.constexpr, G: tl.constexpr, BLOCK_T: tl.constexpr,
    BLOCK_S: tl.constexpr,
):  # fmt: skip
    """Write the gradients of one head of one row:

    dV = A' dY,  dA = dY V',  dS = A * (dA - sum_j A_ij dA_ij),  dQ = scale dS K,  dK = scale dS' Q.
    """
    b, h = (tl.program_id(0) // H).to(tl.int64), (tl.program_id(0) % H).to(tl.int64)
    i, j, e, g = tl.arange(0, BLOCK_T), tl.arange(0, BLOCK_S), tl.arange(0, E), tl.arange(0, G)
    queries, keys = i[:, None] < T, j[:, None] < S
    query = tl.load(query_in + b * q_b + h * q_h + i[:, None] * q_t + e[None, :], queries, other=0.0)
    key = tl.load(key_in + b * k_b + h * k_h + j[:, None] * k_t + e[None, :], keys, other=0.0)
    value = tl.load(value_in + b * v_b + h * v_h + j[:, None] * v_t + g[None, :], keys, other=0.0)
    gradient = tl.load(d_out + b * o_b + h * o_h + i[:, None] * o_t + g[None, :], queries, other=0.0)
    weights = _weights(query, key, mask + b * m_b + h * m_h, i, j, T, S, m_i, m_j, scale, CAUSAL, MASKED)
    to_value = tl.dot(tl.trans(weights.to(value.dtype)), gradient)
    tl.store(d_value + b * dv_b + h * dv_h + j[:, None] * dv_t + g[None, :], to_value.to(value.dtype), keys)
    to_weights = tl.dot(gradient, tl.trans(value))
    to_scores = weights * (to_weights - tl.sum(weights * to_weights, 1)[:, None])
    small = (to_scores * scale).to(query.dtype)
    to_query, to_key = tl.dot(small, key), tl.dot(tl.trans(small), query)
    tl.store(d_query + b * dq_b + h * dq_h + i[:, None] * dq_t + e[None, :], to_query.to(query.dtype), queries)
    tl.store(d_key + b * dk_b + h * dk_h + j[:, None] * dk_t + e[None, :], to_key.to(query.dtype), keys)


def attend_short(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, causal: bool, scale: float) -> Tensor:
    """Return softmax(scale QK' + mask) V; its heads lie beside each other in memory, so that merging copies nothing."""
    out = beside(query, value.shape[3])
    given = (query, key, value)
    strides, sizes = _strides(*given, out), (query.shape[1], query.shape[2], key.shape[2])
    marks = query if mask is None else mask
    _forward[_grid(query)](
        *given, marks, out, *strides, *_mask_strides(mask), *sizes, scale,
        **_constants(query, key, value, mask, causal),
    )  # fmt: skip
    return out


def attend_short_backward(
    gradient: Tensor, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, causal: bool, scale: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of queries, keys and values."""
    given, found = (query, key, value), [beside(each, each.shape[3]) for each in (query, key, value)]
    strides, sizes = _strides(*given, gradient), (query.shape[1], query.shape[2], key.shape[2])
    marks = query if mask is None else mask
    _backward[_grid(query)](
        *given, marks, gradient, *found, *strides, *_mask_strides(mask), *_strides(*found), *sizes, scale,
        **_constants(query, key, value, mask, causal),
    )  # fmt: skip
    return found[0], found[1], found[2]


def _grid(query: Tensor) -> tuple[int]:
    return (query.shape[0] * query.shape[1],)


def _strides(*tensors: Tensor) -> list[int]:
    return [stride for tensor in tensors for stride in tensor.stride()[:3]]


def _mask_strides(mask: Tensor | None) -> tuple[int, ...]:
    """Return the strides of a mask, 0 along the dimensions that it has in common."""
    if mask is None:
        return 0, 0, 0, 0
    return tuple(0 if size == 1 else stride for size, stride in zip(mask.shape, mask.stride(), strict=True))


def _constants(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, causal: bool) -> dict[str, Any]:
    blocks = [max(16, triton.next_power_of_2(each.shape[2])) for each in (query, key)]
    return {
        "CAUSAL": causal,
        "MASKED": mask is not None,
        "E": query.shape[3],
        "G": value.shape[3],
        "BLOCK_T": blocks[0],
        "BLOCK_S": blocks[1],
        "num_warps": WARPS if max(blocks) <= 64 else 2 * WARPS,
    }
