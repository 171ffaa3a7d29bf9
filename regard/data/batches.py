"""The order in which rows are drawn, and their static shapes: buckets, packing, windows, streams.

An order depends on the seed and the number of the epoch only: a run that is resumed, or distributed differently, draws
the same rows. A draw holds the rows of one update, all of one shape. A row may be empty (-1), so that every draw of a
shape has the same number of rows and compiled code is not compiled again. No draw has more rows than there are.
"""

from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Indices = NDArray[np.int64]
Widths = tuple[int, ...]  # of each side: one for a text, two for a pair

EMPTY = -1
WASTE = 0.03  # the share of padding below which another bucket is not worth it


class Draw(NamedTuple):
    """Rows that form a batch (-1: an empty row), and its shape: a width for each side."""

    shape: Widths
    rows: Indices
    begins: bool = False  # whether recurrent state is reset before it, as at the beginning of an epoch


class Order:
    """The draws of any epoch."""

    shapes: tuple[Widths, ...]

    def epoch(self, number: int) -> Iterator[Draw]:
        """Yield the draws of one epoch."""
        raise NotImplementedError


def shuffled(count: int, seed: int, epoch: int) -> Indices:
    """Return a permutation that depends on its arguments only."""
    return np.random.default_rng((seed, epoch)).permutation(count)


def add_empty_rows(rows: Indices, count: int) -> Indices:
    """Append empty rows until there are `count` rows."""
    return np.concatenate((rows, np.full(count - len(rows), EMPTY)))


