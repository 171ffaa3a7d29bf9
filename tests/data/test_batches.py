"""Orders: every row once in an epoch, one number of rows for each shape, decided by seed and epoch; padding."""

from collections import Counter, defaultdict
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from regard.data.batches import (
    EMPTY,
    Buckets,
    Draw,
    Order,
    Shuffled,
    Streams,
    Windows,
    next_multiple,
    overlapping,
    pack_rows,
    passages,
    rows_for,
    whole_streams,
)

LENGTHS = st.integers(1, 2).flatmap(
    lambda sides: st.integers(1, 60).flatmap(
        lambda rows: arrays(np.int64, (rows, sides), elements=st.integers(1, 30), fill=st.nothing())
    )
)
TOKENS, SEEDS = st.integers(1, 200), st.integers(0, 2**32)


def real(draws: list[Draw]) -> list[int]:
    """Return the rows of all draws, without the empty ones."""
    return [row for draw in draws for row in draw.rows.tolist() if row != EMPTY]


def same(one: list[Draw], other: list[Draw]) -> bool:
    return len(one) == len(other) and all(
        a.shape == b.shape and a.begins == b.begins and np.array_equal(a.rows, b.rows)
        for a, b in zip(one, other, strict=True)
    )


def check_static(order: Order, draws: list[Draw]) -> None:
    """Compiled code is reused: only announced shapes, the same number of rows in every draw of a shape."""
    rows = defaultdict(set)
    for draw in draws:
        assert draw.shape in order.shapes
        rows[draw.shape].add(len(draw.rows))
    assert all(len(counts) == 1 for counts in rows.values())
    assert [draw.begins for draw in draws] == [True] + [False] * (len(draws) - 1)


def like_multi30k(rows: int = 29_000) -> np.ndarray:
    """Lengths of sentence pairs: mean 16, deviation 6, correlation 0.8."""
    normal = np.random.default_rng(0).multivariate_normal([0, 0], [[1, 0.8], [0.8, 1]], rows)
    return np.maximum(np.rint(16 + 6 * normal), 2).astype(np.int64)


def padding(order: Order, lengths: np.ndarray) -> float:
    """The share of an epoch's area, empty rows included, that holds no token."""
    return 1 - lengths.sum() / sum(len(draw.rows) * sum(draw.shape) for draw in order.epoch(0))


# --- shuffled --------------------------------------------------------------------------------------------------------


