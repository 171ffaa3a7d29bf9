"""Which rows of a batch are still being written, and when to look at them.

To look at what an accelerator has written is to wait for it, so it is done every few steps only; a row that has ended
meanwhile goes on, and what it writes beyond its end is cut off.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Int
from torch import Tensor

from regard.decode.engine import Given
from regard.models.model import StepModel

CHECK_EVERY = 16  # steps of an accelerator from one look to the next


def patience(device: torch.device) -> int:
    """How many steps to wait from one look to the next: a CPU has done what it was told by then."""
    return 1 if device.type == "cpu" else CHECK_EVERY


class Rows:
    """`here` are the rows in the batch, by place; each may write `limits[row]` tokens, or is `done` before that.

    No row reads more than `room` tokens: all but the last one, which is only written.
    """

    def __init__(self, given: Given, limits: list[int]) -> None:
        assert len(limits) == len(given.tokens)
        self.lengths = count(given.tokens, given.lengths)
        self.limits = limits
        self.here = list(range(len(limits)))
        self.done = {row for row, limit in enumerate(limits) if limit <= 0}
        self.every = patience(given.tokens.device)
        self.steps = max(limits, default=0)  # how many there are at most
        self.room = max((n + max(limit - 1, 0) for n, limit in zip(self.lengths, limits, strict=True)), default=0)
        self.longest = max(self.lengths, default=0)  # of what was given to those here

    @property
    def going(self) -> list[int]:
        """The places of rows that are not done."""
        return [place for place, row in enumerate(self.here) if row not in self.done]

    def look(self, written: int) -> bool:
        """Whether to look, now that every row has written so many tokens."""
        return written % self.every == 0 or written == self.steps or self._full(written)

    def leave(self, written: int) -> list[int] | None:
        """Let those that are done leave if that is worth its copying; give the places that stay, None for all.

        A row that is done may stay as long as it fits into the room, which a row at its limit need not.
        """
        stay = self.going
        if len(stay) == len(self.here) or not (2 * len(stay) <= len(self.here) or self._full(written)):
            return None
        self.here = [self.here[place] for place in stay]
        self.longest = max((self.lengths[row] for row in self.here), default=0)
        return stay

    def _full(self, written: int) -> bool:
        """Whether a row would outgrow the room if it read its last token, too."""
        return self.longest + written > self.room


def count(tokens: Int[Tensor, "B T"], lengths: Int[Tensor, "B"] | None) -> list[int]:
    """Count the tokens of each row that are no padding."""
    return [tokens.shape[1]] * len(tokens) if lengths is None else lengths.tolist()


def fitting(model: StepModel, given: Given, limits: list[int]) -> list[int]:
    """Lower the limits to what the model's table of positions leaves; the last token needs none, as nobody reads it.

    A row that is too long already fails as it is read.
    """
    longest = model.longest()
    if longest is None:
        return limits
    pairs = zip(limits, count(given.tokens, given.lengths), strict=True)
    return [min(limit, max(longest - length, 0) + 1) for limit, length in pairs]


def end_ids(end: int | Sequence[int]) -> tuple[int, ...]:
    """Give the tokens that end a row, if there are any."""
    return (end,) if isinstance(end, int) else tuple(end)
