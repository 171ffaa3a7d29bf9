"""Make lines fit into the context of a model: a line that is too long is cut, or split at the ends of its sentences."""

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar, get_args

import numpy as np

from regard.data.tokenizer import Tokenizer
from regard.errors import InputError, choices
from regard.use.batches import Feedback

Long = Literal["cut", "split"]
Side = Literal["end", "beginning", "ends"]  # where a line is cut
Item = TypeVar("Item")

CERTAIN = 16  # a part of more characters than this for each token that fits is halved without being encoded

# Where a text may be split, the best first: after a sentence, after a clause, between words.
BREAKS = [re.compile(end) for end in (r"[.!?…]+[\"'”’»)\]]*\s+|[。！？]+[」』”]*\s*", r"[,;:–—]\s+|[，、；：]", r"\s+")]


def as_long(name: str) -> Long:
    """Check the name of a way to treat long lines."""
    for long in get_args(Long):
        if name == long:
            return long
    raise InputError(f"long={name!r} is unknown; {choices(name, get_args(Long))}")


@dataclass(frozen=True)
class Part:
    """A line that fits, or a part of one: its ids, its text, and how many words of the line come before it."""

    ids: np.ndarray
    text: str
    words: int = 0


class CutCounter:
    """Counts lines, and those among them that were cut."""

    def __init__(self, limit: int | None, side: Side) -> None:
        self.limit, self.side = limit, side
        self.lines = 0  # seen so far
        self.cut = 0  # of them were too long
        self.first = 0  # the first of these, counted from 1

    def count_cut(self) -> None:
        """Count the last line that was seen as one that was cut."""
        self.cut += 1
        self.first = self.first or self.lines

    def report(self, remedy: str = "") -> list[str]:
        """Return a message with the number of lines that were cut, and the remedy; an empty list if none were cut."""
        if not self.cut:
            return []
        counted = "1 line was" if self.cut == 1 else f"{self.cut:,} lines were"
        what = f"{counted} cut at the {self.side}, being over {self.limit} tokens (first: line {self.first})"
        return [f"{what}; {remedy}" if remedy else what]


def warn_of_cuts(
    answers: Iterator[Item], counter: CutCounter | None, feedback: Feedback, remedy: str = ""
) -> Iterator[Item]:
    """Pass answers on; after the last one, warn about the lines that were cut."""
    yield from answers
    for text in [] if counter is None else counter.report(remedy):
        feedback.warn(text)


class Fit(CutCounter):
    """Turns lines into rows that fit, and counts the lines that were too long."""

    def __init__(self, tokenizer: Tokenizer, limit: int | None, long: Long = "cut", side: Side = "end") -> None:
        super().__init__(limit, side)
        self.tokenizer, self.long = tokenizer, long

    def __call__(self, lines: Sequence[str]) -> list[list[Part]]:
        """Return the parts of each line: one, or none if it is blank, or several if it was split."""
        if self.limit is None:
            encoded = self.tokenizer.encode(lines)
        else:
            encoded = self.tokenizer.encode_part(lines, self.limit, last=self.side == "beginning")
        return [list(self._parts(line, ids)) for line, ids in zip(lines, encoded, strict=True)]

    def _parts(self, line: str, ids: np.ndarray) -> Iterator[Part]:
        self.lines += 1
        if not line.strip():
            return
        if self.limit is None or len(ids) <= self.limit:
            yield Part(ids, line)
        elif self.long == "split":
            yield from self._split(line)
        else:
            self.count_cut()
            yield Part(ids[: self.limit] if self.side == "end" else ids[-self.limit :], line)

    def _split(self, text: str) -> Iterator[Part]:
        """Halve a text, as near to the middle as a good break allows, until every part fits.

        Takes linear time: breaks are searched once, and only short parts are encoded.
        """
        assert self.limit is not None
        breaks = Breaks(text)
        waiting = [(0, len(text))]
        words, inside = 0, False  # words that began before the part, and whether it begins inside the last of them
        while waiting:
            begin, end = waiting.pop()
            part = text[begin:end]
            if not part.strip():  # a translator would write something even for blanks alone
                inside = False
                continue
            ids = None if len(part) > CERTAIN * self.limit else self.tokenizer.encode(part)
            if ids is None or (len(ids) > self.limit and len(part) > 1):
                place = breaks.nearest_to_middle(begin, end)
                waiting += [(place, end), (begin, place)]
                continue
            continued = inside and not part[0].isspace()
            yield Part(ids[: self.limit], part, words - continued)  # a character of more tokens than fit is cut
            words += len(part.split()) - continued
            inside = not part[-1].isspace()


class Breaks:
    """The places where a text may be split."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.places = [[found.end() for found in pattern.finditer(text)] for pattern in BREAKS]

    def nearest_to_middle(self, begin: int, end: int) -> int:
        """Return where to split a part: after a sentence, else a clause, else a word, nearest to its middle."""
        half = (begin + end) / 2
        last = end  # a break is followed by text, not only by blanks
        while last > begin and self.text[last - 1].isspace():
            last -= 1
        for places in self.places:
            middle = bisect_left(places, half)
            near = [place for place in places[max(middle - 1, 0) : middle + 1] if begin + 1 < place < last]
            if near:
                return min(near, key=lambda place: abs(place - half))
        return (begin + end) // 2
