"""y = Wx + b, in the form that is fast where it is computed."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

Product = Callable[[Tensor], Tensor]  # x -> Wx + b, in whatever form W is stored


def linear(
    x: Float[Tensor, "*rows D"], weight: Float[Tensor, "O D"], bias: Float[Tensor, "O"] | None
) -> Float[Tensor, "*rows O"]:
    """Return Wx + b. For a single vector, torch.compile fuses the product only if the bias is added separately."""
    if bias is not None and torch.compiler.is_compiling() and x.numel() == x.shape[-1]:
        return F.linear(x, weight) + bias
    return F.linear(x, weight, bias)


class Linear(nn.Linear):
    """y = Wx + b."""

    def forward(self, x: Float[Tensor, "*rows D"]) -> Float[Tensor, "*rows O"]:
        """Return Wx + b."""
        return linear(x, self.weight, self.bias)


class Repackable(nn.Module):
    """A module whose main product may be computed from another form of its weights while a model is decoded.

    `product` is None, or set by `regard.decode` (packed, widened or int8 weights). Moving or casting the model makes
    that form stale, so it is dropped then.
    """

    def __init__(self) -> None:
        super().__init__()
        self.product: Product | None = None

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "Repackable":
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self.product = None
        return self
