"""Run any number of lines through a model: a few thousand at a time, similar lengths together, answers in order.

A line becomes rows of tokens (none if it is blank, several if it was split), rows of similar lengths become a batch,
and the results go back to their line. The result of a row does not depend on the other rows of its batch.
"""

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TypeVar

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from regard.arguments import check_count
from regard.data.device import out_of_memory, to_device

Row = TypeVar("Row")
Answer = TypeVar("Answer")

CHUNK = 4096  # lines that are sorted by length together
LETTERS = 1 << 22  # characters of them, at most
BATCH_TOKENS = {"cpu": 8192}  # tokens in a batch, padding and beams included
ON_ACCELERATOR = 32768


@dataclass(frozen=True)
class Chunks:
    """Lines in lists; the lines of one list are answered before the next is read, as an interactive session needs."""

    lists: Iterable[Sequence[str]]


def _warn_in_python(text: str) -> None:
    warnings.warn(text, stacklevel=2)


@dataclass(frozen=True)
class Feedback:
    """What to call while lines are answered: `done` with a number of finished lines, `warn` about cut lines."""

    done: Callable[[int], None] = lambda count: None
    warn: Callable[[str], None] = _warn_in_python


def chunk_lines(lines: Iterable[str]) -> Iterator[list[str]]:
    """Cut lines into lists that fit into memory, whatever their number and length."""
    chunk: list[str] = []
    letters = 0
    for line in lines:
        chunk.append(line)
        letters += len(line)
        if len(chunk) == CHUNK or letters >= LETTERS:
            yield chunk
            chunk, letters = [], 0
    if chunk:
        yield chunk


def by_line(
    chunks: Chunks,
    rows_of: Callable[[Sequence[str]], list[list[Row]]],
    size: Callable[[Row], int],
    work: Callable[[list[Row]], list[Answer]],
    batch_tokens: int,
    done: Callable[[int], None],
) -> Iterator[tuple[str, list[Answer]]]:
    """Yield each line with what `work` returned for its rows. A chunk is read when all before it are answered.

    The first answer of a chunk comes when all of it is finished, so `done` is called after every batch.
    """
    for lines in chunks.lists:
        rows_by_line = rows_of(lines)
        rows = list(chain.from_iterable(rows_by_line))
        answers: dict[int, Answer] = {}
        reported = 0
        for batch in batches(list(map(size, rows)), batch_tokens):
            answers.update(zip(batch, in_halves(work, [rows[place] for place in batch]), strict=True))
            finished = len(lines) * len(answers) // len(rows)
            done(finished - reported)
            reported = finished
        done(len(lines) - reported)  # if all lines are blank, there was no batch
        in_order = (answers.pop(place) for place in range(len(rows)))
        for line, group in zip(lines, rows_by_line, strict=True):
            yield line, [next(in_order) for _ in group]


def in_halves(work: Callable[[list[Row]], list[Answer]], rows: list[Row]) -> list[Answer]:
    """Return work(rows); if memory runs out, the work is done in halves, which changes no answer."""
    try:
        return work(rows)
    except (MemoryError, RuntimeError) as error:
        if not out_of_memory(error) or len(rows) < 2:
            raise
    half = len(rows) // 2
    return in_halves(work, rows[:half]) + in_halves(work, rows[half:])


def batches(sizes: Sequence[int], batch_tokens: int) -> Iterator[list[int]]:
    """Group row numbers, the longest rows first: as many as fit `batch_tokens` when padded, but at least one."""
    order = sorted(range(len(sizes)), key=lambda place: -sizes[place])
    begin = 0
    while begin < len(order):
        count = max(batch_tokens // max(sizes[order[begin]], 1), 1)
        yield order[begin : begin + count]
        begin += count


def tokens_per_batch(chosen: int | None, device: torch.device) -> int:
    """Return how many tokens a batch has: as many as the user chose, or what suits the device."""
    if chosen is None:
        return BATCH_TOKENS.get(device.type, ON_ACCELERATOR)
    return check_count(chosen, "batch_tokens")


def padded_batch(
    rows: Sequence[Sequence[int] | np.ndarray], pad: int, device: torch.device
) -> tuple[Int[Tensor, "B T"], Int[Tensor, "B"]]:
    """Return rows as one tensor, padded on the right, and their lengths."""
    lengths = np.array([len(row) for row in rows], np.int64)
    table = np.full((len(rows), int(lengths.max())), pad, np.int64)
    for place, row in enumerate(rows):
        table[place, : len(row)] = row
    return to_device(table, device), to_device(lengths, device)
