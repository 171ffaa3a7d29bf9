"""BPE-dropout (Provilkov et al. 2020) that follows from a seed: the same seed splits the same texts in the same way.

The `tokenizers` library draws from a generator that cannot be seeded, so it is used only to split texts into words and
words into characters. The merges are made here, for all words at once: in each step every possible merge of a word is
dropped with the given probability, and the first of the remaining ones, in the order in which merges were learned, is
made. A word is done when none remains.
"""

import json
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any

import numpy as np
import tokenizers
from jaxtyping import Int

from regard.data.sentencepiece import explain_library_errors
from regard.errors import ConfigError

NONE = np.int64(2**31 - 1)  # the rank of two tokens that no merge joins
DONE = np.int64(2**63 - 1)


class BPEDropout:
    """Splits texts as a BPE tokenizer does, but leaves out each merge with a probability."""

    def __init__(self, backend: tokenizers.Tokenizer, dropout: float) -> None:
        state = json.loads(backend.to_str())
        model = state["model"]
        if model["type"] != "BPE":
            raise ConfigError(f"{dropout} is for BPE only; this tokenizer is of the kind {model['type']}", "dropout")
        without = {"merges": [], "ignore_merges": False, "dropout": None}
        self._characters = tokenizers.Tokenizer.from_str(json.dumps(state | {"model": model | without}))
        self._limit = np.uint64(round(dropout * 2**32))  # a merge is made if 32 random bits are not below
        vocabulary, prefix = model["vocab"], model.get("continuing_subword_prefix") or ""
        self._size = max(vocabulary.values()) + 1
        ranks = {
            (vocabulary[left], vocabulary[right]): (rank, vocabulary[left + right.removeprefix(prefix)])
            for rank, (left, right) in enumerate(model["merges"])
        }
        table = sorted((left * self._size + right, rank, merged) for (left, right), (rank, merged) in ranks.items())
        self._pairs, self._ranks, merged = np.array(table, np.int64).reshape(-1, 3).T.copy()
        self._merged = np.zeros(len(model["merges"]), np.int64)
        self._merged[self._ranks] = merged

    def encode(self, texts: Sequence[str], seed: Sequence[int]) -> list[Int[np.ndarray, " tokens"]]:
        """Return the ids of each text, int32; `seed` is a list of numbers, none of them negative."""
        if not texts:
            return []
        with explain_library_errors():
            encodings = self._characters.encode_batch(list(texts), add_special_tokens=False)
        lengths = np.array([len(encoding) for encoding in encodings])
        ids = _flat(encoding.ids for encoding in encodings)
        text = np.repeat(np.arange(len(texts)), lengths)
        word = _flat(encoding.word_ids for encoding in encodings)
        begins = np.ones(len(ids), bool)
        begins[1:] = (text[1:] != text[:-1]) | (word[1:] != word[:-1])
        ids, kept = self._merge(ids, np.cumsum(begins) - 1, np.random.Philox(np.random.SeedSequence(seed)))
        ends = np.cumsum(np.bincount(text[begins], np.bincount(kept, minlength=begins.sum()), len(texts)).astype(int))
        return np.split(ids.astype(np.int32), ends[:-1])

    def _merge(self, ids: np.ndarray, word: np.ndarray, chance: np.random.Philox) -> tuple[np.ndarray, np.ndarray]:
        """Make the merges of all words; return the ids, and the number of the word of each."""
        done_ids, done_words = [ids[:0]], [word[:0]]
        rank = np.full(len(ids), NONE)  # of the pair that begins at each token
        inside = np.flatnonzero(word[1:] == word[:-1])
        rank[inside] = self._rank(ids[inside], ids[inside + 1])
        while len(ids):
            lengths = np.diff(np.flatnonzero(np.concatenate(([True], word[1:] != word[:-1], [True]))))
            starts = np.cumsum(lengths) - lengths
            possible = np.flatnonzero(rank < NONE)
            possible = possible[self._draw(len(possible), chance) >= self._limit]
            order = np.full(len(ids), DONE)
            order[possible] = (rank[possible] << 32) + possible
            best = np.minimum.reduceat(order, starts)
            is_done = best == DONE
            left = best[~is_done] & 0xFFFFFFFF
            ids[left] = self._merged[best[~is_done] >> 32]
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
                rank[inside] = self._rank(ids[inside], ids[inside + 1])
        words = np.concatenate(done_words)
        order = np.argsort(words, kind="stable")
        return np.concatenate(done_ids)[order], words[order]

    def _rank(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        """Return the ranks of the merges of pairs; `NONE` where there is no merge."""
        if not len(self._pairs):
            return np.full(len(left), NONE)
        pairs = left * self._size + right
        place = np.minimum(np.searchsorted(self._pairs, pairs), len(self._pairs) - 1)
        return np.where(self._pairs[place] == pairs, self._ranks[place], NONE)

    @staticmethod
    def _draw(count: int, chance: np.random.Philox) -> np.ndarray:
        """Draw 32 random bits each; NumPy promises the raw bits of a generator to stay the same in all versions."""
        return chance.random_raw((count + 1) // 2).astype("<u8").view("<u4")[:count]


def _flat(rows: Iterable[Iterable[Any]]) -> np.ndarray:
    return np.fromiter(chain.from_iterable(rows), np.int64)
