"""Losses: cross-entropy, with label smoothing (Szegedy et al. 2016), mixup (Zhang et al. 2018) and R-Drop (Liang et al.
2021).

All are sums over the positions that count, so that they add up over micro-batches and ranks; callers divide by the
count.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from regard.parts.region import region

IGNORE = -100  # the label of a position that does not count: padding, a prompt, a token that was not masked


class Losses(NamedTuple):
    """Sums over the positions that count."""

    objective: Tensor  # what is minimised: smoothed, regularised
    loss: Tensor  # the plain negative log-likelihood, detached
    count: Tensor  # type: ignore[assignment]  # of positions; hides `tuple.count`, which is not used


@region
def cross_entropy(logits: Float[Tensor, "*rows V"], labels: Int[Tensor, "*rows"], smoothing: float = 0.0) -> Losses:
    """Return L = -sum_t log p_t[y_t]; smoothed: sum_t (1 - e) (-log p_t[y_t]) + e mean_v (-log p_t[v]).

    It is computed in float32 at least. A label of `IGNORE` adds nothing and gives no gradient.
    """
    logits, labels = _flat(logits), labels.reshape(-1).long()
    count = torch.count_nonzero(labels != IGNORE)
    if smoothing == 0.0:  # fused: no second copy of the logits is kept
        loss = F.cross_entropy(logits, labels, ignore_index=IGNORE, reduction="sum")
        return Losses(loss, loss.detach(), count)
    objective, loss = _smoothed(F.log_softmax(logits, -1), labels, smoothing)
    return Losses(objective, loss.detach(), count)


def mixed_cross_entropy(
    logits: Float[Tensor, "rows V"],
    labels: Int[Tensor, "rows"],
    others: Int[Tensor, "rows"],
    share: Float[Tensor, "rows"],
    smoothing: float = 0.0,
) -> Losses:
    """Return L = sum_t s_t CE(p_t, y_t) + (1 - s_t) CE(p_t, z_t), smoothed, for inputs mixed from two (mixup).

    A row whose own label y_t is `IGNORE` does not count.
    """
    log_p = F.log_softmax(_flat(logits), -1)
    targets = share[:, None] * _one_hot(labels, log_p) + (1 - share)[:, None] * _one_hot(others, log_p)
    counts = labels != IGNORE
    loss = -(log_p * targets).sum(-1).masked_fill(~counts, 0.0).sum()
    spread = -_counted(log_p.mean(-1), labels)
    return Losses((1 - smoothing) * loss + smoothing * spread, loss.detach(), torch.count_nonzero(counts))


@region
def r_drop(
    logits_a: Float[Tensor, "*rows V"],
    logits_b: Float[Tensor, "*rows V"],
    labels: Int[Tensor, "*rows"],
    alpha: float,
    smoothing: float = 0.0,
) -> Losses:
    """Return L = (L_a + L_b) / 2 + alpha / 4 sum_t (KL(p_a | p_b) + KL(p_b | p_a)); the passes differ in dropout.

    L_a and L_b are the (smoothed) cross-entropies; `loss` is the mean of the plain ones, `count` is of one pass.
    """
    labels = labels.reshape(-1).long()
    log_a, log_b = F.log_softmax(_flat(logits_a), -1), F.log_softmax(_flat(logits_b), -1)
    objective_a, loss_a = _smoothed(log_a, labels, smoothing)
    objective_b, loss_b = _smoothed(log_b, labels, smoothing)
    # The two divergences together: sum_v (p_a[v] - p_b[v]) (log p_a[v] - log p_b[v]).
    apart = _counted(((log_a.exp() - log_b.exp()) * (log_a - log_b)).sum(-1), labels)
    objective = (objective_a + objective_b) / 2 + alpha / 4 * apart
    return Losses(objective, (loss_a + loss_b).detach() / 2, torch.count_nonzero(labels != IGNORE))


@torch.no_grad()
def count_right(logits: Float[Tensor, "*rows V"], labels: Int[Tensor, "*rows"]) -> Int[Tensor, ""]:
    """Count the positions whose most likely token is the label. For validation: it costs as much as a softmax."""
    return torch.count_nonzero(logits.argmax(-1) == labels)


def _smoothed(log_p: Float[Tensor, "rows V"], labels: Int[Tensor, "rows"], smoothing: float) -> tuple[Tensor, Tensor]:
    """Return the smoothed and the plain negative log-likelihood."""
    loss = F.nll_loss(log_p, labels, ignore_index=IGNORE, reduction="sum")
    if smoothing == 0.0:
        return loss, loss
    spread = _counted(log_p.sum(-1), labels) / log_p.shape[-1]
    return (1 - smoothing) * loss - smoothing * spread, loss


def _one_hot(labels: Int[Tensor, "rows"], like: Float[Tensor, "rows V"]) -> Float[Tensor, "rows V"]:
    """Return rows with 1 at the label."""
    return torch.zeros_like(like).scatter_(1, labels.clamp(min=0)[:, None].long(), 1.0)


def _counted(values: Float[Tensor, "rows"], labels: Int[Tensor, "rows"]) -> Tensor:
    """Sum over the positions that count."""
    return values.masked_fill(labels == IGNORE, 0.0).sum()


def _flat(logits: Float[Tensor, "*rows V"]) -> Float[Tensor, "rows V"]:
    """Return one row per position, in float32 at least: a sum of logarithms in half precision is too inexact."""
    return logits.reshape(-1, logits.shape[-1]).to(torch.promote_types(logits.dtype, torch.float32))
