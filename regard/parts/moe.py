"""Mixture of experts as DeepSeek-V3 (2024) defines it: a router with a bias that balances the load, shared experts.

Each token goes to the few experts whose affinity is highest, and the outputs are weighted by that affinity. All
shapes are static: tokens are sorted by expert, and one grouped product serves all experts, in bfloat16 without waiting
for how many tokens each has.
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from einops import rearrange
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from regard.parts.precision import autocast_dtype, without_autocast
from regard.parts.transforms import is_transformed


class Router(nn.Module):
    """affinity s = sigmoid(W x); chosen = top k of (s + b); weights = s / sum of the chosen s, times `scale`.

    The bias b only chooses and has no gradient: `balance` moves it against the load (Wang et al. 2024). With
    `groups`, experts compete in groups first: a group's strength is the sum of its two best, and only the experts of
    the best `chosen_groups` groups can be chosen.

    The load counts the choices of real tokens only: not those of padding, and not those that `counted` excludes.
    """

    bias: Tensor
    load: Tensor
    counted: Tensor | None = None  # which rows (B) or tokens (B, T) are real; training sets it for a forward pass

    def __init__(
        self, dim: int, experts: int, chosen: int, groups: int = 1, chosen_groups: int = 1, scale: float = 1.0
    ) -> None:
        super().__init__()
        self.experts, self.chosen, self.scale = experts, chosen, scale
        self.groups, self.chosen_groups = groups, chosen_groups
        self.affinity = nn.Linear(dim, experts, bias=False)
        self.register_buffer("bias", torch.zeros(experts))
        self.register_buffer("load", torch.zeros(experts, dtype=torch.long))

    def forward(
        self, x: Float[Tensor, "tokens D"], real: Bool[Tensor, "tokens"] | None = None
    ) -> tuple[Float[Tensor, "tokens chosen"], Int[Tensor, "tokens chosen"]]:
        """Return the weights and the numbers of the experts of each token; the load counts those that are `real`."""
        scores = self.scores(x)
        choice = scores + self.bias
        if self.groups > 1:
            choice = self.best_groups(choice)
        index = choice.topk(self.chosen, dim=-1).indices
        if self.training:
            counted = torch.ones_like(index) if real is None else real[:, None].expand_as(index).to(index.dtype)
            self.load += torch.zeros_like(self.load).scatter_add_(0, index.flatten(), counted.flatten())
        weights = scores.gather(-1, index)
        return (self.scale * weights / (weights.sum(-1, keepdim=True) + 1e-20)).to(x.dtype), index

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "Router":
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self.bias = self.bias.float()  # steps of `balance` are lost in bfloat16
        return self

    def scores(self, x: Float[Tensor, "tokens D"]) -> Float[Tensor, "tokens N"]:
        """Return the affinities, at least in float32: in bfloat16 many experts would tie and the bias would be lost."""
        dtype = torch.promote_types(x.dtype, torch.float32)
        with without_autocast(x):
            return F.linear(x.to(dtype), self.affinity.weight.to(dtype)).sigmoid()

    def best_groups(self, choice: Float[Tensor, "tokens N"]) -> Float[Tensor, "tokens N"]:
        """Set the choice of all experts outside the strongest groups to -inf."""
        grouped = rearrange(choice, "tokens (groups n) -> tokens groups n", groups=self.groups)
        strength = grouped.topk(2, dim=-1).values.sum(-1)
        best = strength.topk(self.chosen_groups, dim=-1).indices
        keep = torch.zeros_like(strength, dtype=torch.bool).scatter(-1, best, True)
        return grouped.masked_fill(~keep[..., None], -torch.inf).flatten(-2)

    @torch.no_grad()
    def balance(self, rate: float) -> None:
        """Raise the bias of experts below the mean load by `rate`, and lower it above; called after every update."""
        self.bias += rate * torch.sign(self.load.float().mean() - self.load)
        self.load.zero_()


class Experts(nn.Module):
    """N gated units side by side: W_down (silu(W_gate x) * W_up x), each with weights of its own."""

    def __init__(self, experts: int, dim: int, hidden: int) -> None:
        super().__init__()
        self.gate = nn.Parameter(torch.empty(experts, dim, hidden))
        self.up = nn.Parameter(torch.empty(experts, dim, hidden))
        self.down = nn.Parameter(torch.empty(experts, hidden, dim))
        for weight in self.parameters():  # as nn.Linear does; `models/init.py` fills them again
            limit = weight.shape[1] ** -0.5
            nn.init.uniform_(weight, -limit, limit)

    @property
    def residual_outputs(self) -> list[Tensor]:
        """Return the matrix whose product is added to the residual stream (see `models/init.py`)."""
        return [self.down]

    def flops(self, tokens: int, keys: int) -> int:
        """Count the three products of one expert for each vector."""
        return 2 * tokens * sum(weights[0].numel() for weights in self.parameters())

    def is_static(self, dtype: torch.dtype) -> bool:
        """Return whether a product in this precision waits for no count of tokens, so that CUDA can capture it."""
        return has_grouped_kernel(dtype, self.gate.shape[1], self.gate.shape[2])

    def forward(self, x: Float[Tensor, "rows D"], counts: Int[Tensor, "N"]) -> Float[Tensor, "rows D"]:
        """Apply the experts to rows that are sorted by expert, `counts` rows for each."""
        hidden = F.silu(grouped_product(x, self.gate, counts)) * grouped_product(x, self.up, counts)
        return grouped_product(hidden, self.down, counts)


def grouped_product(
    x: Float[Tensor, "rows D"], weights: Float[Tensor, "N D F"], counts: Int[Tensor, "N"]
) -> Float[Tensor, "rows F"]:
    """Multiply the rows of each expert by its matrix."""
    dtype = autocast_dtype(x)
    x, weights = x.to(dtype), weights.to(dtype)
    if has_grouped_kernel(dtype, x.shape[1], weights.shape[2]):
        return F.grouped_mm(x, weights, offs=counts.cumsum(0).to(torch.int32))
    return multiply_parts(x, weights, counts) if is_transformed() else product_by_expert(x, weights, counts)


def has_grouped_kernel(dtype: torch.dtype, dim: int, hidden: int) -> bool:
    """Return whether torch's grouped kernel can be used: it needs bfloat16, and rows of whole 16 bytes."""
    return dtype == torch.bfloat16 and dim % 8 == hidden % 8 == 0


