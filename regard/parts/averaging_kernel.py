# mypy: disable-error-code="import-not-found,no-untyped-def,untyped-decorator"
"""RWKV-4's weighted average (Peng et al. 2023) and its gradient as Triton kernels; `linear_recurrence.py` calls them.

A program computes some channels of one row, token by token, with its sums in registers: tokens are read and written
once, where the rounds of the plain form read and write them log2(T) times. This module needs triton, which torch
brings where there is CUDA.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

CHANNELS = 32  # of a program: one warp


@triton.jit
def _average(
    k_in, v_in, decay, bonus, m_in, total_in, weight_in, lengths, y_out, m_out, total_out, weight_out, T, D,
    CHANNELS: tl.constexpr,
):  # fmt: skip
    """Write the averages of one row and some channels, and the sums after its last real token."""
    row, channels = tl.program_id(0), tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)
    inside = channels < D
    d, u = tl.load(decay + channels, inside), tl.load(bonus + channels, inside)
    place = row * D + channels
    m, total, weight = (
        tl.load(m_in + place, inside),
        tl.load(total_in + place, inside),
        tl.load(weight_in + place, inside),
    )
    last_m, last_total, last_weight = m, total, weight
    length = tl.load(lengths + row)
    token = row.to(tl.int64) * T * D + channels
    for t in range(T):
        k, v = tl.load(k_in + token, inside).to(m.dtype), tl.load(v_in + token, inside).to(m.dtype)
        p = tl.maximum(m, u + k)
        past, own = tl.exp(m - p), tl.exp(u + k - p)
        tl.store(y_out + token, (past * total + own * v) / (past * weight + own), inside)
        p = tl.maximum(m - d, k)
        past, own = tl.exp(m - d - p), tl.exp(k - p)
        m, total, weight = p, past * total + own * v, past * weight + own
        is_last = t + 1 == length
        last_m, last_total = tl.where(is_last, m, last_m), tl.where(is_last, total, last_total)
        last_weight = tl.where(is_last, weight, last_weight)
        token += D
    tl.store(m_out + place, last_m, inside)
    tl.store(total_out + place, last_total, inside)
    tl.store(weight_out + place, last_weight, inside)


@triton.jit
def _average_backward(
    k_in, v_in, decay, bonus, m_in, total_in, weight_in, lengths, d_y, d_last_total, d_last_weight,
    ms, totals, weights, d_k, d_v, d_decay, d_bonus, d_total, d_weight, T, D, CHANNELS: tl.constexpr,
):  # fmt: skip
    """Write the gradients of one row and some channels.

    The sums before each token are computed again and kept in `ms`, `totals` and `weights`. Then, last token first,
    e^n A and e^n B are the gradients of the true sums a = sum of weights * values, b = sum of weights after a token:

        A_{t-1} = e^{-d} A_t + g_t,  B_{t-1} = e^{-d} B_t - g_t y_t,  g_t = d_y_t / (b_{t-1} + e^{u + k_t}).

    m is only a scale: what follows depends on e^m total and e^m weight alone, so that it needs no gradient.
    """
    row, channels = tl.program_id(0), tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)
    inside = channels < D
    d, u = tl.load(decay + channels, inside), tl.load(bonus + channels, inside)
    place = row * D + channels
    m, total, weight = (
        tl.load(m_in + place, inside),
        tl.load(total_in + place, inside),
        tl.load(weight_in + place, inside),
    )
    token = row.to(tl.int64) * T * D + channels
    for _ in range(T):
        tl.store(ms + token, m, inside)
        tl.store(totals + token, total, inside)
        tl.store(weights + token, weight, inside)
        k, v = tl.load(k_in + token, inside).to(m.dtype), tl.load(v_in + token, inside).to(m.dtype)
        p = tl.maximum(m - d, k)
        past, own = tl.exp(m - d - p), tl.exp(k - p)
        m, total, weight = p, past * total + own * v, past * weight + own
        token += D
    tl.debug_barrier()  # what was stored is read below

    length = tl.load(lengths + row)
    last_total, last_weight = tl.load(d_last_total + place, inside), tl.load(d_last_weight + place, inside)
    A, B, to_d, to_u = tl.zeros_like(m), tl.zeros_like(m), tl.zeros_like(m), tl.zeros_like(m)
    n = tl.zeros_like(m) - 1e38  # the logarithm of nothing
    for step in range(T):
        token -= D
        k, v = tl.load(k_in + token, inside).to(m.dtype), tl.load(v_in + token, inside).to(m.dtype)
        m, total, weight = (
            tl.load(ms + token, inside),
            tl.load(totals + token, inside),
            tl.load(weights + token, inside),
        )
        # The gradient of the last sums is added at the token after which they were returned.
        after = tl.where(T - step == length, -tl.maximum(m - d, k), -1e38)
        q = tl.maximum(n, after)
        A = tl.exp(n - q) * A + tl.exp(after - q) * last_total
        B = tl.exp(n - q) * B + tl.exp(after - q) * last_weight
        n = q

        p = tl.maximum(m, u + k)
        past, own = tl.exp(m - p), tl.exp(u + k - p)
        below = past * weight + own
        y = (past * total + own * v) / below
        g = tl.load(d_y + token, inside).to(m.dtype) / below
        by_own, by_state = own * g * (v - y), tl.exp(k + n)
        tl.store(d_k + token, by_own + by_state * (A * v + B), inside)
        tl.store(d_v + token, own * g + by_state * A, inside)
        to_u += by_own
        to_d -= tl.exp(n + m - d) * (A * total + B * weight)

        q = tl.maximum(n - d, -p)
        A = tl.exp(n - d - q) * A + tl.exp(-p - q) * g
        B = tl.exp(n - d - q) * B - tl.exp(-p - q) * g * y
        n = q
    tl.store(d_decay + place, to_d, inside)
    tl.store(d_bonus + place, to_u, inside)
    scale = tl.exp(n + tl.load(m_in + place, inside))
    none = length == 0  # the last sums are then those at the start
    tl.store(d_total + place, scale * A + tl.where(none, last_total, 0.0), inside)
    tl.store(d_weight + place, scale * B + tl.where(none, last_weight, 0.0), inside)


def average(k: Tensor, v: Tensor, rest: tuple[Tensor, ...], lengths: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the averages (B, T, D), and m, total and weight (B, D) after the last real token of each row.

    `rest` is decay, bonus, m, total, weight, all in the dtype of the result; k and v may have fewer digits.
    """
    m = rest[2]
    y, *last = torch.empty(k.shape, dtype=m.dtype, device=k.device), *(torch.empty_like(m) for _ in range(3))
    _average[_grid(k)](k, v, *rest, lengths, y, *last, *k.shape[1:], CHANNELS=CHANNELS, num_warps=1)
    return y, last[0], last[1], last[2]


def average_backward(
    d_y: Tensor, d_total: Tensor, d_weight: Tensor, k: Tensor, v: Tensor, rest: tuple[Tensor, ...], lengths: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return the gradients of k, v, decay, bonus, total and weight."""
    m = rest[2]
    kept = [torch.empty(k.shape, dtype=m.dtype, device=k.device) for _ in range(3)]
    found = [torch.empty_like(k), torch.empty_like(v), *(torch.empty_like(m) for _ in range(4))]
    given: list[Any] = [k, v, *rest, lengths, d_y, d_total, d_weight, *kept, *found, *k.shape[1:]]
    _average_backward[_grid(k)](*given, CHANNELS=CHANNELS, num_warps=1)
    to_k, to_v, to_decay, to_bonus, to_total, to_weight = found
    return to_k, to_v, to_decay.sum(0), to_bonus.sum(0), to_total, to_weight


def _grid(k: Tensor) -> tuple[int, int]:
    return k.shape[0], triton.cdiv(k.shape[2], CHANNELS)
