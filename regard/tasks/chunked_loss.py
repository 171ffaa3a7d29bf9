"""The cross-entropy of a head over a large vocabulary, chunk by chunk: the logits of all positions are never held.

For GPT-2 and 32 rows of 1,024 tokens they would take 3.3 GB, as much again for their gradient, and would be read or
written five times. The gradient of the loss at a position needs only the logits of that position, so it is computed in
the forward pass, right after them (Wijmans et al. 2025, "Cut your losses in large-vocabulary language models", and
Hsu et al. 2024, "Liger kernel", do the same): with targets q_t = (1 - e) [v = y_t] + e / V,

    dL/dlogits_t = softmax(logits_t) - q_t,    dL/dx_t = W' dL/dlogits_t,    dL/dW = sum_t dL/dlogits_t x_t'
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.autograd.function import Function, once_differentiable

from regard.models.head import Logits
from regard.models.model import Model
from regard.parts.precision import at_least_float32, autocast_dtype, without_autocast
from regard.parts.region import region
from regard.tasks.loss import IGNORE, Losses, cross_entropy

LARGE = 2**28  # logits from which they are not held in full
CHUNK = 2**28  # logits of a chunk, at most


def model_loss(
    model: nn.Module, labels: Int[Tensor, "B T"], smoothing: float, *tokens: Int[Tensor, "B _t"], **named: Any
) -> Losses:
    """Return the (smoothed) cross-entropy of model(*tokens, **named); its logits are not held in full if they are
    many.
    """
    if not _has_many_logits(model, labels):
        return cross_entropy(model(*tokens, **named), labels, smoothing)
    x = model(*tokens, **named, scores=False)
    found = model.vocabulary_head()  # type: ignore[operator]
    return chunked_cross_entropy(x, found.head, found.table, labels, smoothing)


def _has_many_logits(model: nn.Module, labels: Int[Tensor, "B T"]) -> bool:
    """Return whether a model would make more than `LARGE` logits by a head that is not changed, sharded or watched."""
    if not isinstance(model, Model) or not model.gives_vectors or (found := model.vocabulary_head()) is None:
        return False
    head, table = found
    plain = type(head) is Logits and head.product is None and not head._forward_hooks and not head._forward_pre_hooks
    return plain and labels.numel() * head.vocabulary > LARGE and not hasattr(table, "to_local")


def chunked_cross_entropy(
    x: Float[Tensor, "*rows D"],
    head: Logits,
    table: Float[Tensor, "V _token"],
    labels: Int[Tensor, "*rows"],
    smoothing: float = 0.0,
    chunk: int = CHUNK,
) -> Losses:
    """Return `cross_entropy(head(x, table), labels, smoothing)`, computed for at most `chunk` logits at a time."""
    x, labels = head.prepare(x).reshape(-1, head.dim), labels.reshape(-1).long()
    weight, learns = head.matrix(table), torch.is_grad_enabled()
    target = Target(smoothing, head.cap, count_chunks(len(x), head.vocabulary, chunk), learns)
    objective, loss = _ChunkedCrossEntropy.apply(x, weight, head.bias, labels, target)  # type: ignore[no-untyped-call]
    return Losses(objective, loss.detach(), torch.count_nonzero(labels != IGNORE))


def count_chunks(rows: int, vocabulary: int, chunk: int) -> int:
    """Return the number of chunks: the least, or up to twice that if then all have the same size."""
    least = max(1, -(-rows * vocabulary // chunk))
    return next((count for count in range(least, 2 * least) if rows % count == 0), least)


class Target(NamedTuple):
    """What logits are compared with, in how many chunks, and whether gradients are needed."""

    smoothing: float
    cap: float | None
    chunks: int
    learns: bool


class _ChunkedCrossEntropy(Function):
    """Objective and loss of cap * tanh((Wx + b) / cap), summed over positions."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Float[Tensor, "rows D"],
        weight: Float[Tensor, "V D"],
        bias: Float[Tensor, "V"] | None,
        labels: Int[Tensor, "rows"],
        target: Target,
    ) -> tuple[Tensor, Tensor]:
        """Return the sums; the gradients of x, W and b are computed here, too, if something needs them."""
        dtype, sums = autocast_dtype(x), []
        ctx.dtypes = (x.dtype, weight.dtype)
        wide = torch.promote_types(weight.dtype, torch.float32)
        to_weight = torch.zeros_like(weight, dtype=wide) if target.learns else None
        to_bias = torch.zeros_like(bias, dtype=wide) if target.learns and bias is not None else None
        to_x: list[Tensor] = []
        with without_autocast(x):
            matrix, offset = weight.to(dtype), None if bias is None else bias.to(dtype)
            for rows, marks in _chunks(x.to(dtype), labels, target.chunks):
                logits = F.linear(rows, matrix, offset)
                if to_weight is None:
                    sums.append(_compare(logits, marks, target.smoothing, target.cap))
                    continue
                found, gradient = _compare_and_derive(logits, marks, target.smoothing, target.cap)
                sums.append(found)
                to_x.append(gradient @ matrix)
                to_weight += gradient.mT @ rows
                if to_bias is not None:
                    to_bias += gradient.sum(0, dtype=wide)
        if to_weight is not None:
            ctx.save_for_backward(torch.cat(to_x), to_weight, to_bias)
        objective, loss = torch.stack(sums).sum(0)
        return objective.clone(), loss.clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        """Multiply the gradients by that of the objective; the plain loss has none."""
        to_x, to_weight, to_bias = ctx.saved_tensors
        x_dtype, weight_dtype = ctx.dtypes
        found = [(to_x * gradient).to(x_dtype), (to_weight * gradient).to(weight_dtype)]
        return *found, None if to_bias is None else (to_bias * gradient).to(weight_dtype), None, None


