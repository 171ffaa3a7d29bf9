"""Tokenised rows (sentences, documents) in memory-mapped files, so that a corpus may be larger than the memory.

A corpus is a folder: `tokens.bin` (all ids, in the smallest of uint8, uint16, int32 that holds them), `offsets.bin`
(where each row begins, and the end, int64) and `meta.json`. Corpora are kept in a cache and found by what they were
made of.
"""

import errno
import json
import mmap
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from types import TracebackType
from typing import Any
from uuid import uuid4

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from regard.data.device import free_memory, to_device
from regard.errors import RegardError

TOKENS, OFFSETS, META = "tokens.bin", "offsets.bin", "meta.json"
FORMAT = 1
WIDTHS = ("uint8", "uint16", "int32")
BLOCK = 1 << 20  # tokens that are written at once
SHARE = 0.25  # of an accelerator's free memory that a corpus may take


class Corpus:
    """Rows of token ids, and all tokens in one line; both are gathered in batches, without a loop over rows.

    They are gathered where the tokens are, and given on the `device`, which may be another.
    """

    def __init__(
        self,
        tokens: Tensor,
        offsets: np.ndarray,
        facts: dict[str, Any],
        maps: list[mmap.mmap],
        device: torch.device | None = None,
    ) -> None:
        self.tokens = len(tokens)
        self.rows = len(offsets) - 1
        self.facts = facts
        self.device = device or tokens.device
        self._home = tokens.device
        self._tokens = tokens
        self._host_offsets = offsets
        self._offsets = torch.from_numpy(offsets).to(tokens.device)
        self._maps = maps

    @cached_property
    def lengths(self) -> Int[np.ndarray, " rows"]:
        """Give the tokens of each row."""
        return np.diff(self._host_offsets)

    @property
    def starts(self) -> Int[np.ndarray, " rows"]:
        """Give the place of the first token of each row."""
        return self._host_offsets[:-1]

    def padded(self, rows: Int[np.ndarray, "B"], width: int, fill: int) -> Int[Tensor, "B {width}"]:
        """Give rows by number, cut at `width` and filled on the right; row -1 is empty."""
        assert len(rows) == 0 or (rows.min() >= -1 and rows.max() < self.rows), "a row outside the corpus"
        row, place = self._index(rows), torch.arange(width, device=self._home)
        begin, end = self._offsets[row, None], self._offsets[row + 1, None]
        inside = (place < end - begin) & (row >= 0)[:, None]
        return self._give(torch.where(inside, self._gather(torch.where(inside, begin + place, 0)), fill))

    def gather(self, places: Int[np.ndarray, "B T"], fill: int) -> Int[Tensor, "B T"]:
        """Give the tokens at any places; place -1 is empty."""
        index = self._index(places)
        return self._give(torch.where(index >= 0, self._gather(index.clamp(min=0)), fill))

    def windows(self, starts: Int[np.ndarray, "B"], width: int) -> Int[Tensor, "B {width}"]:
        """Give `width` tokens from each start on, across the borders of rows."""
        return self._give(self._gather(self._span(starts, width)))

    def row_at(self, starts: Int[np.ndarray, "B"], width: int) -> Int[Tensor, "B {width}"]:
        """Give the number of the row that each token of `windows` belongs to."""
        return self._give(torch.searchsorted(self._offsets, self._span(starts, width), right=True) - 1)

    def to(self, device: str | torch.device) -> "Corpus":
        """Copy the corpus to an accelerator, where batches are then gathered without waiting for the host.

        One that would take much of its memory stays where it is, and only the batches are copied.
        """
        device = torch.device(device)
        free = free_memory(device)
        if free is None or self._tokens.nbytes + self._host_offsets.nbytes <= SHARE * free:
            return Corpus(self._tokens.to(device), self._host_offsets, self.facts, self._maps)
        return Corpus(self._tokens, self._host_offsets, self.facts, self._maps, device)

    def release(self) -> None:
        """Give the mapped pages back to the system; they are read again when they are needed."""
        if hasattr(mmap, "MADV_DONTNEED"):  # Windows has none
            for file in self._maps:
                file.madvise(mmap.MADV_DONTNEED)

    def _span(self, starts: np.ndarray, width: int) -> Tensor:
        assert len(starts) == 0 or (starts.min() >= 0 and starts.max() + width <= self.tokens), "outside the corpus"
        return self._index(starts)[:, None] + torch.arange(width, device=self._home)

    def _index(self, numbers: np.ndarray) -> Tensor:
        return to_device(numbers.astype(np.int64), self._home)

    def _give(self, found: Tensor) -> Tensor:
        """Bring what was gathered to the device, if the corpus is not there."""
        return found if self.device == self._home else to_device(found.numpy(), self.device)

    def _gather(self, index: Tensor) -> Tensor:
        if self.tokens == 0:
            return torch.zeros_like(index)
        found = self._tokens[index].long()
        return found & 0xFFFF if self._tokens.dtype == torch.int16 else found  # uint16, which torch cannot index


