"""Masked words guessed from both sides: the likeliest tokens for each [MASK] of a text."""

import re
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import torch

from regard.decode.engine import in_use
from regard.errors import InputError
from regard.use.batches import by_line, default_tokens, padded
from regard.use.guess import Guess, best
from regard.use.ready import Ready

MASK = "[MASK]"


def fillings(
    ready: Ready, chunks: Iterable[Sequence[str]], top: int, batch_tokens: int | None = None
) -> Iterator[list[list[Guess]]]:
    """Guess each mask of each line: for a mask the likeliest tokens, the best first; for a blank line nothing."""
    ready.check("fill")
    if top < 1:
        raise InputError(f"top={top} must be at least 1")
    masked = Masked(ready)

    def work(rows: list[list[int]]) -> list[list[list[Guess]]]:
        return guess(ready, rows, top)

    answers = by_line(chunks, masked, len, work, batch_tokens or default_tokens(ready.device))
    return (answer[0] if answer else [] for answer in answers)


class Masked:
    """Makes rows of lines with masks; knows the number of the line, to name it in a mistake."""

    def __init__(self, ready: Ready) -> None:
        self.ready, self.words = ready, ready.words
        self.lines = 0
        names = {MASK, *self.words.pieces([self.words.mask])}
        blank = r"\s?" if self.words.joins_blanks() else ""  # then a mask stands for the blank, too
        self.pattern = re.compile(f"{blank}(?:{'|'.join(map(re.escape, sorted(names)))})")

    def __call__(self, lines: Sequence[str]) -> list[list[list[int]]]:
        """Give the row of each line; none if it is blank."""
        return [[self._row(line)] if self._counted(line) else [] for line in lines]

    def _counted(self, line: str) -> bool:
        self.lines += 1
        return bool(line.strip())

    def _row(self, line: str) -> list[int]:
        pieces = self.words.encode(self.pattern.split(line))
        if len(pieces) == 1:
            raise InputError(f"line {self.lines}: there is no {MASK} to fill; write one in place of a word")
        row = list(self.ready.frame.before)
        for piece in pieces:
            row += [*piece.tolist(), self.words.mask]
        row[-1:] = self.ready.frame.after
        most = self.ready.room
        if most is not None and len(row) > most:
            raise InputError(f"line {self.lines}: {len(row)} tokens are more than the {most} that fit; shorten it")
        return row


def guess(ready: Ready, rows: list[list[int]], top: int) -> list[list[list[Guess]]]:
    """Guess the masks of rows of ids."""
    words = ready.words
    table, lengths = padded(rows, words.pad, ready.device)
    never = torch.tensor(ready.frame.never, dtype=torch.long, device=ready.device)
    with in_use(ready.model):
        logits = ready.model(table, lengths=lengths)[table == words.mask]
        numbers, chances = best(logits.index_fill(-1, never, float("-inf")), top)
    found = iter(
        [Guess(token.strip() or token, chance) for token, chance in zip(words.pieces(ids), values, strict=True)]
        for ids, values in zip(numbers, chances, strict=True)
    )
    return [[next(found) for _ in range(int(np.count_nonzero(np.array(row) == words.mask)))] for row in rows]
