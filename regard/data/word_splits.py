"""Words that are split into tokens, and the splits that the merges of BPE lead to from each.

A split is made when it is first needed, and kept. Splits have numbers; a split that two orders of merges lead to may
have two.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Int

from regard.data.ragged import GrowingArray, places_of

NONE = np.int64(2**31 - 1)  # the rank of two tokens that no merge joins
UNKNOWN = -1  # the number of a split that was not needed yet


class Merges:
    """The merges of BPE: which two tokens are joined, in which order, and the token that they become."""

    def __init__(self, vocabulary: Mapping[str, int], merges: Sequence[Sequence[str]], prefix: str) -> None:
        self._size = max(vocabulary.values()) + 1
        ranks = {
            (vocabulary[left], vocabulary[right]): (rank, vocabulary[left + right.removeprefix(prefix)])
            for rank, (left, right) in enumerate(merges)
        }
        table = sorted((left * self._size + right, rank, merged) for (left, right), (rank, merged) in ranks.items())
        self._pairs, self._ranks, merged = np.array(table, np.int64).reshape(-1, 3).T.copy()
        self.merged = np.zeros(len(merges), np.int64)  # by rank
        self.merged[self._ranks] = merged

    def rank(self, left: Int[np.ndarray, " pairs"], right: Int[np.ndarray, " pairs"]) -> Int[np.ndarray, " pairs"]:
        """Return the ranks of the merges of pairs; `NONE` where there is no merge."""
        if not len(self._pairs):
            return np.full(len(left), NONE)
        pairs = left.astype(np.int64) * self._size + right
        place = np.minimum(np.searchsorted(self._pairs, pairs), len(self._pairs) - 1)
        return np.where(self._pairs[place] == pairs, self._ranks[place], NONE)


class WordSplits:
    """Splits of words: the ids of each, and its possible merges in the order in which they were learned."""

    def __init__(self, merges: Merges) -> None:
        self._merges = merges
        self.ids = GrowingArray(np.int32)
        self._starts, self.lengths = GrowingArray(np.int32), GrowingArray(np.int32)
        self._first, self.counts = GrowingArray(np.int32), GrowingArray(np.int32)  # possible merges of each split
        # of each possible merge: the split, the index of the left token, the token that it makes, the next split
        self._split, self._left = GrowingArray(np.int32), GrowingArray(np.int32)
        self._merged, self._next = GrowingArray(np.int32), GrowingArray(np.int32)

    def add(self, ids: Int[np.ndarray, " tokens"], lengths: Int[np.ndarray, " splits"]) -> Int[np.ndarray, " splits"]:
        """Add splits, given by their ids one after the other; return their numbers."""
        numbers = len(self.lengths) + np.arange(len(lengths))
        ends = np.cumsum(lengths)
        is_left = np.ones(len(ids), bool)
        is_left[ends - 1] = False
        left = np.flatnonzero(is_left)
        rank = self._merges.rank(ids[left], ids[left + 1])
        left, rank = left[rank < NONE], rank[rank < NONE]
        row = np.repeat(np.arange(len(lengths)), lengths)[left]
        order = np.argsort((row << 32) + rank, kind="stable")
        left, rank, row = left[order], rank[order], row[order]
        counts = np.bincount(row, minlength=len(lengths))
        self._first.extend(len(self._split) + np.cumsum(counts) - counts)
        self.counts.extend(counts)
        self._split.extend(numbers[row])
        self._left.extend(left - (ends - lengths)[row])
        self._merged.extend(self._merges.merged[rank])
        self._next.extend(np.full(len(row), UNKNOWN))
        self._starts.extend(len(self.ids) + ends - lengths)
        self.lengths.extend(lengths)
        self.ids.extend(ids)
        return numbers

    def merge(self, splits: Int[np.ndarray, " words"], which: Int[np.ndarray, " words"]) -> Int[np.ndarray, " words"]:
        """Return the splits after one merge each: `which` of its possible merges, counted from 0."""
        choice = self._first.values[splits] + which
        new = np.unique(choice[self._next.values[choice] == UNKNOWN])
        if len(new):
            before = self._split.values[new]
            lengths = self.lengths.values[before]
            left = np.cumsum(lengths) - lengths + self._left.values[new]
            ids = self.gather(before)
            ids[left] = self._merged.values[new]
            self._next.values[new] = self.add(np.delete(ids, left + 1), lengths - 1)
        return self._next.values[choice]

    def gather(self, splits: Int[np.ndarray, " words"]) -> Int[np.ndarray, " tokens"]:
        """Return the ids of splits, one split after the other, int32."""
        return self.ids.values[places_of(self._starts.values[splits], self.lengths.values[splits])]
