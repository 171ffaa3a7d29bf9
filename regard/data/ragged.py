"""Rows of different lengths, one after the other in one array: grow it, and gather rows without a loop."""

from itertools import pairwise

import numpy as np
from jaxtyping import Int, Shaped


class GrowingArray:
    """An array that grows at its end; its memory doubles when it is full."""

    def __init__(self, dtype: type[np.generic]) -> None:
        self._memory = np.empty(1024, dtype)
        self._count = 0

    @property
    def values(self) -> Shaped[np.ndarray, " count"]:
        """The elements so far; the memory is shared until the array grows."""
        return self._memory[: self._count]

    def __len__(self) -> int:
        return self._count

    def extend(self, values: np.ndarray) -> None:
        """Append values."""
        count = self._count + len(values)
        if count > len(self._memory):
            memory = np.empty(max(count, 2 * len(self._memory)), self._memory.dtype)
            memory[: self._count] = self.values
            self._memory = memory
        self._memory[self._count : count] = values
        self._count = count


def places_of(starts: Int[np.ndarray, " rows"], lengths: Int[np.ndarray, " rows"]) -> Int[np.ndarray, " places"]:
    """Return the indices of the elements of rows, one row after the other."""
    ends = np.cumsum(lengths)
    return np.repeat(starts - (ends - lengths), lengths) + np.arange(ends[-1] if len(ends) else 0)


def split_rows(values: np.ndarray, lengths: Int[np.ndarray, " rows"]) -> list[np.ndarray]:
    """Return each row as an array of its own memory, so that one row does not keep the others."""
    ends = np.cumsum(lengths).tolist()
    return [values[begin:end].copy() for begin, end in pairwise([0, *ends])]
