"""Tokenised rows (sentences, documents) in memory-mapped files, so that a corpus can be larger than memory.

A corpus is a folder: `tokens.bin` (all ids, in the smallest of uint8, uint16, int32 that holds them), `offsets.bin`
(where each row begins, and the end, int64) and `meta.json`. Corpora are kept in the cache (see `cache.py`).
"""

import json
import mmap
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from regard.data.cache import CacheKey, cached, digest
from regard.data.device import free_memory, to_device
from regard.untrusted import JsonError, read_json

TOKENS, OFFSETS, META = "tokens.bin", "offsets.bin", "meta.json"
WIDTHS = ("uint8", "uint16", "int32")
BLOCK = 1 << 20  # tokens per write
SHARE = 0.25  # the part of an accelerator's free memory that a corpus may take


class Corpus:
    """Rows of token ids, and all tokens as one sequence; both are gathered in batches, without a loop over rows.

    They are gathered where the tokens are, and returned on `device`, which may be another.
    """

    def __init__(
        self,
        tokens: Tensor,
        offsets: np.ndarray,
        facts: dict[str, Any],
        maps: list[mmap.mmap],
        checksum: str = "",
        device: torch.device | None = None,
    ) -> None:
        self.tokens = len(tokens)
        self.rows = len(offsets) - 1
        self.facts = facts
        self.checksum = checksum  # of the tokens and of where the rows begin; of a cached corpus only
        self.device = device or tokens.device
        self._home = tokens.device
        self._tokens = tokens
        self._host_offsets = offsets
        self._offsets = torch.from_numpy(offsets).to(tokens.device)
        self._maps = maps

    @cached_property
    def lengths(self) -> Int[np.ndarray, " rows"]:
        """Return the number of tokens of each row."""
        return np.diff(self._host_offsets)

    @property
    def starts(self) -> Int[np.ndarray, " rows"]:
        """Return the index of the first token of each row."""
        return self._host_offsets[:-1]

    def padded(self, rows: Int[np.ndarray, "B"], width: int, fill: int) -> Int[Tensor, "B {width}"]:
        """Return rows by number, cut at `width` and padded with `fill` on the right; row -1 is empty."""
        assert len(rows) == 0 or (rows.min() >= -1 and rows.max() < self.rows), "a row is outside the corpus"
        row, place = self._index(rows), torch.arange(width, device=self._home)
        begin, end = self._offsets[row, None], self._offsets[row + 1, None]
        inside = (place < end - begin) & (row >= 0)[:, None]
        return self._to_device(torch.where(inside, self._gather(torch.where(inside, begin + place, 0)), fill))

    def gather(self, places: Int[np.ndarray, "B T"], fill: int) -> Int[Tensor, "B T"]:
        """Return the tokens at any indices; index -1 gives `fill`."""
        index = self._index(places)
        return self._to_device(torch.where(index >= 0, self._gather(index.clamp(min=0)), fill))

    def windows(self, starts: Int[np.ndarray, "B"], width: int) -> Int[Tensor, "B {width}"]:
        """Return `width` tokens from each start, across the boundaries of rows."""
        return self._to_device(self._gather(self._span(starts, width)))

    def row_at(self, starts: Int[np.ndarray, "B"], width: int) -> Int[Tensor, "B {width}"]:
        """Return the number of the row that each token of `windows` belongs to."""
        return self._to_device(torch.searchsorted(self._offsets, self._span(starts, width), right=True) - 1)

    def to(self, device: str | torch.device) -> "Corpus":
        """Copy the corpus to an accelerator, so that batches are gathered there without waiting for the host.

        A corpus that would take much of its memory stays where it is, and only the batches are copied.
        """
        device = torch.device(device)
        free = free_memory(device)
        if free is None or self._tokens.nbytes + self._host_offsets.nbytes <= SHARE * free:
            return Corpus(self._tokens.to(device), self._host_offsets, self.facts, self._maps, self.checksum)
        return Corpus(self._tokens, self._host_offsets, self.facts, self._maps, self.checksum, device)

    def release(self) -> None:
        """Return the mapped pages to the system; they are read again when needed."""
        if hasattr(mmap, "MADV_DONTNEED"):  # not on Windows
            for file in self._maps:
                file.madvise(mmap.MADV_DONTNEED)

    def _span(self, starts: np.ndarray, width: int) -> Tensor:
        assert len(starts) == 0 or (starts.min() >= 0 and starts.max() + width <= self.tokens), "outside the corpus"
        return self._index(starts)[:, None] + torch.arange(width, device=self._home)

    def _index(self, numbers: np.ndarray) -> Tensor:
        return to_device(numbers.astype(np.int64), self._home)

    def _to_device(self, found: Tensor) -> Tensor:
        """Copy a batch to the device, if the corpus is elsewhere."""
        return found if self.device == self._home else to_device(found.numpy(), self.device)

    def _gather(self, index: Tensor) -> Tensor:
        if self.tokens == 0:
            return torch.zeros_like(index)
        found = self._tokens[index].long()
        return found & 0xFFFF if self._tokens.dtype == torch.int16 else found  # uint16, which torch cannot index


