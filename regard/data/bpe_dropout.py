"""BPE-dropout (Provilkov et al. 2020) that follows from a seed: the same seed splits the same texts in the same way.

The `tokenizers` library draws from a generator that cannot be seeded, so it is used only to split texts into words and
words into characters. The merges are made here, for all words at once: in each step every possible merge of a word is
dropped with the given probability, and the first of the remaining ones, in the order in which merges were learned, is
made. A word is done when none remains.

A word that is split in a certain way always has the same possible merges. So the splits that occur are kept
(`data/word_splits.py`), and a step of all words is a table lookup. Long words rarely occur twice, so they are merged
without a table.
"""

import json
from collections.abc import Iterable, Sequence
from itertools import chain, pairwise
from threading import Lock
from typing import Any

import numpy as np
import tokenizers
from jaxtyping import Int

from regard.data.pieces import PieceTable, can_cut
from regard.data.ragged import split_rows
from regard.data.sentencepiece import explain_library_errors
from regard.data.word_splits import NONE, Merges, WordSplits
from regard.errors import ConfigError

DONE = np.int64(2**63 - 1)
LONG = 32  # characters (bytes) of words that are merged without a table
KEPT = 1 << 23  # tokens of the splits that are kept; they are forgotten when there are more


class BPEDropout:
    """Splits texts as a BPE tokenizer does, but leaves out each merge with a probability."""

    def __init__(self, backend: tokenizers.Tokenizer, dropout: float) -> None:
        state = json.loads(backend.to_str())
        model = state["model"]
        if model["type"] != "BPE":
            raise ConfigError(f"{dropout} is for BPE only; this tokenizer is of the kind {model['type']}", "dropout")
        without = {"merges": [], "ignore_merges": False, "dropout": None}
        self._characters = tokenizers.Tokenizer.from_str(json.dumps(state | {"model": model | without}))
        self._merges = Merges(model["vocab"], model["merges"], model.get("continuing_subword_prefix") or "")
        # of 32 random bits: the first n merges of a split are all dropped if the bits are below the n-th number
        chances = [round(dropout**count * 2**32) for count in range(1, LONG + 1)]
        self._limits = np.array(chances, np.uint64)
        self._pieces = PieceTable(self._words) if can_cut(backend) else None
        self._lock = Lock()
        self._made_from = (backend, dropout)
        self._forget()

    def __reduce__(self) -> tuple[object, ...]:
        """Return how a copy is made: it begins without splits, with a lock of its own."""
        return type(self), self._made_from

    def encode(self, texts: Sequence[str], seed: Sequence[int]) -> list[Int[np.ndarray, " tokens"]]:
        """Return the ids of each text, int32; `seed` is a list of numbers, none of them negative."""
        if not texts:
            return []
        with self._lock:
            if len(self._splits.ids) > KEPT:
                self._forget()
            try:
                return self._encode(texts, np.random.Philox(np.random.SeedSequence(seed)))
            except BaseException:  # also an interrupt: a word may have a number, but no split
                self._forget()
                raise

    def _encode(self, texts: Sequence[str], chance: np.random.Philox) -> list[np.ndarray]:
        if self._pieces is None:
            rows = self._words(texts)
            words, counts = np.concatenate(rows), np.array([len(row) for row in rows])
        else:
            words, counts = self._pieces.look_up(texts)
        found = self._draw_splits(words, chance)
        lengths = np.concatenate(([0], np.cumsum(self._splits.lengths.values[found])))
        return split_rows(self._splits.gather(found), np.diff(lengths[np.concatenate(([0], np.cumsum(counts)))]))

    def _forget(self) -> None:
        self._splits = WordSplits(self._merges)
        self._numbers: dict[bytes, int] = {}  # of the split of a word into characters
        if self._pieces is not None:
            self._pieces.clear()

    def _words(self, texts: Sequence[str]) -> list[np.ndarray]:
        """Return the words of each text, as numbers of splits into characters."""
        with explain_library_errors():
            encodings = self._characters.encode_batch(list(texts), add_special_tokens=False)
        lengths = np.array([len(encoding) for encoding in encodings])
        ids = _flat(encoding.ids for encoding in encodings).astype(np.int32)
        text = np.repeat(np.arange(len(texts)), lengths)
        word = _flat(encoding.word_ids for encoding in encodings)
        begins = np.ones(len(ids), bool)
        begins[1:] = (text[1:] != text[:-1]) | (word[1:] != word[:-1])
        starts = np.flatnonzero(begins)
        first, numbers = len(self._splits.lengths), []
        new: list[np.ndarray] = []
        for begin, end in pairwise([*starts.tolist(), len(ids)]):
            number = self._numbers.setdefault(ids[begin:end].tobytes(), first + len(new))
            if number == first + len(new):
                new.append(ids[begin:end])
            numbers.append(number)
        if new:
            self._splits.add(np.concatenate(new), np.array([len(row) for row in new]))
        return split_rows(np.array(numbers, np.int32), np.bincount(text[starts], minlength=len(texts)))

    def _draw_splits(self, words: np.ndarray, chance: np.random.Philox) -> np.ndarray:
        """Return the number of the split that each word gets."""
        splits = self._splits
        found = words.astype(np.int64)
        is_long = splits.lengths.values[found] > LONG
        active = np.flatnonzero((splits.counts.values[found] > 0) & ~is_long)
        while len(active):
            drawn = _draw(len(active), chance)
            dropped = np.zeros(len(active), np.int64)
            low = np.flatnonzero(drawn < self._limits[0])
            dropped[low] = len(self._limits) - np.searchsorted(self._limits[::-1], drawn[low], side="right")
            continues = dropped < splits.counts.values[found[active]]
            active = active[continues]
            found[active] = splits.merge(found[active], dropped[continues])
            active = active[splits.counts.values[found[active]] > 0]
        if is_long.any():
            lengths = splits.lengths.values[found[is_long]]
            word = np.repeat(np.arange(len(lengths)), lengths)
            ids, word = self._merge(splits.gather(found[is_long]).astype(np.int64), word, chance)
            found[is_long] = splits.add(ids, np.bincount(word))
        return found

    def _merge(self, ids: np.ndarray, word: np.ndarray, chance: np.random.Philox) -> tuple[np.ndarray, np.ndarray]:
        """Make the merges of all words; return the ids, and the number of the word of each."""
        done_ids, done_words = [ids[:0]], [word[:0]]
        rank = np.full(len(ids), NONE)  # of the pair that begins at each token
        inside = np.flatnonzero(word[1:] == word[:-1])
        rank[inside] = self._merges.rank(ids[inside], ids[inside + 1])
        while len(ids):
            lengths = np.diff(np.flatnonzero(np.concatenate(([True], word[1:] != word[:-1], [True]))))
            starts = np.cumsum(lengths) - lengths
            possible = np.flatnonzero(rank < NONE)
            possible = possible[_draw(len(possible), chance) >= self._limits[0]]
            order = np.full(len(ids), DONE)
            order[possible] = (rank[possible] << 32) + possible
            best = np.minimum.reduceat(order, starts)
            is_done = best == DONE
            left = best[~is_done] & 0xFFFFFFFF
            ids[left] = self._merges.merged[best[~is_done] >> 32]
            over = np.repeat(is_done, lengths)
            done_ids.append(ids[over])
            done_words.append(word[over])
            stays = ~over
            stays[left + 1] = False
            left = (np.cumsum(stays) - 1)[left]
            ids, word, rank = ids[stays], word[stays], rank[stays]
            for first in (left - 1, left):  # only these pairs are new
                rank[first[first >= 0]] = NONE
                inside = first[(first >= 0) & (first + 1 < len(ids))]
                inside = inside[word[inside] == word[inside + 1]]
                rank[inside] = self._merges.rank(ids[inside], ids[inside + 1])
        words = np.concatenate(done_words)
        order = np.argsort(words, kind="stable")
        return np.concatenate(done_ids)[order], words[order]


def _draw(count: int, chance: np.random.Philox) -> np.ndarray:
    """Draw 32 random bits each; NumPy promises the raw bits of a generator to stay the same in all versions."""
    return chance.random_raw((count + 1) // 2).astype("<u8").view("<u4")[:count].astype(np.uint64)


def _flat(rows: Iterable[Iterable[Any]]) -> np.ndarray:
    return np.fromiter(chain.from_iterable(rows), np.int64)
