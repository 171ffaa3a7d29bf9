"""Weights in the precision of a pass, cast all at once.

Autocast casts each weight of a linear layer when it is used, and each gradient when it arrives: two small kernels for
every weight and every bias. Here one kernel casts many tensors, and weights that multiply the same vectors are joined
into one matrix (queries, keys and values; gate and up), so that one product computes them. That also pays where nothing
is cast. The model keeps its weights by their names.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import Function, once_differentiable

from regard.models.stack import Layer
from regard.parts.linear import Linear, is_hooked, using_casts

Group = tuple[Linear, ...]


class CastWeights:
    """The linear layers of a model, in groups that one product computes; with `alone` also those in no group."""

    def __init__(self, model: nn.Module, alone: bool = True) -> None:
        layers = [part for part in model.modules() if isinstance(part, Layer)]
        joined = [group for layer in layers for group in layer.with_same_input() if _can_join(group)]
        inside = set(chain.from_iterable(joined))
        others = [part for part in model.modules() if isinstance(part, Linear) and part not in inside]
        self.groups: list[Group] = [*joined, *((part,) for part in others if alone and _can_cast(part))]

    @contextmanager
    def cast_to(self, dtype: torch.dtype) -> Iterator[None]:
        """Compute with weights of this dtype in the block; gradients reach the weights of the model."""
        biased = [group for group in self.groups if group[0].bias is not None]
        members = [[layer.weight for layer in group] for group in self.groups]
        members += [[layer.bias for layer in group] for group in biased]
        tensors: Sequence[Tensor] = ()
        if members:
            tensors = _Cast.apply(dtype, [len(each) for each in members], *chain.from_iterable(members))  # type: ignore[no-untyped-call]
        biases = dict(zip(biased, tensors[len(self.groups) :], strict=True))
        casts = {group: (weight, biases.get(group)) for group, weight in zip(self.groups, tensors, strict=False)}
        with using_casts(casts):
            yield


def _can_cast(layer: Linear) -> bool:
    """Return whether a layer is what it says, and learns in float32; others are left to autocast."""
    known = type(layer) is Linear and not is_hooked(layer)
    return known and all(each.requires_grad and each.dtype == torch.float32 for each in layer.parameters())


def _can_join(group: Group) -> bool:
    return all(map(_can_cast, group)) and len({layer.bias is None for layer in group}) == 1


class _Cast(Function):
    """Join tensors along their first dimension, group by group, in another dtype."""

    @staticmethod
    def forward(ctx: Any, dtype: torch.dtype, sizes: list[int], *tensors: Tensor) -> tuple[Tensor, ...]:
        """Cast the tensors; `sizes` says how many are in each group."""
        members = iter(tensors)
        groups = [[next(members) for _ in range(size)] for size in sizes]
        ctx.shapes, ctx.dtype = [[each.shape for each in group] for group in groups], tensors[0].dtype
        ctx.set_materialize_grads(False)
        found = [group[0].new_empty(sum(map(len, group)), *group[0].shape[1:], dtype=dtype) for group in groups]
        parts = [part for whole, group in zip(found, groups, strict=True) for part in whole.split([*map(len, group)])]
        torch._foreach_copy_(parts, list(tensors))
        return tuple(found)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Any, ...]:
        """Cast the gradients back; what was not used has none."""
        found: list[Tensor | None] = []
        parts: list[Tensor] = []
        for gradient, shapes in zip(gradients, ctx.shapes, strict=True):
            if gradient is None:
                found += [None] * len(shapes)
            else:
                found += [gradient.new_empty(shape, dtype=ctx.dtype) for shape in shapes]
                parts += gradient.split([shape[0] for shape in shapes])
        torch._foreach_copy_([each for each in found if each is not None], parts)
        return None, None, *found
