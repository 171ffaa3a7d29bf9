"""Any number of lines through a model: some thousand at a time, like lengths together, answers in the order of lines.

A line becomes rows of tokens (none if it is blank, several if it was split), rows of like lengths become a batch, and
what is made of them goes back to its line. Nothing that a row becomes depends on the rows beside it.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from reprlib import repr as shortened
from typing import TypeVar

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from regard.data.device import to_device
from regard.errors import InputError

Row = TypeVar("Row")
Answer = TypeVar("Answer")
Done = Callable[[int], None]  # is told how many more lines are finished

CHUNK = 4096  # lines that are sorted by length together,
LETTERS = 1 << 22  # or lines of so many characters
BATCH_TOKENS = {"cpu": 8192}  # tokens in a batch, with their padding, and once for every beam
ON_ACCELERATOR = 32768


def listed(texts: object, name: str, kinds: tuple[type, ...] = (str,)) -> Iterator[str]:
    """See that an argument is texts in an order (or paths, if they are among the kinds); they may come one by one."""
    if isinstance(texts, str):
        raise InputError("one text was given where a list of texts belongs; put it into brackets: [text]")
    if not isinstance(texts, Iterable) or isinstance(texts, Mapping | set | frozenset | bytes):
        raise InputError(f"{name}={shortened(texts)} must be a list of texts")

    def each(texts: Iterable[object]) -> Iterator[str]:
        for place, text in enumerate(texts):
            if not isinstance(text, kinds):
                raise InputError(f"{name}[{place}]={shortened(text)} must be a text")
            yield str(text)

    return each(texts)


def single(text: object, name: str) -> str:
    """See that an argument is one text."""
    if not isinstance(text, str):
        raise InputError(f"{name}={shortened(text)} must be one text")
    return text


def in_chunks(lines: Iterable[str]) -> Iterator[list[str]]:
    """Cut lines into lists that fit the memory, whatever their number and length."""
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


def unwatched(lines: int) -> None:
    """Be told of finished lines, and do nothing."""


def by_line(
    chunks: Iterable[Sequence[str]],
    rows_of: Callable[[Sequence[str]], list[list[Row]]],
    size: Callable[[Row], int],
    work: Callable[[list[Row]], list[Answer]],
    batch_tokens: int,
    done: Done = unwatched,
) -> Iterator[list[Answer]]:
    """Yield what `work` makes of the rows of each line; a chunk is read when all before it has been answered.

    The first answer of a chunk comes when all of it is finished, so `done` is told after every batch.
    """
    for lines in chunks:
        rows_by_line = rows_of(lines)
        rows = list(chain.from_iterable(rows_by_line))
        answers: dict[int, Answer] = {}
        told = 0
        for batch in batches([size(row) for row in rows], batch_tokens):
            answers.update(zip(batch, work([rows[place] for place in batch]), strict=True))
            finished = len(lines) * len(answers) // len(rows)
            done(finished - told)
            told = finished
        done(len(lines) - told)  # where all are blank, there was no batch
        in_order = (answers.pop(place) for place in range(len(rows)))
        for group in rows_by_line:
            yield [next(in_order) for _ in group]


def batches(sizes: Sequence[int], batch_tokens: int) -> Iterator[list[int]]:
    """Group the places of rows, the longest first: as many as fit `batch_tokens` when padded, but at least one."""
    order = sorted(range(len(sizes)), key=lambda place: -sizes[place])
    begin = 0
    while begin < len(order):
        count = max(batch_tokens // max(sizes[order[begin]], 1), 1)
        yield order[begin : begin + count]
        begin += count


def default_tokens(device: torch.device) -> int:
    """How many tokens a batch has where nobody chose."""
    return BATCH_TOKENS.get(device.type, ON_ACCELERATOR)


def padded(
    rows: Sequence[Sequence[int] | np.ndarray], pad: int, device: torch.device
) -> tuple[Int[Tensor, "B T"], Int[Tensor, "B"]]:
    """Give rows as one tensor, padded on the right, and their lengths."""
    lengths = np.array([len(row) for row in rows], np.int64)
    table = np.full((len(rows), int(lengths.max())), pad, np.int64)
    for place, row in enumerate(rows):
        table[place, : len(row)] = row
    return to_device(table, device), to_device(lengths, device)
