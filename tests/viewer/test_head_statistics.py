"""Statistics of heads, thumbnails, and where the page begins."""

from math import isnan, log2

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.viewer.head_statistics import (
    HeadStatistics,
    choose_first_cell,
    choose_first_head,
    join_heads,
    max_pool,
    measure_heads,
    rollout,
    with_statistics,
)
from regard.viewer.manifest import Token

from .fake import attention


def tokens(text: str) -> list[Token]:
    """Words as tokens; those in brackets are special."""
    return [Token(text=word, id=0, special=word[0] == "[", word=place) for place, word in enumerate(text.split())]


def rows(*numbers: list[float]) -> torch.Tensor:
    return torch.tensor(numbers, dtype=torch.float32)


def test_statistics_by_hand():
    weights = torch.stack((rows([1, 0, 0], [0.5, 0.5, 0], [0.25, 0.25, 0.5]), rows([0, 0, 1], [0, 0, 1], [0, 1, 0])))
    found = measure_heads(weights, tokens("[s] a b"), tokens("[s] a b"))
    assert found.entropy == pytest.approx([(0 + 1 + 1.5) / 3, 0])
    assert found.distance == pytest.approx([(0 + 0.5 + 0.75) / 3, (2 + 1 + 1) / 3])
    assert found.previous == pytest.approx([(0.5 + 0.25) / 2, (0 + 1) / 2])
    assert found.first == pytest.approx([(1 + 0.5 + 0.25) / 3, 0])
    assert found.sink == pytest.approx([(0.5 + 0.25) / 2, 0])  # of the queries that are words
    (info,) = with_statistics([attention("self.1", "tokens", "tokens", 3, 3)], [[found]])
    assert info["statistics"]["entropy"] == [[0.833333, 0]]


def test_an_undefined_statistic_is_none():
    found = measure_heads(torch.ones(1, 1, 1), tokens("a"), tokens("a"))
    assert isnan(found.previous[0])
    (info,) = with_statistics([attention("self.1", "tokens", "tokens", 1, 1)], [[found]])
    assert info["statistics"] == {"entropy": [[0]], "distance": [[0]], "previous": [[None]], "first": [[1]]}


@given(st.integers(1, 4), st.integers(1, 9), st.integers(1, 9), st.integers(0, 99))
def test_statistics_of_random_rows(heads, T, S, seed):
    chance = np.random.default_rng(seed)
    weights = chance.dirichlet(np.ones(S), (heads, T)).astype(np.float32)
    found = measure_heads(torch.tensor(weights), tokens("a " * T), tokens("a " * S))
    for head in range(heads):
        cells = [(i, j, float(weights[head, i, j])) for i in range(T) for j in range(S)]
        assert found.entropy[head] == pytest.approx(-sum(w * log2(w) for _, _, w in cells if w) / T, abs=1e-4)
        assert found.distance[head] == pytest.approx(sum(w * abs(i - j) for i, j, w in cells) / T, abs=1e-4)
        before = [w for i, j, w in cells if j == i - 1]
        assert found.previous[head] == pytest.approx(np.mean(before) if before else np.nan, abs=1e-4, nan_ok=True)


def test_statistics_of_several_heads_are_joined():
    weights = torch.rand(5, 40, 3).softmax(-1)
    words = tokens("a " * 40), tokens("a b c")
    whole, joined = (
        measure_heads(weights, *words),
        join_heads([measure_heads(weights[:2], *words), measure_heads(weights[2:], *words)]),
    )
    assert np.array_equal(whole.thumbnails, joined.thumbnails)
    assert whole.thumbnails.shape == (5, 32, 3)
    for name in ("entropy", "distance", "previous", "first", "sink"):
        assert getattr(joined, name) == pytest.approx(getattr(whole, name))


# --- thumbnails ------------------------------------------------------------------------------------------------------