@given(st.integers(1, 50), st.integers(1, 12), SEEDS, st.integers(0, 5))
def test_shuffled_draws_every_row_once(count: int, batch: int, seed: int, epoch: int):
    order = Shuffled(count, batch, (7, 5), seed)
    draws = list(order.epoch(epoch))
    assert sorted(real(draws)) == list(range(count))
    assert {len(draw.rows) for draw in draws} == {min(batch, count)}
    assert len(draws) == -(-count // batch)
    check_static(order, draws)


# --- buckets ---------------------------------------------------------------------------------------------------------


@given(LENGTHS, TOKENS, SEEDS, st.integers(1, 6))
def test_buckets_draw_every_row_once_where_it_fits(lengths: np.ndarray, tokens: int, seed: int, most: int) -> None:
    order = Buckets(lengths, tokens, seed, most)
    for epoch in range(2):
        draws = list(order.epoch(epoch))
        assert sorted(real(draws)) == list(range(len(lengths)))
        check_static(order, draws)
        for draw in draws:
            assert (lengths[draw.rows[draw.rows >= 0]] <= np.array(draw.shape)).all()
    assert len(order.shapes) <= most + 1  # plus the bucket that fits every row


def test_buckets_as_made_by_hand():
    lengths = np.array([[2], [2], [9], [9], [9], [3]])
    order = Buckets(lengths, 9, 0, most=2)
    assert order.shapes == ((3,), (9,))
    assert order.batches == [3, 1]
    draws = {draw.shape: set() for draw in order.epoch(0)}
    for draw in order.epoch(0):
        draws[draw.shape] |= set(draw.rows.tolist())
    assert draws == {(3,): {0, 1, 5}, (9,): {2, 3, 4}}


def test_the_rest_of_a_bucket_moves_to_a_larger_one():
    lengths = np.array([[2]] * 5 + [[8]] * 4)
    order = Buckets(lengths, 16, 0)
    assert order.shapes == ((2,), (8,))
    assert order.batches == [8, 2]
    draws = list(order.epoch(0))
    assert {draw.shape for draw in draws} == {(8,)}  # five short rows do not fill the bucket of eight
    assert Counter(len(draw.rows) for draw in draws) == {2: 5}
    assert sum((draw.rows == EMPTY).sum() for draw in draws) == 1


def test_rows_for_holds_the_tokens_of_the_longest_side():
    assert rows_for(2048, (60, 64)) == 32
    assert rows_for(100, (9,)) == 11  # few rows are not rounded
    assert rows_for(1000, (9,)) == 104  # many are, to a multiple of 8
    assert rows_for(10, (64,)) == 1  # at least one
    assert [next_multiple(number, 4) for number in (1, 4, 5)] == [4, 4, 8]


@pytest.mark.parametrize("tokens", [2048, 4096, 8192])
def test_little_padding_in_buckets(tokens: int):
    """On pairs buckets cannot do much better: either side may be the longer one."""
    lengths = like_multi30k()
    assert padding(Buckets(lengths, tokens, 0), lengths) < 0.12
    one_side = lengths[:, :1]
    assert padding(Buckets(one_side, tokens, 0), one_side) < 0.08


# --- packing ---------------------------------------------------------------------------------------------------------


@given(LENGTHS, st.integers(0, 20), st.integers(1, 40))
def test_packing_loses_nothing_and_overflows_nowhere(lengths: np.ndarray, more: int, block: int):
    widths = tuple((lengths.max(0) + more).tolist())
    groups = pack_rows(lengths, widths, block)
    assert sorted(np.concatenate(groups).tolist()) == list(range(len(lengths)))
    assert all(len(group) for group in groups)
    assert all((lengths[group].sum(0) <= np.array(widths)).all() for group in groups)


@given(LENGTHS, st.integers(0, 20))
def test_packing_is_first_fit(lengths: np.ndarray, more: int):
    """No row of a later group would have fitted into an earlier one as it was when the row came; so two groups that
    could be joined never remain."""
    widths = lengths.max(0) + more
    groups = pack_rows(lengths, tuple(widths.tolist()))
    for earlier, later in pairwise(groups):
        first = later[np.argmax(lengths[later].max(1))]  # the longest comes first
        longer = [row for row in earlier if lengths[row].max() >= lengths[first].max()]
        assert (lengths[longer].sum(0) + lengths[first] > widths).any()


def test_packing_by_hand():
    groups = pack_rows(np.array([[3, 1], [5, 5], [2, 2], [1, 4], [3, 3]]), (6, 6))
    assert [sorted(group.tolist()) for group in groups] == [[1], [0, 3], [2, 4]]  # row 0 fits beside 3, not beside 1


def test_nothing_packs_to_nothing():
    assert pack_rows(np.empty((0, 2), np.int64), (4, 4)) == []


@pytest.mark.parametrize("tokens", [2048, 4096, 8192])
def test_hardly_any_padding_when_packed(tokens: int):
    lengths = like_multi30k()
    widths = (64, 64)
    groups = pack_rows(lengths, widths)
    order = Shuffled(len(groups), rows_for(tokens, widths), widths, 0)
    assert padding(order, lengths) < 0.05


# --- long texts ------------------------------------------------------------------------------------------------------


@given(st.integers(1, 20), st.integers(1, 200), st.integers(1, 9), SEEDS, st.integers(0, 5))
def test_windows_cover_the_text_once(width: int, more: int, batch: int, seed: int, epoch: int):
    tokens = width + more
    order = Windows(tokens, width, batch, seed)
    draws = list(order.epoch(epoch))
    starts = sorted(real(draws))
    assert starts  # there is always something to learn
    assert starts == list(range(starts[0], starts[-1] + 1, width))  # side by side, none twice
    assert 0 <= starts[0] < width  # left out: less than a window at the beginning,
    assert 0 <= tokens - (starts[-1] + width + 1) < width  # and less than one, and the token that follows, at the end
    check_static(order, draws)
    assert {len(draw.rows) for draw in draws} == {min(batch, (tokens - 1) // width)}


def test_windows_begin_elsewhere_in_other_epochs():
    offsets = {min(real(list(Windows(1000, 50, 4, 0).epoch(epoch)))) for epoch in range(8)}
    assert len(offsets) > 4


@given(st.integers(1, 12), st.integers(1, 6), st.integers(0, 100))
def test_streams_continue_where_they_ended(width: int, lanes: int, more: int):
    tokens = width * lanes + 1 + more
    order = Streams(tokens, width, lanes)
    draws = list(order.epoch(0))
    check_static(order, draws)
    assert {len(draw.rows) for draw in draws} == {lanes}
    for draw, following in pairwise(draws):
        assert np.array_equal(draw.rows + width, following.rows)
    assert draws[0].rows[0] == 0
    places = [place for draw in draws for row in draw.rows for place in range(row, row + width)]
    assert len(set(places)) == len(places)  # no token is read twice
    assert max(places) + 1 < tokens  # and each has a next token
    assert tokens - 1 - len(places) < lanes * (width + 1)  # a rest in each lane, and of the division into lanes
    assert same(draws, list(order.epoch(1)))  # there is nothing to shuffle


@given(st.integers(1, 12), st.integers(1, 6), st.integers(0, 100))
def test_validation_text_is_read_once_and_to_its_end(width: int, rows: int, more: int):
    count = width * rows + more
    for draws in (list(passages(count, width, rows)), list(whole_streams(count, width, rows))):
        places = [place for draw in draws for row in draw.rows for place in range(row, row + draw.shape[0])]
        assert sorted(places) == list(range(count))
        assert draws[0].begins
        assert all(draw.shape[0] <= width or draw.begins for draw in draws)
    for draw, following in pairwise(draws):  # of streams
        assert following.begins or np.array_equal(draw.rows + draw.shape[0], following.rows)


@given(st.data())
def test_overlapping_windows_predict_each_token_once_with_enough_context(data: st.DataObject):
    width, rows = data.draw(st.integers(1, 12)), data.draw(st.integers(1, 6))
    stride, count = data.draw(st.integers(1, width)), width + data.draw(st.integers(0, 100))
    places = []
    for draw, context in overlapping(count, width, stride, rows):
        assert draw.shape == (width,)
        assert context >= width - stride or draw.begins
        places += [place for row in draw.rows for place in range(row + context, row + width)]
    assert places == list(range(count))


# --- what decides ----------------------------------------------------------------------------------------------------


def orders(seed: int) -> list[Order]:
    lengths = np.random.default_rng(1).integers(1, 30, (200, 2))
    return [Shuffled(200, 8, (3,), seed), Buckets(lengths, 200, seed), Windows(2000, 9, 8, seed)]


@settings(max_examples=10)
@given(SEEDS, st.integers(0, 1000))
def test_seed_and_epoch_decide_and_nothing_else(seed: int, epoch: int):
    for one, other, third in zip(orders(seed), orders(seed), orders(seed + 1), strict=True):
        list(other.epoch(epoch + 1))  # earlier draws have no influence
        np.random.default_rng(3).random()
        drawn = list(one.epoch(epoch))
        assert same(drawn, list(other.epoch(epoch)))
        assert not same(drawn, list(one.epoch(epoch + 1)))
        assert not same(drawn, list(third.epoch(epoch)))


def test_a_draw_has_no_more_rows_than_there_are() -> None:
    """Else an update of far more tokens than the data would be filled up with empty rows, and take all memory."""
    lengths = np.array([[3], [5], [9]])
    for order in (Shuffled(7, 10**9, (4,), 0), Windows(100, 8, 10**9, 0), Buckets(lengths, 10**9, 0)):
        for epoch in range(3):
            draws = list(order.epoch(epoch))
            assert max(len(draw.rows) for draw in draws) <= 12
            assert len({(draw.shape, len(draw.rows)) for draw in draws}) == len({draw.shape for draw in draws})
