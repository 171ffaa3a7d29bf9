"""In which order rows are drawn, and into which static shapes: buckets, packing, windows, streams.

An order is a function of the seed and the number of the epoch, and of nothing else: a run that is resumed, or spread
over other machines, draws the same. A draw is one update's worth of rows of one shape; a row may be empty (-1), so
that every draw of a shape has the same number of rows and nothing compiled has to be compiled again.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Indices = NDArray[np.int64]
Shape = tuple[int, ...]

EMPTY = -1
WASTE = 0.03  # so little padding is not worth another box


class Draw(NamedTuple):
    """Rows to be batched together, -1 for none, in the given shape (a width for each side)."""

    shape: Shape
    rows: Indices
    begins: bool = False  # whether what came before is forgotten, as at the beginning of an epoch


class Order:
    """Draws for any epoch."""

    shapes: tuple[Shape, ...]

    def epoch(self, number: int) -> Iterator[Draw]:
        """Give the draws of one epoch."""
        raise NotImplementedError


def shuffled(count: int, seed: int, epoch: int) -> Indices:
    """A permutation that depends on nothing but its arguments."""
    return np.random.default_rng((seed, epoch)).permutation(count)


def fill(rows: Indices, count: int) -> Indices:
    """Fill up with empty rows."""
    return np.concatenate((rows, np.full(count - len(rows), EMPTY)))


def multiple(number: int, of: int) -> int:
    """Round up to a multiple."""
    return -(-number // of) * of


def rows_for(tokens: int, shape: Shape) -> int:
    """How many rows of a shape hold so many tokens on the longest side: a multiple of 8 if many.

    Into how many parts an update is split is no argument of this: it must not change what is learned.
    """
    rows = max(1, tokens // max(shape))
    return rows // 8 * 8 if rows >= 16 else rows


@dataclass(frozen=True)
class Shuffled(Order):
    """Rows that all have one shape, `batch` at a time."""

    count: int
    batch: int
    shape: Shape
    seed: int

    @property
    def shapes(self) -> tuple[Shape, ...]:  # type: ignore[override]
        """The one shape."""
        return (self.shape,)

    def epoch(self, number: int) -> Iterator[Draw]:
        """Every row once."""
        order = shuffled(self.count, self.seed, number)
        for begin in range(0, self.count, self.batch):
            yield Draw(self.shape, fill(order[begin : begin + self.batch], self.batch), begin == 0)


class Buckets(Order):
    """Rows of like lengths go into one of a few boxes; a box is as wide as its longest row, on every side.

    `lengths` is (rows, sides): one side for a text, two for a pair. Boxes are made by cutting the costliest one in
    two where that saves most padding, until hardly any is left or there are `most` boxes. In an epoch every row comes
    once: what is left over in a box moves on to a larger one, and the last draw is filled up.
    """

    def __init__(self, lengths: Indices, tokens: int, seed: int, most: int = 48) -> None:
        self.seed = seed
        boxes = _cut(lengths, most)
        whole = tuple(int(width) for width in lengths.max(0))
        found = {tuple(int(width) for width in lengths[box].max(0)): box for box in boxes}
        self.shapes = tuple(sorted({*found, whole}, key=lambda shape: (sum(shape), shape)))
        self.members = [found.get(shape, np.empty(0, np.int64)) for shape in self.shapes]
        self.batches = [rows_for(tokens, shape) for shape in self.shapes]
        self.larger = [_next_larger(self.shapes, index) for index in range(len(self.shapes))]

    def epoch(self, number: int) -> Iterator[Draw]:
        """Every row once, the boxes mixed."""
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
            yield Draw(self.shapes[index], fill(rows, self.batches[index]), place == 0)


def _next_larger(shapes: tuple[Shape, ...], index: int) -> int | None:
    """The cheapest box behind this one into which everything of it fits."""
    for other in range(index + 1, len(shapes)):
        if all(wide >= narrow for wide, narrow in zip(shapes[other], shapes[index], strict=True)):
            return other
    return None


def _cut(lengths: Indices, most: int) -> list[Indices]:
    """Cut the rows into boxes."""
    boxes = [np.arange(len(lengths))]
    cuts = [_best_cut(lengths)]
    real = int(lengths.sum())
    padded = _area(lengths)
    while len(boxes) < most and padded > 0 and 1 - real / padded > WASTE:
        index = max(range(len(boxes)), key=lambda place: cuts[place][0])
        saved, side, width = cuts[index]
        if saved <= 0:
            break
        box = boxes.pop(index)
        cuts.pop(index)
        narrow = lengths[box, side] <= width
        for half in (box[narrow], box[~narrow]):
            boxes.append(half)
            cuts.append(_best_cut(lengths[half]))
        padded -= saved
    return boxes


def _area(lengths: Indices) -> int:
    return len(lengths) * int(lengths.max(0).sum())


def _best_cut(lengths: Indices) -> tuple[int, int, int]:
    """Find (tokens saved, side, width) of the cut that saves most padding."""
    best = (0, 0, 0)
    area = _area(lengths)
    for side in range(lengths.shape[1]):
        order = np.argsort(lengths[:, side], kind="stable")
        ordered = lengths[order]
        below = np.maximum.accumulate(ordered, 0).sum(1)  # the widths of a box of the first i+1 rows
        above = np.maximum.accumulate(ordered[::-1], 0)[::-1].sum(1)
        counts = np.arange(1, len(lengths))
        saved = area - counts * below[:-1] - (len(lengths) - counts) * above[1:]
        saved[ordered[:-1, side] == ordered[1:, side]] = 0  # a cut must fall between two widths
        if len(saved) and saved.max() > best[0]:
            place = int(saved.argmax())
            best = (int(saved[place]), side, int(ordered[place, side]))
    return best


def pack(lengths: Indices, widths: Shape, block: int = 4096) -> list[Indices]:
    """Put several rows end to end into rows of `widths`: one static shape, hardly any padding.

    First fit, the longest first (Johnson 1973), block by block to stay fast. Returns which rows are packed together:
    every row is in one group, and no group is wider than the widths, on any side.
    """
    groups: list[list[int]] = []
    for begin in range(0, len(lengths), block):
        part = lengths[begin : begin + block]
        room = np.tile(np.array(widths), (len(part), 1))  # what is left in each group, on every side
        here: list[list[int]] = []
        for row in np.argsort(-part.max(1), kind="stable").tolist():
            fits = (room[: len(here) + 1] >= part[row]).all(1)
            place = int(fits.argmax())
            assert fits[place], "a row is wider than the widths"
            if place == len(here):
                here.append([])
            here[place].append(begin + row)
            room[place] -= part[row]
        groups += here
    return [np.array(group) for group in groups]


@dataclass(frozen=True)
class Windows(Order):
    """A long text cut into rows of `width` tokens and the one that follows, from another offset in every epoch.

    A row is the place of its first token.
    """

    tokens: int
    width: int
    batch: int
    seed: int

    @property
    def shapes(self) -> tuple[Shape, ...]:  # type: ignore[override]
        """The one shape."""
        return ((self.width,),)

    def epoch(self, number: int) -> Iterator[Draw]:
        """Every token once, but for those before the offset and after the last whole row."""
        spare = min(self.width, self.tokens - self.width)
        offset = int(np.random.default_rng((self.seed, number, 1)).integers(spare))
        count = (self.tokens - 1 - offset) // self.width
        order = shuffled(count, self.seed, number)
        for begin in range(0, count, self.batch):
            rows = order[begin : begin + self.batch] * self.width + offset
            yield Draw((self.width,), fill(rows, self.batch), begin == 0)


@dataclass(frozen=True)
class Streams(Order):
    """A long text as `lanes` parallel readings: each draw goes on where the last one ended (truncated
    backpropagation through time carries the state across). A row is the place of its first token.
    """

    tokens: int
    width: int
    lanes: int

    @property
    def shapes(self) -> tuple[Shape, ...]:  # type: ignore[override]
        """The one shape."""
        return ((self.width,),)

    def epoch(self, number: int) -> Iterator[Draw]:
        """Read every lane from its beginning to its end; a rest shorter than `width` is left out."""
        lane = (self.tokens - 1) // self.lanes
        starts = np.arange(self.lanes) * lane
        for chunk in range(lane // self.width):
            yield Draw((self.width,), starts + chunk * self.width, chunk == 0)


# --- reading a text from its beginning to its end, to measure on it; nothing is left out -----------------------------


def passages(count: int, width: int, rows: int) -> Iterator[Draw]:
    """Cut `count` tokens into windows, so many rows at a time; the last window is narrower."""
    whole = count // width * width
    starts = np.arange(0, whole, width)
    for begin in range(0, len(starts), rows):
        yield Draw((width,), starts[begin : begin + rows], begin == 0)
    if whole < count:
        yield Draw((count - whole,), np.array([whole]), whole == 0)


def whole_streams(count: int, width: int, lanes: int) -> Iterator[Draw]:
    """Read `count` tokens as `Streams` does; where a lane ends, its window is narrower.

    What the division into lanes leaves over comes by itself, and begins anew.
    """
    lane, rest = divmod(count, lanes)
    starts = np.arange(lanes) * lane
    for begin in range(0, lane, width):
        yield Draw((min(width, lane - begin),), starts + begin, begin == 0)
    if rest:
        yield Draw((rest,), np.array([count - rest]), True)
