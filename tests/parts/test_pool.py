"""Pools against sums written out, and against attention with one query."""

import math

import pytest
import torch
from torch import Tensor

from regard.parts.pool import (
    FirstConfig,
    LastConfig,
    MaxConfig,
    Mean,
    MeanConfig,
    MeanSqrtConfig,
    PositionWeightedConfig,
    Weighted,
    WeightedConfig,
)

POSITIONS = torch.tensor([[0, 1, 2, 3], [0, 1, -1, -1]])


def random(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def weighted() -> Weighted:
    pool = WeightedConfig().build(3)
    assert isinstance(pool, Weighted)
    pool.double()
    pool.score.weight.data = torch.tensor([[0.5, -1.0, 2.0]], dtype=torch.float64)
    return pool


def attention(query: list[float], keys: Tensor) -> Tensor:
    """softmax(keys . query) keys, number by number."""
    powers = [math.exp(sum(a * b for a, b in zip(query, key, strict=True))) for key in keys.tolist()]
    return sum((p / sum(powers) * key for p, key in zip(powers, keys, strict=True)), torch.zeros(3).double())


def same(found: Tensor, wanted: Tensor) -> None:
    torch.testing.assert_close(found.detach(), wanted, rtol=0, atol=1e-10)


@pytest.mark.parametrize("positions", [None, POSITIONS])
def test_first_is_the_first_vector(positions: Tensor | None) -> None:
    x = random(2, 4, 3)
    same(FirstConfig().build(3)(x, positions), torch.stack([x[0][0], x[1][0]]))


def test_mean() -> None:
    x = torch.tensor([[[1.0, 5.0], [2.0, 0.0], [6.0, 1.0]]], dtype=torch.float64)
    same(MeanConfig().build(2)(x), torch.tensor([[3.0, 2.0]], dtype=torch.float64))


def test_mean_does_not_count_padding() -> None:
    x = random(2, 4, 3)
    wanted = torch.stack([(x[0][0] + x[0][1] + x[0][2] + x[0][3]) / 4, (x[1][0] + x[1][1]) / 2])
    same(Mean()(x, POSITIONS), wanted)


def test_weighted_is_attention_with_one_query() -> None:
    x = random(2, 4, 3)
    query = [0.5, -1.0, 2.0]
    same(weighted()(x), torch.stack([attention(query, x[0]), attention(query, x[1])]))


def test_weighted_does_not_look_at_padding() -> None:
    x = random(2, 4, 3)
    x[1, 2:] *= 100  # would have the largest weights
    query = [0.5, -1.0, 2.0]
    same(weighted()(x, POSITIONS), torch.stack([attention(query, x[0]), attention(query, x[1, :2])]))


def test_vectors_at_padding_change_nothing_and_get_no_gradient() -> None:
    for pool in (Mean(), weighted()):
        x = random(2, 4, 3).requires_grad_()
        pool(x, POSITIONS).square().sum().backward()
        assert x.grad is not None
        assert torch.equal(x.grad[1, 2:], torch.zeros(2, 3, dtype=torch.float64))
        assert (x.grad[POSITIONS >= 0] != 0).all()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_a_row_of_nothing_but_padding_is_finite(dtype: torch.dtype) -> None:
    x = random(2, 4, 3).to(dtype).requires_grad_()
    positions = torch.tensor([[0, 1, 2, 3], [-1, -1, -1, -1]])
    for pool in (FirstConfig().build(3), Mean(), weighted().to(dtype)):
        found = pool(x, positions)
        found.sum().backward()
        assert found.isfinite().all()
        assert found.dtype == dtype
        assert x.grad is not None
        assert x.grad.isfinite().all()
    assert torch.equal(Mean()(x, positions)[1], torch.zeros(3, dtype=dtype))


def test_last_is_the_last_real_vector() -> None:
    x = torch.arange(24, dtype=torch.float64).view(2, 4, 3)
    assert torch.equal(LastConfig().build(3)(x), x[:, 3])
    positions = torch.tensor([[0, 1, -1, -1], [0, 1, 2, 3]])
    assert torch.equal(LastConfig().build(3)(x, positions), torch.stack((x[0, 1], x[1, 3])))


def test_max_does_not_count_padding() -> None:
    x = random(2, 4, 3) - 5.0
    same(MaxConfig().build(3)(x, POSITIONS), torch.stack([x[0].max(0).values, x[1][:2].max(0).values]))
    same(MaxConfig().build(3)(x), x.max(1).values)


def test_mean_sqrt_divides_by_the_root_of_the_length() -> None:
    x = random(2, 4, 3)
    same(MeanSqrtConfig().build(3)(x, POSITIONS), torch.stack([x[0].sum(0) / 2, x[1][:2].sum(0) / math.sqrt(2)]))


def test_later_vectors_count_more_when_weighted_by_position() -> None:
    x = random(2, 4, 3)
    first = (x[0][0] + 2 * x[0][1] + 3 * x[0][2] + 4 * x[0][3]) / 10
    same(PositionWeightedConfig().build(3)(x, POSITIONS), torch.stack([first, (x[1][0] + 2 * x[1][1]) / 3]))
