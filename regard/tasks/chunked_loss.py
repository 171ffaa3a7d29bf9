"""The cross-entropy of a head over a large vocabulary, chunk by chunk: the logits of all positions are never held.

For GPT-2 and 32 rows of 1,024 tokens they would take 3.3 GB, as much again for their gradient, and would be read or
written five times. The gradient of the loss at a position needs only the logits of that position, so it is computed in
the forward pass, right after them (Hsu et al. 2024, "Liger kernel", do the same); compiled, both are one kernel. With
targets q_t = (1 - e) [v = y_t] + e / V,

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
from regard.parts.linear import is_hooked
from regard.parts.linear_recurrence import HAS_TRITON
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
    plain = type(head) is Logits and head.product is None and not is_hooked(head)
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
        dtype, wide = autocast_dtype(x), torch.promote_types(weight.dtype, torch.float32)
        ctx.dtypes = (x.dtype, weight.dtype)
        sums: list[Tensor] = []
        to_x: list[Tensor] = []
        to_weight: Tensor | None = None
        to_bias: Tensor | None = None
        with without_autocast(x):
            matrix, offset = weight.to(dtype), None if bias is None else bias.to(dtype)
            for rows, marks in _chunks(x.to(dtype), labels, target.chunks):
                logits = F.linear(rows, matrix, offset)
                if _has_kernel(logits):
                    found = compare_by_kernel(logits, marks, target.smoothing, target.cap, target.learns)
                    gradient = logits
                else:
                    found, gradient = _compare(logits, marks, target.smoothing, target.cap, target.learns)
                sums.append(found)
                if target.learns:
                    to_x.append(gradient @ matrix)
                    to_weight = _added(to_weight, gradient.mT @ rows, wide)
                    to_bias = None if bias is None else _added(to_bias, gradient.sum(0, dtype=wide), wide)
        if target.learns:
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


def _added(total: Tensor | None, more: Tensor, dtype: torch.dtype) -> Tensor:
    return more.to(dtype) if total is None else total.add_(more)


def _has_kernel(logits: Tensor) -> bool:
    """Return whether a kernel of Triton compares these logits in place: on CUDA, in at most float32."""
    return HAS_TRITON and logits.is_cuda and logits.dtype != torch.float64


@torch.library.custom_op("regard::compare_logits", mutates_args=("logits",))
def compare_by_kernel(logits: Tensor, labels: Tensor, smoothing: float, cap: float | None, derives: bool) -> Tensor:
    """Return what `_compare` returns first; if `derives`, its gradient replaces the logits."""
    from regard.tasks.loss_kernel import compare_rows

    return compare_rows(logits, labels, smoothing, cap, derives, IGNORE)


@compare_by_kernel.register_fake
def _(logits: Tensor, labels: Tensor, smoothing: float, cap: float | None, derives: bool) -> Tensor:
    return logits.new_empty(2, dtype=torch.float32)


@region
def _compare(
    logits: Float[Tensor, "rows V"], labels: Int[Tensor, "rows"], smoothing: float, cap: float | None, derives: bool
) -> tuple[Float[Tensor, "2"], Float[Tensor, "_rows V"]]:
    """Return objective and loss, and the gradient of the objective by the logits before they are capped."""
    scores = at_least_float32(logits)
    scores = scores if cap is None else cap * torch.tanh(scores / cap)
    normaliser, counts = scores.logsumexp(-1, keepdim=True), labels != IGNORE
    loss = (normaliser - scores.gather(1, labels.clamp(min=0)[:, None]))[:, 0].masked_fill(~counts, 0.0).sum()
    spread = (normaliser[:, 0] - scores.mean(-1)).masked_fill(~counts, 0.0).sum() if smoothing else loss
    sums = torch.stack(((1 - smoothing) * loss + smoothing * spread, loss))
    if not derives:
        return sums, logits[:0]
    is_label = torch.arange(logits.shape[1], device=logits.device) == labels[:, None]
    wanted = (1 - smoothing) * is_label.to(scores.dtype) + smoothing / logits.shape[1]
    gradient = (scores - normaliser).exp() - wanted
    if cap is not None:
        gradient = gradient * (1 - (scores / cap).square())
    return sums, torch.where(counts[:, None], gradient, 0.0).to(logits.dtype)