def read_corpus(folder: Path, checksum: str = "") -> Corpus | None:
    """Open the corpus in a folder; return None if there is none, or it is damaged."""
    try:
        meta = read_json(folder / META)
        sizes = {TOKENS: meta["tokens"] * np.dtype(meta["dtype"]).itemsize, OFFSETS: (meta["rows"] + 1) * 8}
        if any((folder / name).stat().st_size != size for name, size in sizes.items()):
            return None
        tokens, offsets, facts = _map(folder / TOKENS), _map(folder / OFFSETS), meta["facts"]
    except (JsonError, OSError, ValueError, KeyError, TypeError):
        return None
    dtype = torch.int16 if meta["dtype"] == "uint16" else getattr(torch, meta["dtype"])
    flat = torch.frombuffer(tokens, dtype=dtype) if tokens else torch.empty(0, dtype=dtype)
    assert offsets is not None
    maps = [file for file in (tokens, offsets) if file]
    return Corpus(flat, np.frombuffer(offsets, dtype=np.int64), facts, maps, checksum)


def _map(path: Path) -> mmap.mmap | None:
    """Map a file into memory; return None for an empty one, which cannot be mapped."""
    if path.stat().st_size == 0:
        return None
    with path.open("rb") as file:  # copy on write, since torch requires writable memory
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)


class CorpusWriter:
    """Writes a corpus row by row, in bounded memory; complete only when its `with` block ends without an error."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.facts: dict[str, Any] = {}
        self._dtype = np.dtype(WIDTHS[0])
        self._pieces: list[np.ndarray] = []  # not yet written
        self._waiting = 0  # their tokens
        self._offsets = [0]
        self._tokens = self._rows = self._closed = 0  # totals; `_closed` counts tokens up to the last complete row

    def __enter__(self) -> "CorpusWriter":
        self.folder.mkdir(parents=True, exist_ok=True)
        self._token_file = (self.folder / TOKENS).open("wb")
        self._offset_file = (self.folder / OFFSETS).open("wb")
        return self

    def add(self, rows: Iterable[np.ndarray]) -> None:
        """Add rows of ids."""
        for row in rows:
            self.add_piece(row, ends=True)

    def add_piece(self, ids: np.ndarray, ends: bool) -> None:
        """Add the next ids of a row that may be too long to hold in memory; set `ends` with its last piece."""
        self._pieces.append(ids)
        self._waiting += len(ids)
        self._tokens += len(ids)
        if ends:
            self._offsets.append(self._tokens)
            self._closed = self._tokens
            self._rows += 1
        if self._waiting >= BLOCK or len(self._pieces) >= BLOCK // 16:
            self._flush()

    def note(self, **facts: Any) -> None:
        """Store facts about the corpus with it, such as its bytes or its words."""
        self.facts.update(facts)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None:
                self._finish()
        finally:
            with suppress(OSError):  # reported already
                self._token_file.close()
            with suppress(OSError):
                self._offset_file.close()

    def _finish(self) -> None:
        self._flush()
        assert self._closed == self._tokens, "the last row has not ended"
        meta = {"dtype": self._dtype.name, "tokens": self._tokens, "rows": self._rows}
        (self.folder / META).write_text(json.dumps(meta | {"facts": self.facts}), encoding="utf-8")

    def _flush(self) -> None:
        ids = np.concatenate([np.empty(0, dtype=np.int32), *self._pieces])
        offsets = np.array(self._offsets, dtype=np.int64)
        self._pieces, self._offsets, self._waiting = [], [], 0
        assert len(ids) == 0 or ids.min() >= 0, "a negative id"
        if len(ids) and ids.max() > np.iinfo(self._dtype).max:
            self._widen(int(ids.max()))
        self._token_file.write(ids.astype(self._dtype).data)
        self._offset_file.write(offsets.data)
        self._token_file.flush()
        self._offset_file.flush()

    def _widen(self, largest: int) -> None:
        """Rewrite the tokens so far in the smallest type that holds `largest`; this mostly happens early."""
        narrow, part = self._dtype, self.folder / f"{TOKENS}.wide"
        self._dtype = next(np.dtype(name) for name in WIDTHS if largest <= np.iinfo(name).max)
        with (self.folder / TOKENS).open("rb") as old, part.open("wb") as new:
            while block := old.read(BLOCK * narrow.itemsize):
                new.write(np.frombuffer(block, dtype=narrow).astype(self._dtype).data)
        self._token_file.close()
        part.replace(self.folder / TOKENS)
        self._token_file = (self.folder / TOKENS).open("ab")


# --- the cache -----------------------------------------------------------------------------------------------------


def cached_corpus(key: CacheKey, write: Callable[[CorpusWriter], None]) -> Corpus:
    """Return the corpus that `key` describes: from the cache, or made by `write` and kept there."""

    def make(folder: Path) -> None:
        with CorpusWriter(folder) as writer:
            write(writer)

    entry = cached("corpora", key, make)
    corpus = read_corpus(entry.folder, digest(*(entry.checksums[name] for name in (TOKENS, OFFSETS))))
    assert corpus is not None, "a corpus with the right checksums can be read"
    return corpus