def read_corpus(folder: Path) -> Corpus | None:
    """Open the corpus in a folder; None if it is not there, or damaged."""
    try:
        meta = json.loads((folder / META).read_text(encoding="utf-8"))
        sizes = {TOKENS: meta["tokens"] * np.dtype(meta["dtype"]).itemsize, OFFSETS: (meta["rows"] + 1) * 8}
        if meta["format"] != FORMAT or any((folder / name).stat().st_size != size for name, size in sizes.items()):
            return None
        tokens, offsets, facts = _map(folder / TOKENS), _map(folder / OFFSETS), meta["facts"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    dtype = torch.int16 if meta["dtype"] == "uint16" else getattr(torch, meta["dtype"])
    flat = torch.frombuffer(tokens, dtype=dtype) if tokens else torch.empty(0, dtype=dtype)
    assert offsets is not None
    maps = [file for file in (tokens, offsets) if file]
    return Corpus(flat, np.frombuffer(offsets, dtype=np.int64), facts, maps)


def _map(path: Path) -> mmap.mmap | None:
    """Map a file; an empty one cannot be."""
    if path.stat().st_size == 0:
        return None
    with path.open("rb") as file:  # a private copy, since torch wants memory it could write to; nobody does
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)


class CorpusWriter:
    """Writes a corpus row by row, in bounded memory; complete only when its `with` block ends well."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.facts: dict[str, Any] = {}
        self._dtype = np.dtype(WIDTHS[0])
        self._pieces: list[np.ndarray] = []  # not yet written,
        self._waiting = 0  # with so many tokens
        self._offsets = [0]
        self._tokens = self._rows = self._closed = 0  # in all; tokens up to the last row that has ended

    def __enter__(self) -> "CorpusWriter":
        with _writing(self.folder):
            self.folder.mkdir(parents=True)
            self._token_file = (self.folder / TOKENS).open("wb")
            self._offset_file = (self.folder / OFFSETS).open("wb")
        return self

    def add(self, rows: Iterable[np.ndarray]) -> None:
        """Add rows of ids."""
        for row in rows:
            self.add_piece(row, ends=True)

    def add_piece(self, ids: np.ndarray, ends: bool) -> None:
        """Add the next ids of a row that may be too long to be held at once; `ends` with its last piece."""
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
        """Keep facts about the corpus, such as its bytes or its words, with it."""
        self.facts.update(facts)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None:
                self._finish()
        finally:
            with suppress(OSError):  # what was not written has been said already
                self._token_file.close()
            with suppress(OSError):
                self._offset_file.close()

    def _finish(self) -> None:
        self._flush()
        assert self._closed == self._tokens, "the last row has not ended"
        meta = {"format": FORMAT, "dtype": self._dtype.name, "tokens": self._tokens, "rows": self._rows}
        with _writing(self.folder):
            (self.folder / META).write_text(json.dumps(meta | {"facts": self.facts}), encoding="utf-8")

    def _flush(self) -> None:
        ids = np.concatenate([np.empty(0, dtype=np.int32), *self._pieces])
        offsets = np.array(self._offsets, dtype=np.int64)
        self._pieces, self._offsets, self._waiting = [], [], 0
        assert len(ids) == 0 or ids.min() >= 0, "a negative id"
        with _writing(self.folder):
            if len(ids) and ids.max() > np.iinfo(self._dtype).max:
                self._widen(int(ids.max()))
            self._token_file.write(ids.astype(self._dtype).data)
            self._offset_file.write(offsets.data)
            self._token_file.flush()
            self._offset_file.flush()

    def _widen(self, largest: int) -> None:
        """Write the tokens so far again, in the smallest type that holds `largest`; mostly this happens at once."""
        narrow, part = self._dtype, self.folder / f"{TOKENS}.wide"
        self._dtype = next(np.dtype(name) for name in WIDTHS if largest <= np.iinfo(name).max)
        with (self.folder / TOKENS).open("rb") as old, part.open("wb") as new:
            while block := old.read(BLOCK * narrow.itemsize):
                new.write(np.frombuffer(block, dtype=narrow).astype(self._dtype).data)
        self._token_file.close()
        part.replace(self.folder / TOKENS)
        self._token_file = (self.folder / TOKENS).open("ab")


@contextmanager
def _writing(folder: Path) -> Iterator[None]:
    """Say what to do when something cannot be written."""
    try:
        yield
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        trouble = "the disk is full" if full else f"cannot be written: {error.strerror}"
        remedy = "free some room, or let REGARD_CACHE name a folder elsewhere"
        raise RegardError(f"{folder}: {trouble}; {remedy}") from None


# --- the cache -----------------------------------------------------------------------------------------------------


def cache_folder() -> Path:
    """Give the folder of what can be made again: $REGARD_CACHE, else $XDG_CACHE_HOME/regard, else ~/.cache/regard."""
    if own := os.environ.get("REGARD_CACHE"):
        return Path(own).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "regard"


def file_key(path: Path) -> dict[str, Any]:
    """Identify the content of a file, or of all files in a folder, without reading it."""
    try:
        facts = path.stat()
        inside = {"files": [file_key(each) for each in sorted(path.iterdir())]} if path.is_dir() else {}
    except OSError as error:
        raise RegardError(f"{path}: cannot be read: {error.strerror}") from None
    return {"path": str(path.resolve()), "size": facts.st_size, "mtime_ns": facts.st_mtime_ns, **inside}


def cached_corpus(key: Mapping[str, Any], write: Callable[[CorpusWriter], None]) -> Corpus:
    """Give the corpus that `key` describes: from the cache, or else as `write` makes it.

    It is made in a folder of its own, which gets its name when it is complete. Of two that are made at the same time
    the first to be complete is used. What is damaged is made anew.
    """
    name = sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()
    folder = cache_folder() / "corpora" / name
    corpus = read_corpus(folder)
    if corpus is not None:
        return corpus
    part = folder.with_name(f"{name}.{uuid4().hex[:8]}.part")
    try:
        with CorpusWriter(part) as writer:
            write(writer)
        return _settle(part, folder)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _settle(part: Path, folder: Path) -> Corpus:
    """Give a complete corpus its name, unless somebody else was faster."""
    if read_corpus(folder) is None:
        shutil.rmtree(folder, ignore_errors=True)  # damaged, or not there
        with _writing(folder):
            try:
                part.rename(folder)
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                    raise
    corpus = read_corpus(folder)
    if corpus is None:
        raise RegardError(f"{folder}: is damaged and cannot be replaced; remove it by hand")
    return corpus
