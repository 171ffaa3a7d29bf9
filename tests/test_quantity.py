"""Numbers to be read."""

import pytest

from regard.quantity import list_counts, short_count, short_size


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0, "0"), (0.0123, "0.0123"), (999, "999"), (999.6, "1k"), (12_345, "12.3k"), (999_499, "999k"),
     (999_500, "1M"), (124_439_808, "124M"), (2.5e18, "2.5E")],
)  # fmt: skip
def test_three_digits_and_a_letter(value, shown: str):
    assert short_count(value) == shown


def test_a_unit_follows_a_blank():
    assert [short_size(value) for value in (950, 999_999, 6.4e9)] == ["950 B", "1 MB", "6.4 GB"]
    assert short_size(2.5e9, "FLOP") == "2.5 GFLOP"


def test_one_of_something_is_in_the_singular():
    assert list_counts({"texts": 1, "tokens": 12217}) == "1 text, 12,217 tokens"
    assert list_counts({"agents to forecast": 1, "validation windows": 1}) == "1 agent to forecast, 1 validation window"
