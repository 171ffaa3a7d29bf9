"""How weights lie in memory while a model writes: a step multiplies few vectors by all of them."""

import torch
from torch import Tensor, nn

from regard.models.model import Model
from regard.parts.heads import MultiHeads


@torch.no_grad()
def lay_out(model: Model) -> None:
    """Lay the matrices out for steps; names, shapes and values stay as they are.

    Queries, keys and values are made by one product. On the CPU all matrices are stored by columns: some tens of rows
    times a matrix stored by rows takes up to twice as long there. On CUDA the vocabulary is rounded up.
    """
    arrange = by_columns if next(model.parameters()).device.type == "cpu" else as_it_is
    packed: set[nn.Module] = set()
    for module in model.modules():
        if isinstance(module, MultiHeads):
            module.pack(arrange)
            packed |= {module.to_query, module.to_key, module.to_value}
    for module in model.modules():
        if isinstance(module, nn.Linear | nn.Embedding) and module not in packed:
            module.weight.data = arrange(module.weight.data)
    found = model.vocabulary_head()
    if found is not None and arrange is as_it_is:
        found.head.widen(found.table, of=64)


def by_columns(matrix: Tensor) -> Tensor:
    """The same matrix, column after column in memory."""
    return matrix.t().contiguous().t()


def as_it_is(matrix: Tensor) -> Tensor:
    """Nothing to change."""
    return matrix
