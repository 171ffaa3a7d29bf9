"""Statistics of heads: entropy, distance, attention to the previous and the first token; and where the page begins.

Also what is computed from many weights: the thumbnail of a head, and attention rollout (Abnar, Zuidema 2020).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import isnan, log

import numpy as np
import torch
from jaxtyping import Float, UInt8
from torch import Tensor

from regard.viewer.manifest import THUMBNAIL, AttentionInfo, AttentionShape, StatisticsInfo, Token

NEARLY = 0.1  # a weight that is smaller by at most this fraction counts as nearly the largest
SINK = 0.5  # a head with more weight than this on special tokens and the first token shows little


# --- statistics ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class HeadStatistics:
    """Statistics and thumbnails of some heads of one attention."""

    entropy: list[float]  # in bits, mean over queries
    distance: list[float]  # in tokens, weighted mean, then mean over queries
    previous: list[float]  # mean weight on the key before the query
    first: list[float]  # mean weight on the first key
    sink: list[float]  # mean weight that text queries give to the first key and to special keys
    thumbnails: UInt8[np.ndarray, "h t s"]


def measure_heads(weights: Float[Tensor, "h T S"], queries: Sequence[Token], keys: Sequence[Token]) -> HeadStatistics:
    """Compute the statistics of some heads of one attention."""
    _, T, S = weights.shape
    i, j = (torch.arange(length, device=weights.device, dtype=weights.dtype) for length in (T, S))
    distance = (i[:, None] - j).abs_()
    texts = [index for index in _texts(queries) if index] or list(range(T))
    sinks = sorted({0, *(index for index, token in enumerate(keys) if token["special"])})
    sunk = weights[:, texts][:, :, sinks].sum(-1).mean(-1)
    return HeadStatistics(
        (torch.special.entr(weights).sum((1, 2)) / (T * log(2))).tolist(),
        (weights.flatten(1) @ distance.flatten() / T).tolist(),
        weights.diagonal(-1, 1, 2).mean(-1).tolist(),
        weights[:, :, 0].mean(-1).tolist(),
        sunk.tolist(),
        max_pool(weights, THUMBNAIL, THUMBNAIL),
    )


def join_heads(parts: Iterable[HeadStatistics]) -> HeadStatistics:
    """Concatenate the statistics of several groups of heads."""
    tables = [vars(one) for one in parts]
    lists = {name: [number for one in tables for number in one[name]] for name in tables[0] if name != "thumbnails"}
    return HeadStatistics(**lists, thumbnails=np.concatenate([one["thumbnails"] for one in tables]))


def with_statistics(
    attentions: Sequence[AttentionShape], steps: Sequence[Sequence[HeadStatistics]]
) -> list[AttentionInfo]:
    """Add the statistics of every step to the descriptions of attentions."""

    def numbers(index: int, name: str) -> list[list[float | None]]:
        return [[None if isnan(one) else round(one, 6) for one in getattr(step[index], name)] for step in steps]

    def statistics(index: int) -> StatisticsInfo:
        return {
            "entropy": numbers(index, "entropy"),
            "distance": numbers(index, "distance"),
            "previous": numbers(index, "previous"),
            "first": numbers(index, "first"),
        }

    return [{**one, "statistics": statistics(index)} for index, one in enumerate(attentions)]


def max_pool(weights: Float[Tensor, "h T S"], rows: int, columns: int) -> UInt8[np.ndarray, "h t s"]:
    """Shrink each head to at most `rows` x `columns` by taking the largest weight of each block; 255 is a weight of 1.

    The sizes of two blocks differ by one row or column at most.
    """
    numbers = weights.float().cpu().numpy()
    for axis, most in ((2, columns), (1, rows)):
        length = numbers.shape[axis]
        if length > most:
            numbers = np.maximum.reduceat(numbers, np.arange(most) * length // most, axis)
    return np.rint(np.nan_to_num(numbers) * 255).astype(np.uint8)


# --- where the page begins -------------------------------------------------------------------------------------------


def choose_first_head(
    attentions: Sequence[AttentionShape], statistics: Sequence[HeadStatistics]
) -> tuple[int, int] | None:
    """Choose the attention and head to begin with: the one with the lowest entropy that is not a sink.

    If the model has cross-attention, only its heads are considered.
    """
    kinds = [attention["kind"] for attention in attentions]
    wanted = [index for index, kind in enumerate(kinds) if kind == "cross" or "cross" not in kinds]
    heads = [(index, head) for index in wanted for head in range(len(statistics[index].entropy))]
    useful = [(index, head) for index, head in heads if statistics[index].sink[head] <= SINK]
    if useful:
        return min(useful, key=lambda one: statistics[one[0]].entropy[one[1]])
    return min(heads, key=lambda one: statistics[one[0]].sink[one[1]], default=None)


def choose_first_cell(
    weights: Float[Tensor, "T S"], queries: Sequence[Token], keys: Sequence[Token], same: bool
) -> tuple[int, int]:
    """Choose the query and the key to begin with: two words, with a weight far above uniform attention.

    A token's attention to itself shows little, so it is ignored where queries and keys are the `same` tokens. Of
    cells that are nearly as high, the one with the longest words is taken: *river* rather than *the*.
    """
    uniform = 1 / (weights > 0).sum(-1, keepdim=True).clamp(min=1)
    excess = (weights - uniform).cpu().float().numpy()
    if same and min(excess.shape) > 1:
        np.fill_diagonal(excess, -1)
    rows, columns = _words(queries), _words(keys)
    some = excess[np.ix_(rows, columns)]
    lengths = [
        np.array([len(side[index]["text"]) for index in indices])
        for side, indices in ((queries, rows), (keys, columns))
    ]
    near = some >= some.max() - NEARLY * abs(some.max())
    rank = np.where(near, lengths[0][:, None] + lengths[1] + some, -1)
    row, column = np.unravel_index(int(rank.argmax()), some.shape)
    return rows[int(row)], columns[int(column)]


def _texts(tokens: Sequence[Token]) -> list[int]:
    """Return the indices of tokens that are not special."""
    return [index for index, token in enumerate(tokens) if not token["special"]]


def _words(tokens: Sequence[Token]) -> list[int]:
    """Return the indices of tokens with a letter or digit; if there are none, of text tokens, or of all."""
    texts = _texts(tokens)
    words = [index for index in texts if any(map(str.isalnum, tokens[index]["text"]))]
    return words or texts or list(range(len(tokens)))


# --- rollout ---------------------------------------------------------------------------------------------------------


def rollout(layers: Iterable[Float[Tensor, "T T"]]) -> Float[Tensor, "T T"]:
    """Multiply attention through all layers: R = ... (A_2/2 + I/2) (A_1/2 + I/2), A the mean over heads.

    This is a derived quantity: it assumes that a layer only averages its inputs by the weights, with a residual
    connection.
    """
    total: Tensor | None = None
    for weights in layers:
        step = (weights + torch.eye(len(weights), dtype=weights.dtype, device=weights.device)) / 2
        total = step if total is None else step @ total
    assert total is not None
    return total
