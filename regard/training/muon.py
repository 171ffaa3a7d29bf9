"""Muon (Jordan et al. 2024): the momentum of each matrix is replaced by the nearest semi-orthogonal matrix.

The momentum of a hidden matrix is dominated by a few directions; made orthogonal, it moves all directions alike. This
differs from `torch.optim.Muon` in three points, which matter on an accelerator: the rate may be a tensor,
nothing waits for the accelerator, and matrices of one shape are made orthogonal together, which costs a few large
products instead of hundreds of small ones.
"""

from collections.abc import Iterator
from math import sqrt
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from regard.training.shard import local, with_whole_rows

QUINTIC = (3.4445, -4.7750, 2.0315)  # steep at 0, so that small singular values grow fast; they end within 0.7 to 1.2
ROUNDS = 5
TOGETHER = 2**24  # numbers in one stack: enough to keep an accelerator busy, little beside the weights of a large model


class Muon(torch.optim.Optimizer):
    """M <- lerp(G, M, mu); W <- W - rate * (decay * W + sqrt(max(1, rows/columns)) * orthogonal(lerp(G, M, mu))).

    Groups have `lr`, `momentum` and `weight_decay`, as those of torch. If `found_inf` is 1, a step changes nothing;
    the fused optimizers of torch use the same names.
    """

    _step_supports_amp_scaling = True
    found_inf: Tensor | None = None

    def __init__(self, groups: list[dict[str, Any]]) -> None:
        super().__init__(groups, {})
        for group in self.param_groups:
            for matrix in group["params"]:
                self.state[matrix]["momentum"] = torch.zeros_like(matrix)

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]
        """Update every matrix that has a gradient."""
        for group in self.param_groups:
            for matrices in _group_by_shape(group["params"]):
                self._move(matrices, group["lr"], group["momentum"], group["weight_decay"])

    def _move(self, matrices: list[Tensor], rate: float | Tensor, inertia: float, decay: float) -> None:
        kept = [local(self.state[matrix]["momentum"]) for matrix in matrices]
        here = [local(matrix) for matrix in matrices]
        weights, momentum = torch.stack(here), torch.stack(kept)
        gradient = torch.stack([local(matrix.grad) for matrix in matrices if matrix.grad is not None])
        new_momentum = gradient.lerp(momentum, inertia)
        ahead = gradient.lerp(new_momentum, inertia)  # looks one step ahead, as Nesterov does
        direction = with_whole_rows(orthogonal, ahead, matrices[0])
        rows, columns = matrices[0].shape
        scale = sqrt(max(1.0, rows / columns))
        new_weights = weights * (1 - rate * decay) - direction * (rate * scale)
        if self.found_inf is not None:
            bad = self.found_inf.bool()
            new_momentum = torch.where(bad, momentum, new_momentum)
            new_weights = torch.where(bad, weights, new_weights)
        torch._foreach_copy_(here + kept, [*new_weights.unbind(), *new_momentum.unbind()])


def _group_by_shape(matrices: list[Tensor]) -> Iterator[list[Tensor]]:
    """Yield lists of matrices of one shape, each with at most `TOGETHER` numbers."""
    shapes: dict[torch.Size, list[Tensor]] = {}
    for matrix in matrices:
        if matrix.grad is not None:
            shapes.setdefault(matrix.shape, []).append(matrix)
    for shape, same in shapes.items():
        count = max(TOGETHER // shape.numel(), 1)
        yield from (same[first : first + count] for first in range(0, len(same), count))


def orthogonal(matrices: Float[Tensor, "N rows columns"]) -> Float[Tensor, "N rows columns"]:
    """Bring all singular values near 1 by Newton-Schulz: X <- aX + b(XX')X + c(XX')^2 X, from X with norm 1.

    bfloat16 is enough on an accelerator, where it is fast; on most CPUs it is not.
    """
    a, b, c = QUINTIC
    tall = matrices.shape[1] > matrices.shape[2]
    x = matrices.mT if tall else matrices  # so that XX' is the smaller of the two products
    x = x.float() if x.device.type == "cpu" else x.bfloat16()
    x = x / x.norm(dim=(1, 2), keepdim=True).clamp(min=1e-7)
    for _ in range(ROUNDS):
        square = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(square, square, square, beta=b, alpha=c), x, beta=a)
    return (x.mT if tall else x).to(matrices.dtype)
