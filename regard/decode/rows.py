"""Which rows of a batch are still being written, and when to read what they wrote.

Reading from an accelerator synchronises with it, so it is done every few steps only. A row that has ended meanwhile
continues, and what it writes beyond its end is cut off.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Int
from torch import Tensor

from regard.decode.engine import Given
from regard.models.model import StepModel

CHECK_EVERY = 16  # steps of an accelerator between two reads


def check_interval(device: torch.device) -> int:
    """Return the number of steps between two reads: 1 on a CPU, where reading costs nothing."""
    return 1 if device.type == "cpu" else CHECK_EVERY


class Rows:
    """`here` are the rows in the batch, by place; each writes up to `limits[row]` tokens, or is `done` earlier.

    No row reads more than `capacity` tokens: all but the last one, which is only written. If they are `watched`, every
    step is read: what may follow depends on it.
    """

    def __init__(self, given: Given, limits: list[int], watched: bool = False) -> None:
        assert len(limits) == len(given.tokens)
        self.lengths = row_lengths(given.tokens, given.lengths)
        self.limits = limits
        self.here = list(range(len(limits)))
        self.done = {row for row, limit in enumerate(limits) if limit <= 0}
        self.every = 1 if watched else check_interval(given.tokens.device)
        self.steps = max(limits, default=0)  # of the row with the highest limit
        self.capacity = max((n + max(limit - 1, 0) for n, limit in zip(self.lengths, limits, strict=True)), default=0)
        self.longest = max(self.lengths, default=0)  # the most tokens given to a row that is here

    @property
    def going(self) -> list[int]:
        """Return the places of rows that are not done."""
        return [place for place, row in enumerate(self.here) if row not in self.done]

    def is_check_due(self, written: int) -> bool:
        """Return whether to read the rows now that each has written this many tokens."""
        return written % self.every == 0 or written == self.steps or self._full(written)

    def drop_done(self, written: int) -> list[int] | None:
        """Remove rows that are done if that is worth the copying; return the places that stay, or None for all.

        A row that is done may stay as long as it fits into the capacity, which a row at its limit may not.
        """
        stay = self.going
        if len(stay) == len(self.here) or not (2 * len(stay) <= len(self.here) or self._full(written)):
            return None
        self.here = [self.here[place] for place in stay]
        self.longest = max((self.lengths[row] for row in self.here), default=0)
        return stay

    def _full(self, written: int) -> bool:
        """Return whether a row would exceed the capacity if it read its last token, too."""
        return self.longest + written > self.capacity


def row_lengths(tokens: Int[Tensor, "B T"], lengths: Int[Tensor, "B"] | None) -> list[int]:
    """Return the number of real tokens of each row."""
    return [tokens.shape[1]] * len(tokens) if lengths is None else lengths.tolist()


def fit_limits(model: StepModel, given: Given, limits: list[int]) -> list[int]:
    """Lower the limits to the positions that the model has left. The last token needs none, as it is never read.

    A row that is too long already fails when it is read.
    """
    longest = model.longest()
    if longest is None:
        return limits
    pairs = zip(limits, row_lengths(given.tokens, given.lengths), strict=True)
    return [min(limit, max(longest - length, 0) + 1) for limit, length in pairs]


def end_ids(end: int | Sequence[int]) -> tuple[int, ...]:
    """Return the tokens that end a row."""
    return (end,) if isinstance(end, int) else tuple(end)
