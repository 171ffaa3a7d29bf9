"""Fixed tables of a model: frequencies, slopes."""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor, nn


class Constant(nn.Module):
    """A fixed table that moves with the model, but is neither trained nor saved nor rounded below float32.

    bfloat16 cannot represent every position, for example 257. The exact table stays on the CPU in float64 and is copied
    whenever the model moves, so it also works for a model that was built on the meta device.
    """

    values: Tensor

    def __init__(self, exact: Float[Tensor, "size"]) -> None:
        super().__init__()
        self.exact = exact
        self.register_buffer("values", exact.to(torch.get_default_device(), torch.float32), persistent=False)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "Constant":
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        dtype = torch.float64 if self.values.dtype == torch.float64 else torch.float32
        self.values = self.exact.to(self.values.device, dtype)
        return self