def next_multiple(number: int, multiple: int) -> int:
    """Round up to a multiple."""
    return -(-number // multiple) * multiple


def rows_for(tokens: int, shape: Widths) -> int:
    """Return how many rows of a shape hold `tokens` tokens on the longest side; from 16 rows on, a multiple of 8.

    The result does not depend on the number of parts that an update is split into, so that this number does not change
    what is learned.
    """
    rows = max(1, tokens // max(shape))
    return rows // 8 * 8 if rows >= 16 else rows


@dataclass(frozen=True)
class Shuffled(Order):
    """Rows of one shape, `batch` at a time."""

    count: int
    batch: int
    shape: Widths
    seed: int

    @property
    def shapes(self) -> tuple[Widths, ...]:  # type: ignore[override]
        """Return the only shape."""
        return (self.shape,)

    def epoch(self, number: int) -> Iterator[Draw]:
        """Yield every row once."""
        order = shuffled(self.count, self.seed, number)
        batch = min(self.batch, self.count)
        for begin in range(0, self.count, batch):
            yield Draw(self.shape, add_empty_rows(order[begin : begin + batch], batch), begin == 0)


class Buckets(Order):
    """Rows of similar lengths share a bucket, which is as wide as its longest row, on every side.

    `lengths` is (rows, sides): one side for a text, two for a pair. Buckets are made by splitting the one with the most
    padding where that saves most, until little padding is left or there are `most` buckets. An epoch draws every row
    once: the rows that do not fill a draw move to a larger bucket, and empty rows complete the last draw. The largest
    bucket is as wide as the longest row, or `widest`.
    """

    def __init__(self, lengths: Indices, tokens: int, seed: int, most: int = 48, widest: Widths | None = None) -> None:
        self.seed = seed
        buckets = _split(lengths, most)
        largest = widest or tuple(int(width) for width in lengths.max(0))
        found = {tuple(int(width) for width in lengths[bucket].max(0)): bucket for bucket in buckets}
        self.shapes = tuple(sorted({*found, largest}, key=lambda shape: (sum(shape), shape)))
        self.members = [found.get(shape, np.empty(0, np.int64)) for shape in self.shapes]
        self.batches = [min(rows_for(tokens, shape), len(lengths)) for shape in self.shapes]
        self.larger = [_next_larger(self.shapes, index) for index in range(len(self.shapes))]

    def holding(self, lengths: Indices) -> "Buckets":
        """Return the same buckets for as many rows of other lengths, each in the first bucket that is wide enough."""
        found, place = copy(self), np.full(len(lengths), len(self.shapes))
        for index in reversed(range(len(self.shapes))):
            place[(lengths <= self.shapes[index]).all(1)] = index
        assert place.max(initial=0) < len(self.shapes), "a row is wider than all buckets"
        found.members = [np.flatnonzero(place == index) for index in range(len(self.shapes))]
        return found

    def epoch(self, number: int) -> Iterator[Draw]:
        """Yield every row once, the buckets in random order."""
        draws: list[tuple[int, Indices]] = []
        waiting: list[list[Indices]] = [[] for _ in self.shapes]
        generator = np.random.default_rng((self.seed, number))
        for index, members in enumerate(self.members):
            rows = np.concatenate((generator.permutation(members), *waiting[index]))
            batch, larger = self.batches[index], self.larger[index]
            whole = len(rows) // batch * batch
            draws += [(index, rows[begin : begin + batch]) for begin in range(0, whole, batch)]
            if whole < len(rows) and larger is not None:
                waiting[larger].append(rows[whole:])
            elif whole < len(rows):
                draws.append((index, rows[whole:]))
        for place, which in enumerate(generator.permutation(len(draws))):
            index, rows = draws[which]
            yield Draw(self.shapes[index], add_empty_rows(rows, self.batches[index]), place == 0)


def _next_larger(shapes: tuple[Widths, ...], index: int) -> int | None:
    """Find the next bucket that is at least as wide on every side."""
    for other in range(index + 1, len(shapes)):
        if all(wide >= narrow for wide, narrow in zip(shapes[other], shapes[index], strict=True)):
            return other
    return None


def _split(lengths: Indices, most: int) -> list[Indices]:
    """Split the rows into buckets."""
    buckets = [np.arange(len(lengths))]
    cuts = [_best_cut(lengths)]
    real = int(lengths.sum())
    padded = _area(lengths)
    while len(buckets) < most and padded > 0 and 1 - real / padded > WASTE:
        index = max(range(len(buckets)), key=lambda place: cuts[place][0])
        saved, side, width = cuts[index]
        if saved <= 0:
            break
        bucket = buckets.pop(index)
        cuts.pop(index)
        narrow = lengths[bucket, side] <= width
        for half in (bucket[narrow], bucket[~narrow]):
            buckets.append(half)
            cuts.append(_best_cut(lengths[half]))
        padded -= saved
    return buckets


def _area(lengths: Indices) -> int:
    return len(lengths) * int(lengths.max(0).sum())


def _best_cut(lengths: Indices) -> tuple[int, int, int]:
    """Find (tokens saved, side, width) of the cut that saves most padding."""
    best = (0, 0, 0)
    area = _area(lengths)
    for side in range(lengths.shape[1]):
        order = np.argsort(lengths[:, side], kind="stable")
        ordered = lengths[order]
        below = np.maximum.accumulate(ordered, 0).sum(1)  # the widths of a bucket of the first i+1 rows
        above = np.maximum.accumulate(ordered[::-1], 0)[::-1].sum(1)
        counts = np.arange(1, len(lengths))
        saved = area - counts * below[:-1] - (len(lengths) - counts) * above[1:]
        saved[ordered[:-1, side] == ordered[1:, side]] = 0  # a cut must fall between two widths
        if len(saved) and saved.max() > best[0]:
            place = int(saved.argmax())
            best = (int(saved[place]), side, int(ordered[place, side]))
    return best


def pack_rows(lengths: Indices, widths: Widths, block: int = 4096) -> list[Indices]:
    """Group rows that fit end to end into one row of `widths`: one static shape with little padding.

    First fit, the longest first (Johnson 1973), block by block to stay fast. Return the groups: every row is in one
    group, and no group is wider than `widths`, on any side.
    """
    groups: list[list[int]] = []
    for begin in range(0, len(lengths), block):
        part = lengths[begin : begin + block]
        free = [np.full(len(part), width) for width in widths]  # left in each group, by side
        here: list[list[int]] = []
        for row in np.argsort(-part.max(1), kind="stable").tolist():
            fits = np.logical_and.reduce(
                [side[: len(here) + 1] >= length for side, length in zip(free, part[row], strict=True)]
            )
            place = int(fits.argmax())
            assert fits[place], "a row is wider than the widths"
            if place == len(here):
                here.append([])
            here[place].append(begin + row)
            for side, length in zip(free, part[row], strict=True):
                side[place] -= length
        groups += here
    return [np.array(group) for group in groups]


@dataclass(frozen=True)
class Windows(Order):
    """A long text cut into rows of `width` tokens (and the token after them), from another offset in every epoch.

    A row is the index of its first token.
    """

    tokens: int
    width: int
    batch: int
    seed: int

    @property
    def shapes(self) -> tuple[Widths, ...]:  # type: ignore[override]
        """Return the only shape."""
        return ((self.width,),)

    def epoch(self, number: int) -> Iterator[Draw]:
        """Yield every token once, except those before the offset and after the last complete row."""
        spare = min(self.width, self.tokens - self.width)
        offset = int(np.random.default_rng((self.seed, number, 1)).integers(spare))
        count = (self.tokens - 1 - offset) // self.width
        order = shuffled(count, self.seed, number)
        batch = min(self.batch, (self.tokens - 1) // self.width)  # the same in every epoch
        for begin in range(0, count, batch):
            rows = order[begin : begin + batch] * self.width + offset
            yield Draw((self.width,), add_empty_rows(rows, batch), begin == 0)


@dataclass(frozen=True)
class Streams(Order):
    """A long text read in `lanes` parallel lanes: each draw continues where the last one ended.

    Truncated backpropagation through time carries the state from draw to draw. A row is the index of its first token.
    """

    tokens: int
    width: int
    lanes: int

    @property
    def shapes(self) -> tuple[Widths, ...]:  # type: ignore[override]
        """Return the only shape."""
        return ((self.width,),)

    def epoch(self, number: int) -> Iterator[Draw]:
        """Yield every lane from beginning to end; a remainder shorter than `width` is left out."""
        lane = (self.tokens - 1) // self.lanes
        starts = np.arange(self.lanes) * lane
        for chunk in range(lane // self.width):
            yield Draw((self.width,), starts + chunk * self.width, chunk == 0)


# --- a text from beginning to end, for validation: nothing is left out -----------------------------------------------


def passages(count: int, width: int, rows: int) -> Iterator[Draw]:
    """Cut `count` tokens into windows, `rows` at a time; the last window may be narrower."""
    whole = count // width * width
    starts = np.arange(0, whole, width)
    for begin in range(0, len(starts), rows):
        yield Draw((width,), starts[begin : begin + rows], begin == 0)
    if whole < count:
        yield Draw((count - whole,), np.array([whole]), whole == 0)


def overlapping(count: int, width: int, stride: int, rows: int) -> Iterator[tuple[Draw, int]]:
    """Cut `count` tokens, at least `width`, into windows that begin `stride` apart; yield draws with their context.

    The context is how many tokens at the beginning of its windows were in an earlier window.
    """
    yield Draw((width,), np.array([0]), True), 0
    starts = np.arange(stride, count - width + 1, stride)
    for begin in range(0, len(starts), rows):
        yield Draw((width,), starts[begin : begin + rows]), width - stride
    end = len(starts) * stride + width
    if end < count:
        yield Draw((width,), np.array([count - width])), width - (count - end)


def whole_streams(count: int, width: int, lanes: int) -> Iterator[Draw]:
    """Yield `count` tokens as `Streams` does; the last window of a lane may be narrower.

    The tokens that remain after the division into lanes form a draw of their own, with a fresh state.
    """
    lane, rest = divmod(count, lanes)
    starts = np.arange(lanes) * lane
    for begin in range(0, lane, width):
        yield Draw((min(width, lane - begin),), starts + begin, begin == 0)
    if rest:
        yield Draw((rest,), np.array([count - rest]), True)
