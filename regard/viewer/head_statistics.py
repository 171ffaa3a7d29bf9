"""Heads in numbers: how sharply each looks, how far, at the token before, at the first; and which to begin with.

Also what is made of many weights: a small picture of a head, and rollout (Abnar, Zuidema 2020).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import isnan, log

import numpy as np
import torch
from jaxtyping import Float, UInt8
from torch import Tensor

from regard.viewer.recording import THUMBNAIL, Manifest
from regard.viewer.tokens import Token

NEARLY = 0.1  # by which part less a weight still counts as nearly the largest
SINK = 0.5  # a head that gives more than this to special tokens and the first one says little


# --- statistics ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class HeadStatistics:
    """Some heads of one attention in numbers, and each as a small picture."""

    entropy: list[float]  # in bits, mean over queries
    distance: list[float]  # in tokens, mean over queries under the weights
    previous: list[float]  # mean weight on the key before
    first: list[float]  # mean weight on the first key
    sink: list[float]  # mean weight that queries of text give to the first key and to special ones
    thumbnails: UInt8[np.ndarray, "h t s"]

    def statistics(self) -> dict[str, list[float | None]]:
        """Give what is shown of each head; None where there is no such number."""
        names = ("entropy", "distance", "previous", "first")
        return {name: [None if isnan(one) else round(one, 6) for one in getattr(self, name)] for name in names}


def measure_heads(weights: Float[Tensor, "h T S"], queries: Sequence[Token], keys: Sequence[Token]) -> HeadStatistics:
    """Look at some heads of one attention."""
    _, T, S = weights.shape
    i, j = (torch.arange(length, device=weights.device, dtype=weights.dtype) for length in (T, S))
    away = (i[:, None] - j).abs_()
    texts = [place for place in _texts(queries) if place] or list(range(T))
    sinks = sorted({0, *(place for place, token in enumerate(keys) if token["special"])})
    sunk = weights[:, texts][:, :, sinks].sum(-1).mean(-1)
    return HeadStatistics(
        (torch.special.entr(weights).sum((1, 2)) / (T * log(2))).tolist(),
        (weights.flatten(1) @ away.flatten() / T).tolist(),
        weights.diagonal(-1, 1, 2).mean(-1).tolist(),
        weights[:, :, 0].mean(-1).tolist(),
        sunk.tolist(),
        max_pool(weights, THUMBNAIL, THUMBNAIL),
    )


def join_heads(surveys: Iterable[HeadStatistics]) -> HeadStatistics:
    """Make one of the surveys of some heads each."""
    parts = [vars(one) for one in surveys]
    lists = {name: [number for part in parts for number in part[name]] for name in parts[0] if name != "thumbnails"}
    return HeadStatistics(**lists, thumbnails=np.concatenate([part["thumbnails"] for part in parts]))


def max_pool(weights: Float[Tensor, "h T S"], rows: int, columns: int) -> UInt8[np.ndarray, "h t s"]:
    """Shrink each head to at most so many rows and columns, by the largest of the weights that fall together.

    A row or column goes with its neighbours, all groups being alike large or one larger; 255 stands for 1.
    """
    numbers = weights.float().cpu().numpy()
    for axis, most in ((2, columns), (1, rows)):
        length = numbers.shape[axis]
        if length > most:
            numbers = np.maximum.reduceat(numbers, np.arange(most) * length // most, axis)
    return np.rint(np.nan_to_num(numbers) * 255).astype(np.uint8)


# --- where to begin --------------------------------------------------------------------------------------------------


def choose_first_head(attentions: Sequence[Manifest], surveys: Sequence[HeadStatistics]) -> tuple[int, int] | None:
    """Choose the attention and head to begin with: the most peaked that is no sink, of a translator's source if any."""
    kinds = [attention["kind"] for attention in attentions]
    wanted = [place for place, kind in enumerate(kinds) if kind == "cross" or "cross" not in kinds]
    heads = [(place, head) for place in wanted for head in range(len(surveys[place].entropy))]
    awake = [(place, head) for place, head in heads if surveys[place].sink[head] <= SINK]
    if awake:
        return min(awake, key=lambda one: surveys[one[0]].entropy[one[1]])
    return min(heads, key=lambda one: surveys[one[0]].sink[one[1]], default=None)


def choose_first_cell(
    weights: Float[Tensor, "T S"], queries: Sequence[Token], keys: Sequence[Token], same: bool
) -> tuple[int, int]:
    """Find the query and the key that say most: words, and a weight far above an even share of what can be seen.

    A token that looks at itself says little, so where queries and keys are the `same` tokens it does not count. Of
    cells that say nearly as much, the one with the longest words is taken: *river* rather than *the*.
    """
    share = 1 / (weights > 0).sum(-1, keepdim=True).clamp(min=1)
    surprise = (weights - share).cpu().float().numpy()
    if same and min(surprise.shape) > 1:
        np.fill_diagonal(surprise, -1)
    rows, columns = _telling(queries), _telling(keys)
    some = surprise[np.ix_(rows, columns)]
    lengths = [
        np.array([len(side[place]["text"]) for place in places]) for side, places in ((queries, rows), (keys, columns))
    ]
    near = some >= some.max() - NEARLY * abs(some.max())
    rank = np.where(near, lengths[0][:, None] + lengths[1] + some, -1)
    row, column = np.unravel_index(int(rank.argmax()), some.shape)
    return rows[int(row)], columns[int(column)]


def _texts(tokens: Sequence[Token]) -> list[int]:
    """Find the tokens that are text."""
    return [place for place, token in enumerate(tokens) if not token["special"]]


def _telling(tokens: Sequence[Token]) -> list[int]:
    """Find the tokens with a letter or digit in them; if there are none those of text, or all."""
    texts = _texts(tokens)
    words = [place for place in texts if any(map(str.isalnum, tokens[place]["text"]))]
    return words or texts or list(range(len(tokens)))


# --- rollout ---------------------------------------------------------------------------------------------------------


def rollout(layers: Iterable[Float[Tensor, "T T"]]) -> Float[Tensor, "T T"]:
    """Follow attention through all layers: R = ... (A_2/2 + I/2) (A_1/2 + I/2), A the mean over heads, I the residual.

    Derived, and no more than that: it takes a layer for its weights.
    """
    total: Tensor | None = None
    for weights in layers:
        step = (weights + torch.eye(len(weights), dtype=weights.dtype, device=weights.device)) / 2
        total = step if total is None else step @ total
    assert total is not None
    return total
