"""Masked words guessed from both sides: the likeliest tokens for each [MASK] of a text."""

import re
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import torch

from regard.decode.engine import in_use
from regard.errors import InputError
from regard.use.batches import Done, by_line, default_tokens, padded, unwatched
from regard.use.fit import Counted
from regard.use.guess import Guess, best, check_top
from regard.use.ready import Ready

MASK = "[MASK]"


def fillings(
    ready: Ready,
    chunks: Iterable[Sequence[str]],
    top: int,
    fit: "Masked",
    batch_tokens: int | None = None,
    done: Done = unwatched,
) -> Iterator[list[list[Guess]]]:
    """Guess each mask of each line: for a mask the likeliest tokens, the best first; for a blank line nothing."""
    ready.check("fill")
    check_top(top)

    def work(rows: list[list[int]]) -> list[list[list[Guess]]]:
        return guess(ready, rows, top)

    answers = by_line(chunks, fit, len, work, batch_tokens or default_tokens(ready.device), done)
    return (answer[0] if answer else [] for answer in answers)


class Masked(Counted):
    """Makes rows of lines with masks; of a line that is too long, what stands around its masks is kept."""

    def __init__(self, ready: Ready) -> None:
        ready.check("fill")
        super().__init__(ready.limit, "ends")
        self.frame, self.words = ready.frame, ready.words
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
        ids: list[int] = []
        for piece in pieces:
            ids += [*piece.tolist(), self.words.mask]
        ids.pop()  # behind the last piece there is no mask
        return [*self.frame.before, *self._fitting(ids), *self.frame.after]

    def _fitting(self, ids: list[int]) -> list[int]:
        """Cut as much at either end as leaves the masks in the middle, if ids are more than fit."""
        if self.limit is None or len(ids) <= self.limit:
            return ids
        first, last = ids.index(self.words.mask), len(ids) - 1 - ids[::-1].index(self.words.mask)
        if last - first >= self.limit:
            apart = f"from its first {MASK} to its last there are {last - first + 1} tokens"
            raise InputError(f"line {self.lines}: {apart}, and {self.limit} fit; make several lines of it")
        self.count_cut()
        begin = min(max((first + last + 1 - self.limit) // 2, 0), len(ids) - self.limit)
        return ids[begin : begin + self.limit]


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