def _chunks(x: Tensor, labels: Tensor, count: int) -> Iterator[tuple[Tensor, Tensor]]:
    size = -(-len(x) // count)
    return zip(x.split(size), labels.split(size), strict=True)


@region
def _compare(
    logits: Float[Tensor, "rows V"], labels: Int[Tensor, "rows"], smoothing: float, cap: float | None
) -> Float[Tensor, "2"]:
    """Return objective and loss."""
    return _sums(_capped(at_least_float32(logits), cap), labels, smoothing)[0]


@region
def _compare_and_derive(
    logits: Float[Tensor, "rows V"], labels: Int[Tensor, "rows"], smoothing: float, cap: float | None
) -> tuple[Float[Tensor, "2"], Float[Tensor, "rows V"]]:
    """Return objective and loss, and the gradient of the objective by the logits before they are capped."""
    scores = _capped(at_least_float32(logits), cap)
    sums, normaliser = _sums(scores, labels, smoothing)
    is_label = torch.arange(logits.shape[1], device=logits.device) == labels[:, None]
    wanted = (1 - smoothing) * is_label.to(scores.dtype) + smoothing / logits.shape[1]
    gradient = (scores - normaliser).exp() - wanted
    if cap is not None:
        gradient = gradient * (1 - (scores / cap).square())
    return sums, torch.where((labels != IGNORE)[:, None], gradient, 0.0).to(logits.dtype)


def _sums(scores: Tensor, labels: Tensor, smoothing: float) -> tuple[Tensor, Tensor]:
    """Return objective and loss, and log sum_v exp(score[v]) of every position."""
    normaliser, counts = scores.logsumexp(-1, keepdim=True), labels != IGNORE
    loss = (normaliser - scores.gather(1, labels.clamp(min=0)[:, None]))[:, 0].masked_fill(~counts, 0.0).sum()
    if smoothing == 0.0:
        return torch.stack((loss, loss)), normaliser
    spread = (normaliser[:, 0] - scores.mean(-1)).masked_fill(~counts, 0.0).sum()
    return torch.stack(((1 - smoothing) * loss + smoothing * spread, loss)), normaliser


def _capped(logits: Tensor, cap: float | None) -> Tensor:
    return logits if cap is None else cap * torch.tanh(logits / cap)
