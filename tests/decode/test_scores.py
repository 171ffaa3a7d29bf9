"""Operations on scores against torch's own sum and sort."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.decode.scores import AT_ONCE, BLOCK, forbid, likeliest, log_total, top_scores


def random(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return (3 * torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)).to(dtype)


@given(
    seed=st.integers(0, 10**6),
    rows=st.integers(1, 5),
    size=st.integers(1, 30 * BLOCK),
    count=st.integers(1, 20),
    sorted_first=st.booleans(),
)
def test_the_best_are_those_of_a_sort(seed, rows, size, count, sorted_first):
    scores = random(rows, size, seed=seed, dtype=torch.float64)
    if sorted_first:  # the best are all in one block, or in the rest after the last block
        scores = scores.sort(-1).values
    wanted = scores.sort(-1, descending=True)
    values, tokens = top_scores(scores, count)
    assert values.equal(wanted.values[:, :count])
    assert tokens.equal(wanted.indices[:, :count])


@given(seed=st.integers(0, 10**6), count=st.integers(1, 9), size=st.sampled_from([20 * BLOCK, 20 * BLOCK + 7]))
def test_ties_and_impossible_tokens(seed, count, size):
    scores = random(3, size, seed=seed).round().masked_fill(random(3, size, seed=seed + 1) > -8, -torch.inf)
    values, tokens = top_scores(scores, count)
    assert values.equal(scores.sort(-1, descending=True).values[:, :count])
    assert scores.gather(1, tokens).equal(values)
    assert all(len(set(row)) == count for row in tokens.tolist())
    assert [top_scores(scores[row : row + 1], count)[1][0].tolist() for row in range(3)] == tokens.tolist()


@given(seed=st.integers(0, 10**6), rows=st.integers(1, 5), size=st.integers(1, 4 * BLOCK), rounded=st.booleans())
def test_the_likeliest_is_the_first_of_the_best(seed, rows, size, rounded):
    scores = random(rows, size, seed=seed)
    scores = scores.round() if rounded else scores
    value, token = likeliest(scores)
    assert value.equal(scores.amax(-1, keepdim=True))
    assert token[:, 0].tolist() == [row.index(max(row)) for row in scores.tolist()]


@pytest.mark.parametrize("rows", [1, AT_ONCE, AT_ONCE + 1, 5 * AT_ONCE])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_the_sum_is_precise(rows, dtype):
    scores = random(rows, 1000, dtype=dtype)
    found = log_total(scores)
    assert found.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    torch.testing.assert_close(found.double(), scores.double().logsumexp(-1, keepdim=True), rtol=1e-6, atol=1e-6)


def test_forbidden_tokens_become_impossible():
    scores = random(2, 5)
    wanted = [
        [value if place not in (1, 4) else -torch.inf for place, value in enumerate(row)] for row in scores.tolist()
    ]
    forbid(scores, torch.tensor([4, 1]))
    assert scores.tolist() == wanted
    forbid(scores, torch.tensor([], dtype=torch.long))
    assert scores.tolist() == wanted
