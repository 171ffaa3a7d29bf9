"""When rows are read, which rows leave the batch, and how much each may write."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.decode.engine import Given
from regard.decode.rows import Rows, check_interval, end_ids, fit_limits

from ..laws.cases import SHRINK, Case
from .script import prompts


def test_an_accelerator_is_read_every_few_steps():
    assert check_interval(torch.device("cuda")) == 16
    assert check_interval(torch.device("cpu")) == 1


def test_rows_are_read_at_intervals_at_the_end_and_before_the_capacity_is_reached():
    rows = Rows(prompts([1] * 6, [1]), [3, 14])
    rows.every = 8
    assert rows.capacity == 14
    assert [written for written in range(1, 15) if rows.is_check_due(written)] == [8, 9, 10, 11, 12, 13, 14]
    rows.done = {0}
    assert rows.drop_done(9) == [1]
    assert [written for written in range(10, 15) if rows.is_check_due(written)] == [14]


@given(
    pairs=st.lists(st.tuples(st.integers(1, 9), st.integers(0, 9)), min_size=1, max_size=6),
    every=st.integers(1, 9),
    data=st.data(),
)
def test_no_row_that_stays_exceeds_the_capacity_and_none_leaves_before_it_is_done(pairs, every, data):
    rows = Rows(prompts(*([1] * length for length, _ in pairs)), [limit for _, limit in pairs])
    rows.every = every
    for written in range(1, rows.steps + 1):
        before = rows.here
        if rows.is_check_due(written):
            rows.done |= {row for row in before if rows.limits[row] <= written or data.draw(st.booleans())}
            stay = rows.drop_done(written)
            assert stay is None or rows.here == [before[place] for place in stay]
            if not rows.here:
                return
        assert all(rows.lengths[row] + written <= rows.capacity for row in rows.here)
        assert set(before) - set(rows.here) <= rows.done
    assert rows.steps == 0  # else all were done at the last step


def test_limits_are_lowered_to_the_table_of_positions():
    model = Case("gpt2", "gpt2", tuple(SHRINK["gpt2"])).build()
    assert fit_limits(model, prompts([1] * 32, [1] * 5, [1] * 30, [1]), [50, 20, 50, 50]) == [1, 20, 3, 32]
    assert fit_limits(model, Given(torch.ones(2, 40, dtype=torch.long)), [5, 0]) == [1, 0]


def test_limits_stay_without_a_table():
    model = Case("lstm", "lstm", tuple(SHRINK["lstm"])).build()
    assert fit_limits(model, Given(torch.ones(2, 40, dtype=torch.long)), [50, 3]) == [50, 3]


def test_ends_are_none_or_one_or_several():
    assert end_ids(3) == (3,)
    assert end_ids([3, 4]) == (3, 4)
    assert end_ids(()) == ()
