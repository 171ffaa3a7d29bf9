"""Norms against their formulas in numpy."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from regard.parts.norm import BatchNormConfig, LayerNormConfig, RMSNormConfig


def random(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def fill(norm: nn.Module) -> nn.Module:
    """Set gamma and beta to values of their own, so that a test notices when one is left out."""
    for number, parameter in enumerate(norm.parameters()):
        parameter.data = 1 + number + 0.1 * torch.arange(parameter.numel(), dtype=torch.float64)
    return norm.double()


def same(found: Tensor, wanted: np.ndarray) -> None:
    np.testing.assert_allclose(found.detach().numpy(), wanted, rtol=0, atol=1e-10)


GAMMA, BETA = 1 + 0.1 * np.arange(4), 2 + 0.1 * np.arange(4)


@pytest.mark.parametrize("shape", [(4,), (3, 4), (2, 3, 4)])
@pytest.mark.parametrize("bias", [True, False])
def test_layer_norm_is_over_the_features_of_each_token(shape: tuple[int, ...], bias: bool) -> None:
    x = random(*shape)
    norm = fill(LayerNormConfig(eps=0.1, bias=bias).build(4))
    centred = x.numpy() - x.numpy().mean(-1, keepdims=True)
    wanted = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 0.1) * GAMMA + (BETA if bias else 0)
    same(norm(x), wanted)
    assert len(list(norm.parameters())) == 1 + bias


@pytest.mark.parametrize("shape", [(4,), (3, 4), (2, 3, 4)])
def test_rms_norm_divides_by_the_root_of_the_mean_square_of_each_token(shape: tuple[int, ...]) -> None:
    x = random(*shape)
    norm = fill(RMSNormConfig(eps=0.1).build(4))
    same(norm(x), x.numpy() / np.sqrt((x.numpy() ** 2).mean(-1, keepdims=True) + 0.1) * GAMMA)
    assert len(list(norm.parameters())) == 1


def test_rms_norm_by_hand() -> None:
    norm = RMSNormConfig(eps=0.0).build(2).double()
    same(norm(torch.tensor([[3.0, 4.0]], dtype=torch.float64)), np.array([[3, 4]]) / np.sqrt(12.5))


@pytest.mark.parametrize("shape", [(5, 4), (2, 3, 4), (2, 1, 3, 4)])
def test_batch_norm_is_over_all_tokens_of_the_batch(shape: tuple[int, ...]) -> None:
    x = random(*shape)
    norm = fill(BatchNormConfig(eps=0.1).build(4))
    rows = x.numpy().reshape(-1, 4)
    wanted = (rows - rows.mean(0)) / np.sqrt(rows.var(0) + 0.1) * GAMMA + BETA
    same(norm(x), wanted.reshape(shape))


def test_batch_norm_takes_tensors_that_are_not_contiguous() -> None:
    x = random(4, 3, 2).transpose(0, 2)
    norm = fill(BatchNormConfig().build(4))
    same(norm(x), norm(x.contiguous()).detach().numpy())


def test_batch_norm_uses_running_averages_when_not_training() -> None:
    first, second = random(2, 2, 3, 4)
    norm = fill(BatchNormConfig(eps=0.1).build(4))
    mean, variance = np.zeros(4), np.ones(4)
    for x in (first, second):
        norm(x)
        rows = x.numpy().reshape(-1, 4)
        mean = 0.9 * mean + 0.1 * rows.mean(0)
        variance = 0.9 * variance + 0.1 * rows.var(0, ddof=1)
    norm.eval()
    wanted = (second.numpy() - mean) / np.sqrt(variance + 0.1) * GAMMA + BETA
    same(norm(second), wanted)
    same(norm(second[:1, :1]), wanted[:1, :1])  # the other tokens of the batch no longer matter
    same(norm(second), wanted)  # and nothing is learned


@pytest.mark.parametrize(
    ("config", "eps"), [(LayerNormConfig(), 1e-5), (RMSNormConfig(), 1e-6), (BatchNormConfig(), 1e-5)]
)
def test_default_eps(config: LayerNormConfig | RMSNormConfig | BatchNormConfig, eps: float) -> None:
    """x = +-1e-3 for both tokens and features: the variance is 1e-6, so that eps shows."""
    x = 1e-3 * torch.tensor([[1.0, -1.0], [-1.0, 1.0]], dtype=torch.float64)
    same(config.build(2).double()(x), x.numpy() / np.sqrt(1e-6 + eps))
