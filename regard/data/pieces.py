"""Encode texts with a table of their pieces: a word with the blank before it is encoded once, then looked up.

This is exact for the pattern by which byte-level BPE splits a text into words (that of GPT-2): a word never continues
over a blank or the end of a line that is followed by a visible character, and no word depends on what is beyond it.
"""

import json
import re
from collections.abc import Callable, Sequence
from itertools import chain
from threading import Lock

import numpy as np
import tokenizers
from jaxtyping import Int

from regard.data.ragged import GrowingArray, places_of

CUT = re.compile(r"(?=[ \n][\w!-~])")
KEPT = 1 << 21  # characters of the pieces in a table; it is emptied when there are more
WORDS = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True}  # the pattern of GPT-2


def can_cut(backend: tokenizers.Tokenizer) -> bool:
    """Return whether a tokenizer encodes the pieces of a text as it encodes the text."""
    state = json.loads(backend.to_str())
    words = state["pre_tokenizer"] or {}
    added = any(not token["special"] for token in state["added_tokens"])
    return state["normalizer"] is None and not added and words | WORDS == words


class PieceTable:
    """The values of pieces of texts, such as their ids; `encode` returns those of each text of a list."""

    def __init__(self, encode: Callable[[list[str]], Sequence[np.ndarray]]) -> None:
        self._encode = encode
        self._lock = Lock()
        self.clear()

    def clear(self) -> None:
        """Forget all pieces."""
        self._numbers = _Numbers()
        self._characters = 0
        self._values = GrowingArray(np.int32)
        self._starts, self._lengths = GrowingArray(np.int64), GrowingArray(np.int64)

    def __reduce__(self) -> tuple[object, ...]:
        """Return how a copy is made: it begins empty, with a lock of its own."""
        return type(self), (self._encode,)

    def look_up(self, texts: Sequence[str]) -> tuple[Int[np.ndarray, " values"], Int[np.ndarray, " texts"]]:
        """Return the values of all texts, one after the other, int32, and how many each text has."""
        with self._lock:
            if self._characters > KEPT:
                self.clear()
            try:
                return self._look_up(texts)
            except BaseException:  # also an interrupt: a piece may have a number, but no values
                self.clear()
                raise

    def _look_up(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        pieces = [CUT.split(text) for text in texts]
        counts = np.fromiter(map(len, pieces), np.int64, len(pieces))
        found = map(self._numbers.__getitem__, chain.from_iterable(pieces))
        numbers = np.fromiter(found, np.int64, int(counts.sum()))
        if self._numbers.new:
            self._add()
        lengths = self._lengths.values[numbers]
        values = self._values.values[places_of(self._starts.values[numbers], lengths)]
        totals = np.concatenate(([0], np.cumsum(lengths)))[np.concatenate(([0], np.cumsum(counts)))]
        return values, np.diff(totals)

    def _add(self) -> None:
        """Encode the pieces that were not in the table."""
        new, self._numbers.new = self._numbers.new, []
        rows = self._encode(new)
        lengths = np.fromiter(map(len, rows), np.int64, len(rows))
        self._starts.extend(len(self._values) + np.cumsum(lengths) - lengths)
        self._lengths.extend(lengths)
        self._values.extend(np.concatenate(rows))
        self._characters += sum(map(len, new))


class _Numbers(dict[str, int]):
    """The number of each piece; a new piece gets the next one."""

    def __init__(self) -> None:
        super().__init__()
        self.new: list[str] = []

    def __missing__(self, piece: str) -> int:
        number = self[piece] = len(self)
        self.new.append(piece)
        return number
