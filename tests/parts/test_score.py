"""Scores against their equations, pair by pair."""

from math import sqrt, tanh

import numpy as np
import pytest
import torch

from regard.errors import ConfigError
from regard.parts.score import (
    Additive,
    AdditiveConfig,
    Bilinear,
    BilinearConfig,
    Cosine,
    CosineConfig,
    Dot,
    DotConfig,
    ReducedRank,
    ReducedRankConfig,
    Score,
)


def random(*shape):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(sum(shape)))


def compare(score, query, key):
    """Score all pairs as attention does: prepare, then compare."""
    return score(score.query(query), score.key(key))


def check(score, query, key, equation):
    """Compare with an equation of one query and one key, both vectors."""
    found = compare(score, query, key)
    B, H, T, S = *query.shape[:3], key.shape[2]
    assert found.shape == (B, H, T, S)
    q, k = query.numpy(), key.numpy()
    expected = [
        [[[equation(q[b, h, i], k[b, h, j]) for j in range(S)] for i in range(T)] for h in range(H)] for b in range(B)
    ]
    torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.float64), atol=1e-10, rtol=0)


query, key, wide = random(2, 3, 4, 5), random(2, 3, 6, 5), random(2, 3, 6, 7)


def array(linear):
    return linear.weight.detach().numpy()


def test_dot_is_scaled_by_the_width():
    check(DotConfig().build(5, 5), query, key, lambda q, k: sum(q * k) / sqrt(5))


def test_dot_with_a_given_scale():
    check(DotConfig(scale=1.0).build(5, 5), query, key, lambda q, k: sum(q * k))
    check(Dot(5, scale=0.3), query, key, lambda q, k: 0.3 * sum(q * k))


def test_soft_cap():
    check(DotConfig(cap=0.5).build(5, 5), query, key, lambda q, k: 0.5 * tanh(sum(q * k) / sqrt(5) / 0.5))
    capped = compare(Dot(5, scale=100.0, cap=0.5), query, key)
    assert capped.abs().max() <= 0.5
    assert capped.min() < -0.49
    assert capped.max() > 0.49


def test_cosine():
    def cosine(q, k):
        return sum(q * k) / sqrt(sum(q * q)) / sqrt(sum(k * k))

    check(CosineConfig().build(5, 5), query, key, cosine)
    assert list(Cosine().parameters()) == []
    same = compare(Cosine(), query, 3 * query).diagonal(dim1=-2, dim2=-1)
    torch.testing.assert_close(same, torch.ones_like(same), atol=1e-10, rtol=0)


def test_cosine_of_a_zero_vector_is_zero():
    assert torch.equal(compare(Cosine(), torch.zeros_like(query), key), torch.zeros(2, 3, 4, 6, dtype=torch.float64))


@torch.no_grad()
def test_bilinear():
    score = BilinearConfig().build(5, 7).double()
    assert isinstance(score, Bilinear)
    W = array(score.weight).T  # Linear holds the matrix transposed
    check(score, query, wide, lambda q, k: q @ W @ k)


@torch.no_grad()
def test_reduced_rank():
    score = ReducedRankConfig(rank=2).build(5, 7).double()
    assert isinstance(score, ReducedRank)
    U, V = array(score.reduce_query), array(score.reduce_key)
    assert U.shape == (2, 5)
    assert V.shape == (2, 7)
    check(score, query, wide, lambda q, k: (U @ q) @ (V @ k))


@torch.no_grad()
def test_additive():
    score = AdditiveConfig(hidden=4).build(5, 7).double()
    assert isinstance(score, Additive)
    W, U, b = array(score.from_query), array(score.from_key), score.from_key.bias.numpy()
    v = array(score.energy)[0]
    assert W.shape == (4, 5)
    check(score, query, wide, lambda q, k: v @ np.tanh(W @ q + U @ k + b))


def test_additive_is_as_wide_as_the_query_by_default():
    assert AdditiveConfig().build(5, 7).energy.in_features == 5


def test_only_the_additive_score_is_not_a_dot_product():
    scores = [c.build(5, 5) for c in (DotConfig(), CosineConfig(), BilinearConfig(), ReducedRankConfig(2))]
    assert all(score.is_dot for score in scores)
    assert not AdditiveConfig().build(5, 5).is_dot


@pytest.mark.parametrize("config", [DotConfig(), CosineConfig()])
def test_unequal_widths_have_no_dot_product(config):
    with pytest.raises(ConfigError, match=r"queries of width 5 and keys of width 7.*use a bilinear"):
        config.build(5, 7)


def test_a_plain_score_changes_neither_side():
    score = Score(scale=2.0)
    assert score.query(query) is query
    assert score.key(key) is key
