# mypy: disable-error-code="import-not-found,no-untyped-def,untyped-decorator"
"""Cross-entropy of a chunk of logits and its gradient as a Triton kernel; `chunked_loss.py` calls it.

A program compares one position. It reads the logits of the position from memory once, and a second time from the cache,
where it then writes the gradient in their place. This module needs triton, which torch brings where there is CUDA.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK, WARPS = 4096, 8  # logits that a program reads at a time: the fastest of six choices on an H200


@triton.jit
def _compare_rows(
    logits, labels, objectives, losses, stride, V, smoothing, cap, ignored,
    CAPPED: tl.constexpr, SMOOTHED: tl.constexpr, DERIVES: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Write objective and loss of one position, and the gradient over its logits."""
    row = tl.program_id(0).to(tl.int64)
    start, label = logits + row * stride, tl.load(labels + row)
    counts = label != ignored
    places = tl.arange(0, BLOCK)
    m, weight = -float("inf"), 0.0  # the largest score, and the sum of e^(score - m)
    total = 0.0
    for begin in range(0, V, BLOCK):
        inside = begin + places < V
        x = tl.load(start + begin + places, inside, other=-float("inf")).to(tl.float32)
        if CAPPED:
            x = tl.where(inside, cap * (2 * tl.sigmoid(2 * x / cap) - 1), -float("inf"))
        if SMOOTHED:
            total += tl.sum(tl.where(inside, x, 0.0))
        p = tl.maximum(m, tl.max(x))
        weight = weight * tl.exp(m - p) + tl.sum(tl.exp(x - p))
        m = p
    normaliser = m + tl.log(weight)
    score = tl.load(start + tl.where(counts, label, 0)).to(tl.float32)
    if CAPPED:
        score = cap * (2 * tl.sigmoid(2 * score / cap) - 1)
    loss = tl.where(counts, normaliser - score, 0.0)
    objective = loss
    if SMOOTHED:
        objective = (1 - smoothing) * loss + smoothing * tl.where(counts, normaliser - total / V, 0.0)
    tl.store(losses + row, loss)
    tl.store(objectives + row, objective)
    if DERIVES:
        tl.debug_barrier()  # the score of the label was read before it is overwritten
        for begin in range(0, V, BLOCK):
            inside = begin + places < V
            x = tl.load(start + begin + places, inside, other=-float("inf")).to(tl.float32)
            slope = 1.0
            if CAPPED:
                tanh = 2 * tl.sigmoid(2 * x / cap) - 1
                x, slope = cap * tanh, 1 - tanh * tanh
            wanted = tl.where(begin + places == label, 1 - smoothing, 0.0)
            if SMOOTHED:
                wanted += smoothing / V
            gradient = (tl.exp(x - normaliser) - wanted) * slope
            gradient = tl.where(counts, gradient, 0.0)
            tl.store(start + begin + places, gradient.to(logits.dtype.element_ty), inside)


def compare_rows(
    logits: Tensor, labels: Tensor, smoothing: float, cap: float | None, derives: bool, ignored: int
) -> Tensor:
    """Return the sums of objective and loss; with `derives`, the gradient of the objective replaces the logits."""
    rows, vocabulary = logits.shape
    found = torch.empty(2, rows, dtype=torch.float32, device=logits.device)
    _compare_rows[(rows,)](
        *(logits, labels, found[0], found[1], logits.stride(0), vocabulary),
        *(smoothing, cap or 1.0, ignored),
        CAPPED=cap is not None,
        SMOOTHED=smoothing != 0,
        DERIVES=derives,
        BLOCK=BLOCK,
        num_warps=WARPS,
    )
    return found.sum(1)
