"""Fill in masked words: the most likely tokens for each [MASK] of a text."""

import re
from collections.abc import Iterator, Sequence

import numpy as np
import torch

from regard.arguments import check_count
from regard.decode.engine import in_use
from regard.errors import InputError
from regard.use.batches import Chunks, Feedback, by_line, padded_batch, tokens_per_batch
from regard.use.bundle import Bundle
from regard.use.fit import CutCounter, warn_of_cuts
from regard.use.guess import Guess, most_likely

MASK = "[MASK]"


def fill_lines(
    bundle: Bundle, chunks: Chunks, top: int, batch_tokens: int | None, feedback: Feedback
) -> Iterator[tuple[str, list[list[Guess]]]]:
    """Yield each line with the most likely tokens for each of its masks, the best first; nothing for a blank line."""
    bundle.check("fill")
    top = check_count(top, "top")
    fit = MaskedRows(bundle)

    def work(rows: list[list[int]]) -> list[list[list[Guess]]]:
        return guess_masks(bundle, rows, top)

    found = by_line(chunks, fit, len, work, tokens_per_batch(batch_tokens, bundle.device), feedback.done)
    pairs = ((line, answers[0] if answers else []) for line, answers in found)
    return warn_of_cuts(pairs, fit, feedback)


class MaskedRows(CutCounter):
    """Turns lines with masks into rows that fit; of a line that is too long, the text around its masks is kept."""

    def __init__(self, bundle: Bundle) -> None:
        super().__init__(bundle.text_limit, "ends")
        self.template, self.tokenizer = bundle.template, bundle.need_tokenizer()
        names = {MASK, *self.tokenizer.pieces([self.tokenizer.mask])}
        blank = r"\s?" if self.tokenizer.joins_blanks() else ""  # then a mask includes the blank before it
        self.pattern = re.compile(f"{blank}(?:{'|'.join(map(re.escape, sorted(names)))})")

    def __call__(self, lines: Sequence[str]) -> list[list[list[int]]]:
        """Return the row of each line; none if it is blank."""
        return [[self._row(line)] if self._counted(line) else [] for line in lines]

    def _counted(self, line: str) -> bool:
        self.lines += 1
        return bool(line.strip())

    def _row(self, line: str) -> list[int]:
        pieces = self.tokenizer.encode(self.pattern.split(line))
        if len(pieces) == 1:
            raise InputError(f"line {self.lines}: has no {MASK} to fill; write one in place of a word")
        ids: list[int] = []
        for piece in pieces:
            ids += [*piece.tolist(), self.tokenizer.mask]
        ids.pop()  # no mask follows the last piece
        return [*self.template.before, *self._fitting(ids), *self.template.after]

    def _fitting(self, ids: list[int]) -> list[int]:
        """Cut both ends of a row that is too long, so that its masks stay in the middle."""
        if self.limit is None or len(ids) <= self.limit:
            return ids
        first, last = ids.index(self.tokenizer.mask), len(ids) - 1 - ids[::-1].index(self.tokenizer.mask)
        if last - first >= self.limit:
            apart = f"from its first {MASK} to its last there are {last - first + 1} tokens"
            raise InputError(f"line {self.lines}: {apart}, but only {self.limit} fit; split it into several lines")
        self.count_cut()
        begin = min(max((first + last + 1 - self.limit) // 2, 0), len(ids) - self.limit)
        return ids[begin : begin + self.limit]


def guess_masks(bundle: Bundle, rows: list[list[int]], top: int) -> list[list[list[Guess]]]:
    """Return the most likely tokens for the masks of rows of ids."""
    tokenizer, model = bundle.need_tokenizer(), bundle.model
    table, lengths = padded_batch(rows, tokenizer.pad, bundle.device)
    never = torch.tensor(bundle.template.never, dtype=torch.long, device=bundle.device)
    with in_use(model):
        logits = model(table, lengths=lengths)[table == tokenizer.mask]
        numbers, chances = most_likely(logits.index_fill(-1, never, float("-inf")), top)
    found = iter(
        [Guess(token.strip() or token, chance) for token, chance in zip(tokenizer.pieces(ids), values, strict=True)]
        for ids, values in zip(numbers, chances, strict=True)
    )
    return [[next(found) for _ in range(int(np.count_nonzero(np.array(row) == tokenizer.mask)))] for row in rows]
