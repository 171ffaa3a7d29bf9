# mypy: disable-error-code="import-not-found,import-untyped,no-untyped-def,untyped-decorator"
"""The cross-entropy of logits and its gradient as one Triton kernel; `chunked_loss.py` calls it.

A program computes one position: it reads its logits, for their maximum and the sum of their exponentials (Milakov,
Gimelshein 2018, "Online normalizer calculation for softmax"), and again, now from the cache, for the gradient. This
module needs triton, which torch brings where there is CUDA.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

WIDEST = 32768  # logits that a program has at once


@triton.jit
def _compare(
    logits_in, labels, sums_out, gradient_out, V, smoothing, cap,
    IGNORE: tl.constexpr, SMOOTHS: tl.constexpr, CAPS: tl.constexpr, DERIVES: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Write objective and loss of one position, and the gradient of the objective by its logits."""
    row, columns = tl.program_id(0).to(tl.int64), tl.arange(0, WIDTH)
    label = tl.load(labels + row)
    logits, gradient = logits_in + row * V, gradient_out + row * V
    if label == IGNORE:
        tl.store(sums_out + 2 * row, 0.0)
        tl.store(sums_out + 2 * row + 1, 0.0)
        if DERIVES:
            for begin in range(0, V, WIDTH):
                place = begin + columns
                tl.store(gradient + place, tl.zeros((WIDTH,), tl.float32), place < V)
        return
    highest, total, added, own = -float("inf"), 0.0, 0.0, 0.0
    for begin in range(0, V, WIDTH):
        place = begin + columns
        inside = place < V
        x = tl.load(logits + place, inside, other=-float("inf")).to(tl.float32)
        if CAPS:
            x = tl.where(inside, cap * (2 / (1 + tl.exp(-2 * x / cap)) - 1), -float("inf"))
        higher = tl.maximum(highest, tl.max(x, 0))
        total = total * tl.exp(highest - higher) + tl.sum(tl.exp(x - higher), 0)
        highest = higher
        own += tl.sum(tl.where(place == label, x, 0.0), 0)
        if SMOOTHS:
            added += tl.sum(tl.where(inside, x, 0.0), 0)
    normaliser = highest + tl.log(total)
    loss = normaliser - own
    objective = loss
    if SMOOTHS:
        objective = (1 - smoothing) * loss + smoothing * (normaliser - added / V)
    tl.store(sums_out + 2 * row, objective)
    tl.store(sums_out + 2 * row + 1, loss)
    if DERIVES:
        for begin in range(0, V, WIDTH):
            place = begin + columns
            inside = place < V
            x = tl.load(logits + place, inside, other=0.0).to(tl.float32)
            if CAPS:
                x = cap * (2 / (1 + tl.exp(-2 * x / cap)) - 1)
            g = tl.exp(x - normaliser) - tl.where(place == label, 1 - smoothing, 0.0) - smoothing / V
            if CAPS:
                g = g * (1 - (x / cap) * (x / cap))
            tl.store(gradient + place, g, inside)


def compare(logits: Tensor, labels: Tensor, smoothing: float, cap: float, ignore: int, derives: bool) -> list[Tensor]:
    """Return objective and loss of each position (rows, 2), and, if it `derives`, the gradient (rows, V); cap 0: none.

    Rows of logits are contiguous.
    """
    rows, size = logits.shape
    sums = torch.empty(rows, 2, dtype=torch.float32, device=logits.device)
    gradient = torch.empty_like(logits) if derives else logits.new_empty(0, size)
    width = min(WIDEST, triton.next_power_of_2(size))
    _compare[(rows,)](
        logits,
        labels,
        sums,
        gradient,
        size,
        smoothing,
        cap,
        IGNORE=ignore,
        SMOOTHS=smoothing > 0,
        CAPS=cap > 0,
        DERIVES=derives,
        WIDTH=width,
        num_warps=min(max(width // 1024, 4), 32),
    )
    return [sums, gradient]
