"""Rules against a double loop over positions."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.parts.mask import (
    Both,
    Causal,
    Coordinate,
    Documents,
    Padding,
    Prefix,
    Rule,
    Window,
    dense_mask,
    explicit_positions,
    includes,
    padded_positions,
)

positions = st.integers(-1, 7)


@st.composite
def rows(draw, batch, length):
    return torch.tensor([[draw(positions) for _ in range(length)] for _ in range(batch)])


@st.composite
def cases(draw):
    """Draw query and key positions of a batch; either may have one row for all."""
    batch, T, S = draw(st.integers(1, 3)), draw(st.integers(1, 4)), draw(st.integers(1, 5))
    query = draw(rows(draw(st.sampled_from([1, batch])), T))
    key = draw(rows(draw(st.sampled_from([1, batch])), S))
    return batch, query, key


def brute_force(batch, query, key, may):
    """Return `may(row, i, j, query position, key position)` for each pair, in plain Python."""
    query, key = query.expand(batch, -1).tolist(), key.expand(batch, -1).tolist()
    return torch.tensor(
        [[[may(b, i, j, q, k) for j, k in enumerate(key[b])] for i, q in enumerate(query[b])] for b in range(batch)]
    )


def check(rule, batch, query, key, may):
    answer = dense_mask(rule, query, key, batch)
    assert answer.dtype == torch.bool
    expected = brute_force(batch, query, key, may)
    assert torch.equal(answer.expand_as(expected), expected)


@settings(max_examples=40)
@given(cases())
def test_causal(case):
    check(Causal(), *case, lambda b, i, j, q, k: k <= q)


@settings(max_examples=40)
@given(cases(), st.integers(1, 9))
def test_window(case, size):
    check(Window(size), *case, lambda b, i, j, q, k: -size < q - k < size)


@settings(max_examples=40)
@given(cases())
def test_padding(case):
    check(Padding(), *case, lambda b, i, j, q, k: k != -1)


@settings(max_examples=40)
@given(cases(), st.data())
def test_documents(case, data):
    batch, query, _ = case
    T = query.shape[1]
    documents = [[data.draw(st.integers(0, 2)) for _ in range(T)] for _ in range(batch)]
    rule = Documents(torch.tensor(documents))
    check(rule, batch, query, query, lambda b, i, j, q, k: documents[b][i] == documents[b][j])


@settings(max_examples=40)
@given(cases(), st.data())
def test_prefix(case, data):
    batch, query, key = case
    length = [data.draw(st.integers(0, 8)) for _ in range(batch)]
    check(Prefix(torch.tensor(length)), batch, query, key, lambda b, i, j, q, k: k <= q or k < length[b])


@settings(max_examples=40)
@given(cases(), st.integers(1, 9), st.data())
def test_and_joins(case, size, data):
    batch, query, key = case
    length = [data.draw(st.integers(0, 8)) for _ in range(batch)]
    rule = Padding() & (Window(size) & Prefix(torch.tensor(length)))
    check(rule, batch, query, key, lambda b, i, j, q, k: k >= 0 and abs(q - k) < size and (k <= q or k < length[b]))


def test_and_with_none_is_the_rule_itself():
    rule = Causal()
    assert rule & None is rule


def test_rules_are_listed_in_order():
    first, second, third = Causal(), Padding(), Window(2)
    assert (first & second & third).rules() == (first, second, third)
    assert (first & (second & third)).rules() == (first, second, third)
    assert isinstance(first & second, Both)


def test_includes():
    mask = Causal() & Padding() & Window(3)
    assert all(includes(mask, kind) for kind in (Causal, Padding, Window))
    assert not includes(mask, Documents)
    assert not includes(Causal(), Padding)
    assert not includes(None, Causal)


def test_the_base_class_decides_nothing():
    with pytest.raises(NotImplementedError):
        dense_mask(Rule(), torch.zeros(1, 2, dtype=torch.long), torch.zeros(1, 2, dtype=torch.long), 1)


def test_padding_alone_needs_no_queries():
    query, key = torch.arange(7)[None], torch.tensor([[0, 1, 2, -1, -1], [0, -1, -1, -1, -1], [0, 1, 2, 3, 4]])
    assert torch.equal(dense_mask(Padding(), query, key, 3), (key >= 0)[:, None])  # (3, 1, 5), not (3, 7, 5)


def test_what_is_the_same_for_all_rows_stays_one_row():
    place = torch.arange(4)[None]
    assert dense_mask(Causal() & Window(2), place, place, 5).shape == (1, 4, 4)
    assert dense_mask(Causal() & Padding(), place, place.expand(5, -1), 5).shape == (5, 4, 4)


@pytest.mark.parametrize("rule", [Causal(), Window(2), Padding(), Documents(torch.tensor([[0, 0, 1], [0, 1, 1]]))])
def test_one_pair_is_answered_as_all_are(rule):
    """Flex asks pair by pair, with tensors without dimensions."""
    place = torch.tensor([[0, 1, 2], [0, 1, -1]])
    answer = dense_mask(rule, place, place, 2).expand(2, 3, 3)
    for b in range(2):
        for i in range(3):
            for j in range(3):
                one = rule.allows(
                    torch.tensor(b), Coordinate(torch.tensor(i), place[b, i]), Coordinate(torch.tensor(j), place[b, j])
                )
                assert one.shape == ()
                assert one == answer[b, i, j]


def test_padded_positions():
    assert padded_positions(torch.tensor([2, 0, 3]), 3).tolist() == [[0, 1, -1], [-1, -1, -1], [0, 1, 2]]
    assert padded_positions(torch.tensor([1, 2]), 4).tolist() == [[0, -1, -1, -1], [0, 1, -1, -1]]
    assert padded_positions(None, 3) is None


def test_explicit_positions():
    device = torch.device("cpu")
    assert explicit_positions(None, 4, device).tolist() == [[0, 1, 2, 3]]
    given_ = torch.tensor([[5, -1], [0, 1]])
    assert explicit_positions(given_, 2, device) is given_
    assert explicit_positions(None, 2, torch.device("meta")).device.type == "meta"