@given(
    st.integers(1, 3), st.integers(1, 70), st.integers(1, 70), st.integers(1, 33), st.integers(1, 33), st.integers(0, 9)
)
def test_pooling_keeps_the_largest_of_each_group(heads, T, S, most_rows, most_columns, seed):
    weights = np.random.default_rng(seed).random((heads, T, S), np.float32)
    found = max_pool(torch.tensor(weights), most_rows, most_columns)
    _, t, s = found.shape
    assert (t, s) == (min(T, most_rows), min(S, most_columns))
    assert found.dtype == np.uint8
    i, j = np.arange(T), np.arange(S)
    groups = [int(row * t // T) for row in i], [int(column * s // S) for column in j]
    # each row is in one group, groups are neighbours, and no two differ by more than one
    for sides, count in ((groups[0], t), (groups[1], s)):
        members = np.bincount(sides, minlength=count)
        assert members.max() - members.min() <= 1
    assert np.array_equal(found.max((1, 2)), np.rint(weights.max((1, 2)) * 255).astype(np.uint8))
    begins = [np.arange(t) * T // t, np.arange(s) * S // s]
    ends = [np.append(begin[1:], length) for begin, length in zip(begins, (T, S), strict=True)]
    for head, row, column in ((0, 0, 0), (heads - 1, t - 1, s - 1), (0, t // 2, s // 2)):
        cell = weights[head, begins[0][row] : ends[0][row], begins[1][column] : ends[1][column]]
        assert found[head, row, column] == round(float(cell.max()) * 255)


def test_weights_that_are_not_numbers_are_drawn_black():
    assert max_pool(torch.full((1, 2, 2), torch.nan), 32, 32).tolist() == [[[0, 0], [0, 0]]]


# --- the first cell --------------------------------------------------------------------------------------------------


def heads(entropy: list[float], sink: list[float]) -> HeadStatistics:
    nothing = [0.0] * len(entropy)
    entropy, sink = [float(number) for number in entropy], [float(number) for number in sink]
    return HeadStatistics(entropy, nothing, nothing, nothing, sink, np.zeros((len(entropy), 1, 1), np.uint8))


def kinds(*names: str) -> list[dict[str, str]]:
    return [{"kind": name} for name in names]


def test_the_most_peaked_head_that_is_not_a_sink():
    assert choose_first_head(kinds("self", "self"), [heads([2, 0.1], [0, 0.9]), heads([1, 3], [0.5, 0])]) == (1, 0)


def test_a_translator_begins_with_cross_attention():
    surveys = [heads([0.1], [0.0]), heads([0.2], [0.0]), heads([2, 1], [0, 0])]
    assert choose_first_head(kinds("encoder", "decoder", "cross"), surveys) == (2, 1)


def test_if_all_heads_are_sinks_the_weakest_is_chosen():
    assert choose_first_head(kinds("self"), [heads([0.1, 0.2, 0.3], [0.9, 0.7, 0.8])]) == (0, 1)
    assert choose_first_head([], []) is None


def test_the_first_cell_has_two_words():
    words = tokens("[s] the river . [e]")
    weights = torch.full((5, 5), 0.01)
    weights[0, 1] = weights[3, 1] = weights[1, 4] = weights[1, 3] = 0.96  # between tokens that are not words
    weights[2, 1] = 0.9
    assert choose_first_cell(weights, words, words, same=False) == (2, 1)


def test_attention_to_itself_does_not_count():
    words = tokens("a b c")
    weights = rows([1, 0, 0], [0.2, 0.8, 0], [0.1, 0.6, 0.3])
    assert choose_first_cell(weights, words, words, same=True) == (2, 1)
    assert choose_first_cell(weights, words, words, same=False) == (1, 1)


def test_a_weight_is_compared_with_uniform_attention_to_visible_keys():
    words = tokens("a b c d")
    weights = rows([1, 0, 0, 0], [0.55, 0.45, 0, 0], [0.4, 0.3, 0.3, 0], [0.1, 0.5, 0.1, 0.3])
    assert choose_first_cell(weights, words, words, same=True) == (3, 1)  # 0.5 of four says more than 0.55 of two


def test_of_similar_weights_the_one_of_the_longest_words_is_chosen():
    queries, keys = tokens("la rivière est"), tokens("the river is")
    weights = rows([0.99, 0.005, 0.005], [0.02, 0.96, 0.02], [0.01, 0.01, 0.98])
    assert choose_first_cell(weights, queries, keys, same=False) == (1, 1)
    weights[1] = torch.tensor([0.1, 0.8, 0.1])
    assert choose_first_cell(weights, queries, keys, same=False) == (0, 0)


@pytest.mark.parametrize(("text", "cell"), [("[s] .", (1, 1)), ("[s] [e]", (0, 1)), ("[s]", (0, 0))])
def test_without_words_any_token_is_chosen(text, cell):
    words = tokens(text)
    weights = rows([0.1, 0.9], [0.8, 0.2])[: len(words), : len(words)]
    assert choose_first_cell(weights, words, words, same=False) == cell


def test_rollout_by_hand():
    first, second = rows([1, 0], [0.5, 0.5]), rows([0, 1], [1, 0])
    wanted = rows([0.5, 0.5], [0.5, 0.5]) @ rows([1, 0], [0.25, 0.75])
    torch.testing.assert_close(rollout([first, second]), wanted)
