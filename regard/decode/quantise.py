"""Int8 on the CPU: the large matrices as integers, everything else unchanged.

W has a scale for each of its rows, and each vector x has a scale of its own: Wx = s_W * s_x * (Q_W q_x), where the
product of integers is exact. A vector's result does not depend on the other vectors of its batch. The product is
computed by FBGEMM (Khudia et al. 2021), which is part of torch for processors with AVX2.
"""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, NoReturn

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.decode.layout import joined_weights
from regard.errors import RegardError
from regard.models.model import Model
from regard.models.stack import Layer
from regard.parts.attention import Attention
from regard.parts.heads import MultiHeads
from regard.parts.linear import Linear

ENGINE = "fbgemm"
LARGEST = 127  # the largest integer of a weight


@torch.no_grad()
def quantise(model: Model) -> None:
    """Replace the matrices of attention, feed-forwards and the vocabulary by int8, and free them.

    Small matrices (of scores, routers, classes), recurrence and experts stay as they are, and so does the token table,
    which is looked up. Such a model can be run, but neither saved nor moved.
    """
    if ENGINE not in torch.backends.quantized.supported_engines:
        cause = "int8 needs an x86 processor with AVX2, and a torch that was built with FBGEMM"
        raise RegardError(f"{cause}; use --precision float32")
    with fbgemm():
        for layer in model.modules():
            if isinstance(layer, Layer) and isinstance(layer.mixer, Attention):
                quantise_heads(layer.mixer)
        for parent in [module for module in model.modules() if not isinstance(module, Linear)]:
            for name, child in list(parent.named_children()):
                if isinstance(child, Linear):
                    setattr(parent, name, Int8(child.weight, child.bias))
        if (found := model.vocabulary_head()) is not None:
            found.head.product = Int8(found.head.matrix(found.table), found.head.bias)
            found.head.unembed = None


def quantise_heads(attention: Attention) -> None:
    """Compute queries, keys and values of a self-attention by one product; it never needs one of them alone."""
    heads = attention.heads
    if isinstance(heads, MultiHeads):
        heads.product = Int8(*joined_weights(heads))
        for name in ("to_query", "to_key", "to_value"):
            setattr(heads, name, None)


class Int8(nn.Module):
    """Wx + b by a product of integers."""

    def __init__(self, weight: Float[Tensor, "O D"], bias: Float[Tensor, "O"] | None = None) -> None:
        super().__init__()
        self.packed = pack_int8(weight.detach().float())
        self.bias = None if bias is None else bias.detach().float()
        self.levels = input_levels()

    def forward(self, x: Float[Tensor, "*rows D"]) -> Float[Tensor, "*rows O"]:
        """Return Wx + b. A zero vector becomes 0/0, for which the product is finite; times the scale 0, it is 0."""
        scale = x.abs().amax(-1, keepdim=True)
        y = multiply_int8(x / scale, self.levels, self.packed)
        return y.mul_(scale) if self.bias is None else torch.addcmul(self.bias, y, scale)

    def _save_to_state_dict(self, *arguments: Any) -> NoReturn:
        raise RegardError("an int8 model cannot be saved; load it in float32")

    def _apply(self, *arguments: Any) -> NoReturn:
        raise RegardError("an int8 model cannot be moved or cast; load it again in the precision you want")


def multiply_int8(x: Float[Tensor, "*rows D"], levels: int, packed: Any) -> Float[Tensor, "*rows O"]:
    """Multiply vectors of numbers from -1 to 1, rounded to `levels` on either side of 0, by a packed matrix."""
    product: Tensor = torch.ops.quantized.linear_with_input_q_dq_qweight_dq_output_fp32(
        x, 1 / levels, levels + 1, packed
    )
    return product


@cache
def input_levels() -> int:
    """Return how many levels there are from 0 to 1: 127, or 63 on processors that add pairs of products in 16 bits.

    Those saturate on larger sums, which must therefore not occur. (Processors with AVX512-VNNI add in 32 bits.)
    """
    with fbgemm():
        most = multiply_int8(torch.ones(1, 64), LARGEST, pack_int8(torch.ones(1, 64)))
    return LARGEST if abs(float(most) - 64) < 1 else LARGEST // 2


def pack_int8(weight: Float[Tensor, "O D"]) -> Any:
    """Round each row of a matrix to integers, packed for the product. Call it inside `fbgemm`."""
    scale = weight.abs().amax(1).clamp(min=torch.finfo(torch.float32).tiny) / LARGEST
    integers = torch.quantize_per_channel(weight, scale, torch.zeros(len(weight), dtype=torch.long), 0, torch.qint8)
    return torch.ops.quantized.linear_prepack(integers, None)


@contextmanager
def fbgemm() -> Iterator[None]:
    """Select FBGEMM in torch's global variable, and silence the deprecation warning for quantised tensors.

    Such tensors exist here only until they are packed.
    """
    before = torch.backends.quantized.engine
    torch.backends.quantized.engine = ENGINE
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        torch.backends.quantized.engine = before
