"""What a translation looked at: cross-attention weights, for word alignments and for the coverage penalty.

In Transformers the heads of the last layer but one, averaged, align best (Garg et al. 2019); in an RNN there is but
one attention (Bahdanau et al. 2015).
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.decode.engine import in_use
from regard.decode.rows import count
from regard.errors import InputError
from regard.models.model import Model
from regard.parts.attend import watch


def cross_weights(
    model: Model,
    source: Int[Tensor, "B S"],
    source_lengths: Int[Tensor, "B"] | None,
    start: int,
    ids: list[list[int]],
) -> list[Float[Tensor, "_T _S"]]:
    """Give for each row how much each source token was looked at (columns) when each of its `ids` was written (rows).

    One forced pass over source and ids, as in training.
    """
    name = aligning(model)
    width = max([1, *map(len, ids)])
    # what is written t-th was chosen where the token before it was read, so the last one is not read
    read = [[start, *text, *[start] * width][:width] for text in ids]
    with in_use(model), watch(model, name) as tape:
        model(source, torch.tensor(read, device=source.device), source_lengths=source_lengths)
        weights = tape.weights(name).mean(1)
    ends = zip(map(len, ids), count(source, source_lengths), strict=True)
    return [row[:target, :end] for row, (target, end) in zip(weights, ends, strict=True)]


def aligning(model: Model) -> str:
    """Name the cross-attention that aligns best."""
    names = model.cross_attentions()
    if not names:
        raise InputError("this model has no attention to its source, so nothing can be aligned; use one that has")
    return names[max(len(names) - 2, 0)]
