"""Weights in a quarter of their space: matrices as int8 with a scale for each row, w = s_i q_ij, |q_ij| < 2^(bits-1).

A file holds NAME in int8 and NAME.scale in float32; vectors (norms, biases) stay as they are. `read_model` expands them
to float32, so such a folder is used like any other. The rounding error of a weight is at most s_i / 2. Fewer than
8 bits save space only in a compressed file.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

SCALE = ".scale"


def compact_weights(weights: Mapping[str, Tensor], bits: int = 8) -> dict[str, Tensor]:
    """Round every matrix to int8, with the scale of a row its largest weight / largest number of the bits."""
    largest = 2 ** (bits - 1) - 1
    found: dict[str, Tensor] = {}
    for name, tensor in weights.items():
        if tensor.ndim < 2 or not tensor.is_floating_point():
            found[name] = tensor
            continue
        rows = tensor.detach().float().flatten(1)
        scale = rows.abs().amax(1) / largest
        rounded = (rows / torch.where(scale > 0, scale, 1.0)[:, None]).round()
        found[name], found[name + SCALE] = rounded.to(torch.int8).view(tensor.shape), scale
    return found


def expand_weights(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return weights as `compact_weights` was given them, up to rounding; others unchanged."""
    found: dict[str, Tensor] = {}
    for name, tensor in weights.items():
        scale = weights.get(name + SCALE)
        if tensor.dtype == torch.int8 and scale is not None and scale.shape == tensor.shape[:1]:
            found[name] = tensor.float() * scale.view(-1, *[1] * (tensor.ndim - 1))
        elif not (name.endswith(SCALE) and _is_compact(weights, name.removesuffix(SCALE))):
            found[name] = tensor
    return found


def _is_compact(weights: Mapping[str, Tensor], name: str) -> bool:
    return name in weights and weights[name].dtype == torch.int8
