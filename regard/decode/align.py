"""The source tokens that a translation attends to, for word alignments and for the coverage penalty.

In Transformers the heads of the second-to-last layer, averaged, align best (Garg et al. 2019). An RNN has only one
attention (Bahdanau et al. 2015).
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.decode.engine import in_use
from regard.decode.rows import row_lengths
from regard.errors import InputError
from regard.models.model import Model
from regard.parts.watch import watch


def cross_weights(
    model: Model,
    source: Int[Tensor, "B S"],
    source_lengths: Int[Tensor, "B"] | None,
    start: int,
    ids: list[list[int]],
) -> list[Float[Tensor, "_T _S"]]:
    """Return for each row the attention of each of its `ids` (rows) to each source token (columns).

    The model runs once, with teacher forcing.
    """
    name = aligning_attention(model)
    width = max([1, *map(len, ids)])
    # each token is predicted where the one before it is read, so the last one is not read
    read = [[start, *text, *[start] * width][:width] for text in ids]
    with in_use(model), watch(model, name) as tape:
        model(source, torch.tensor(read, device=source.device), source_lengths=source_lengths)
        weights = tape.weights(name).mean(1)
    ends = zip(map(len, ids), row_lengths(source, source_lengths), strict=True)
    return [row[:target, :end] for row, (target, end) in zip(weights, ends, strict=True)]


def aligning_attention(model: Model) -> str:
    """Return the name of the cross-attention that aligns best."""
    names = model.cross_attentions()
    if not names:
        raise InputError("this model has no attention to its source, so it cannot align; use one that has")
    return names[max(len(names) - 2, 0)]