def multiply_parts(x: Tensor, weights: Tensor, counts: Tensor) -> Tensor:
    """Compute `grouped_product` where torch's grouped kernel cannot; it reads the counts on the host."""
    parts = zip(torch.split(x, counts.tolist()), weights, strict=True)
    return torch.cat([rows @ weight for rows, weight in parts])


product_by_expert = torch.library.custom_op("regard::product_by_expert", multiply_parts, mutates_args=())


@product_by_expert.register_fake
def _(x: Tensor, weights: Tensor, counts: Tensor) -> Tensor:
    return x.new_empty(x.shape[0], weights.shape[2])


@torch.library.custom_op("regard::weights_by_expert", mutates_args=())
def weights_by_expert(x: Tensor, gradient: Tensor, counts: Tensor) -> Tensor:
    """Return the gradient of `product_by_expert` for the weights: x^T gradient, for the rows of each expert."""
    sizes = counts.tolist()
    return torch.stack([a.T @ b for a, b in zip(torch.split(x, sizes), torch.split(gradient, sizes), strict=True)])


@weights_by_expert.register_fake
def _(x: Tensor, gradient: Tensor, counts: Tensor) -> Tensor:
    return x.new_empty(counts.shape[0], x.shape[1], gradient.shape[1])


def _keep_for_backward(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None]:
    x, weights, counts = ctx.saved_tensors
    d_x = product_by_expert(gradient, weights.transpose(1, 2), counts)
    return d_x, weights_by_expert(x, gradient, counts), None


product_by_expert.register_autograd(_backward, setup_context=_keep_for_backward)


class MixtureOfExperts(nn.Module):
    """y = sum over the chosen experts of weight * expert(x), plus the shared experts, which serve every token."""

    def __init__(self, router: Router, experts: Experts, shared: nn.Module | None) -> None:
        super().__init__()
        self.router = router
        self.experts = experts
        self.shared = shared

    def forward(self, x: Float[Tensor, "B T D"], positions: Int[Tensor, "B T"] | None = None) -> Float[Tensor, "B T D"]:
        """Send each token to its experts and sum their weighted outputs; at position -1 there is no token."""
        tokens = x.flatten(0, 1)
        weights, index = self.router(tokens, self.real_tokens(x, positions) if self.training else None)
        order = index.flatten().argsort(stable=True)
        source = order // index.shape[1]
        ones = torch.ones_like(order)
        counts = ones.new_zeros(self.router.experts).scatter_add(0, index.flatten(), ones)
        answers = self.experts(tokens[source], counts) * weights.flatten()[order, None]
        mixed = torch.zeros_like(tokens).index_add(0, source, answers.to(tokens.dtype))
        if self.shared is not None:
            mixed = mixed + self.shared(tokens)
        return mixed.view_as(x)

    def real_tokens(self, x: Tensor, positions: Tensor | None) -> Tensor | None:
        """Return which tokens the load counts, row after row; None: all."""
        real, counted = None if positions is None else positions >= 0, self.router.counted
        if counted is not None:
            tokens = counted.view(len(counted), -1).expand(x.shape[:2])
            real = tokens if real is None else real & tokens
        return None if real is None else real.flatten()

    def tokens_through(self, child: nn.Module, tokens: int, keys: int) -> int:
        """Return how many vectors pass through a child: each goes to the chosen experts."""
        return tokens * self.router.chosen if child is self.experts else tokens

    def summary(self) -> str:
        """Return how many experts are chosen of how many."""
        return f"{self.router.chosen} of {self.router.experts} experts"
