"""Int8 on the CPU: the large matrices in whole numbers, and all else as it is.

W has a scale for each of its rows, and so has each vector x that it is multiplied by: Wx = s_W * s_x * (Q_W q_x), where
the product of whole numbers is exact. No vector has a say in the scale of another, so what becomes of a vector does
not depend on its batch. FBGEMM (Khudia et al. 2021) multiplies, which comes with torch for processors with AVX2.
"""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, NoReturn

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.errors import RegardError
from regard.models.model import Model
from regard.models.stack import Layer
from regard.parts.attention import Attention
from regard.parts.heads import MultiHeads
from regard.parts.linear import Linear

ENGINE = "fbgemm"
WHOLE = 127  # the largest whole number of a weight


@torch.no_grad()
def quantise(model: Model) -> None:
    """Let int8 do what the matrices of attention, of feed-forwards and of the vocabulary do; those are freed.

    Small matrices (of scores, routers, classes), recurrence and experts stay as they are, and so does the table of
    tokens, which is looked up. Such a model can be run, and neither saved nor moved.
    """
    if ENGINE not in torch.backends.quantized.supported_engines:
        cause = "int8 needs an x86 processor with AVX2, and a torch that was built with FBGEMM"
        raise RegardError(f"{cause}; take --precision float32")
    with packing():
        for layer in model.modules():
            if isinstance(layer, Layer) and isinstance(layer.mixer, Attention):
                join(layer.mixer)
        for parent in [module for module in model.modules() if not isinstance(module, Linear)]:
            for name, child in list(parent.named_children()):
                if isinstance(child, Linear):
                    setattr(parent, name, Int8(child.weight, child.bias))
        if (found := model.vocabulary_head()) is not None:
            found.head.product = Int8(found.head.matrix(found.table))
            found.head.unembed = None


def join(attention: Attention) -> None:
    """Make queries, keys and values by one product. A mixer looks at its own input, so it never needs one alone."""
    heads = attention.heads
    if isinstance(heads, MultiHeads):
        heads.packed = Int8(*heads.joined())
        for name in ("to_query", "to_key", "to_value"):
            setattr(heads, name, None)


class Int8(nn.Module):
    """Wx + b by a product of whole numbers."""

    def __init__(self, weight: Float[Tensor, "O D"], bias: Float[Tensor, "O"] | None = None) -> None:
        super().__init__()
        self.packed = pack(weight.detach().float())
        self.bias = None if bias is None else bias.detach().float()
        self.steps = steps()

    def forward(self, x: Float[Tensor, "*rows D"]) -> Float[Tensor, "*rows O"]:
        """Wx + b. A vector of zeros becomes 0/0, for which the product has some number or other, times 0."""
        scale = x.abs().amax(-1, keepdim=True)
        y = multiply(x / scale, self.steps, self.packed)
        return y.mul_(scale) if self.bias is None else torch.addcmul(self.bias, y, scale)

    def _save_to_state_dict(self, *arguments: Any) -> NoReturn:
        raise RegardError("a model in int8 cannot be saved; load it in float32")

    def _apply(self, *arguments: Any) -> NoReturn:
        raise RegardError("a model in int8 stays as and where it is; load it anew in what you want")


def multiply(x: Float[Tensor, "*rows D"], steps: int, packed: Any) -> Float[Tensor, "*rows O"]:
    """Multiply vectors of numbers from -1 to 1, rounded to so many steps on either side of 0, by a packed matrix."""
    product: Tensor = torch.ops.quantized.linear_with_input_q_dq_qweight_dq_output_fp32(x, 1 / steps, steps + 1, packed)
    return product


@cache
def steps() -> int:
    """How many steps there are from 0 to 1: 127, or 63 on processors that add up pairs of products in 16 bits.

    Those give the largest number instead of a larger sum, so such a sum must not happen. (Others have AVX512-VNNI.)
    """
    with packing():
        most = multiply(torch.ones(1, 64), WHOLE, pack(torch.ones(1, 64)))
    return WHOLE if abs(float(most) - 64) < 1 else WHOLE // 2


def pack(weight: Float[Tensor, "O D"]) -> Any:
    """Round each row of a matrix to whole numbers, and lay them out for the product. To be run inside `packing`."""
    scale = weight.abs().amax(1).clamp(min=torch.finfo(torch.float32).tiny) / WHOLE
    whole = torch.quantize_per_channel(weight, scale, torch.zeros(len(weight), dtype=torch.long), 0, torch.qint8)
    return torch.ops.quantized.linear_prepack(whole, None)


@contextmanager
def packing() -> Iterator[None]:
    """Choose the library that will multiply, for which torch has but one global variable; and keep its advice back.

    Which is that these tensors will go some day: they are gone as soon as they are packed.
    """
    before = torch.backends.quantized.engine
    torch.backends.quantized.engine = ENGINE
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        torch.backends.quantized.engine = before
