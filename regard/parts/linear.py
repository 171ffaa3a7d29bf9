"""y = Wx + b, in the form that suits who computes it."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

Product = Callable[[Tensor], Tensor]  # x -> Wx + b, however W is kept


def linear(
    x: Float[Tensor, "*rows D"], weight: Float[Tensor, "O D"], bias: Float[Tensor, "O"] | None
) -> Float[Tensor, "*rows O"]:
    """Wx + b. For a single vector a compiler joins the product with its neighbours, unless the bias is part of it."""
    if bias is not None and torch.compiler.is_compiling() and x.numel() == x.shape[-1]:
        return F.linear(x, weight) + bias
    return F.linear(x, weight, bias)


class Linear(nn.Linear):
    """y = Wx + b."""

    def forward(self, x: Float[Tensor, "*rows D"]) -> Float[Tensor, "*rows O"]:
        """Wx + b."""
        return linear(x, self.weight, self.bias)
