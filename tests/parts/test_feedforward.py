"""Activations and units against their formulas."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from regard.parts.feedforward import ACTIVATIONS, GLU, MLP, Activation, GLUConfig, MLPConfig, OneLayer


def tanh_gelu(x: float) -> float:
    return 0.5 * x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


FORMULAS: dict[str, Callable[[float], float]] = {
    "relu": lambda x: max(x, 0.0),
    "relu2": lambda x: max(x, 0.0) ** 2,
    "gelu": lambda x: x * 0.5 * (1 + math.erf(x / math.sqrt(2))),
    "gelu-tanh": tanh_gelu,
    "silu": lambda x: x / (1 + math.exp(-x)),
    "sigmoid": lambda x: 1 / (1 + math.exp(-x)),
    "tanh": math.tanh,
}


def fill(module: nn.Module) -> nn.Module:
    module.double()
    generator = torch.Generator().manual_seed(2)
    for parameter in module.parameters():
        nn.init.normal_(parameter, generator=generator)
    return module


def random(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def g(name: str, x: Tensor) -> Tensor:
    return x.clone().apply_(FORMULAS[name])  # number by number


def affine(linear: nn.Linear, x: Tensor) -> Tensor:
    """W x + b, number by number."""
    rows = [[sum(w * v for w, v in zip(row, x_t, strict=True)) for row in linear.weight.tolist()] for x_t in x.tolist()]
    bias = 0 if linear.bias is None else linear.bias.detach()
    return torch.tensor(rows, dtype=torch.float64) + bias


def same(found: Tensor, wanted: Tensor) -> None:
    torch.testing.assert_close(found.detach(), wanted, rtol=0, atol=1e-10)


def test_every_activation_that_a_recipe_can_name_has_a_formula() -> None:
    assert set(ACTIVATIONS) == set(FORMULAS)


@pytest.mark.parametrize("name", FORMULAS)
def test_activations(name: str) -> None:
    x = torch.linspace(-3, 3, 25, dtype=torch.float64)
    same(ACTIVATIONS[name](x), g(name, x))


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("name", FORMULAS)
def test_one_layer_is_activation_of_a_product(name: Activation, bias: bool) -> None:
    unit = fill(MLPConfig(activation=name, bias=bias).build(3))
    assert isinstance(unit, OneLayer)
    x = random(4, 3)
    same(unit(x), g(name, affine(unit.down, x)))
    assert len(list(unit.parameters())) == 1 + bias


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("name", FORMULAS)
def test_mlp_is_two_products_with_the_activation_between(name: Activation, bias: bool) -> None:
    unit = fill(MLPConfig(hidden=5, activation=name, bias=bias).build(3))
    assert isinstance(unit, MLP)
    x = random(4, 3)
    same(unit(x), affine(unit.down, g(name, affine(unit.up, x))))
    assert len(list(unit.parameters())) == 2 * (1 + bias)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("name", FORMULAS)
def test_glu_is_a_product_of_two_of_which_one_is_activated(name: Activation, bias: bool) -> None:
    unit = fill(GLUConfig(hidden=5, activation=name, bias=bias).build(3))
    assert isinstance(unit, GLU)
    x = random(4, 3)
    same(unit(x), affine(unit.down, g(name, affine(unit.gate, x)) * affine(unit.up, x)))
    assert len(list(unit.parameters())) == 3 * (1 + bias)


def test_defaults() -> None:
    assert MLPConfig(hidden=5) == MLPConfig(hidden=5, activation="gelu", bias=True, dropout=0.0)
    assert GLUConfig(hidden=5) == GLUConfig(hidden=5, activation="silu", bias=False, dropout=0.0)


@pytest.mark.parametrize("config", [MLPConfig(), MLPConfig(hidden=5), GLUConfig(hidden=5)])
def test_every_token_is_treated_on_its_own(config: MLPConfig | GLUConfig) -> None:
    unit = fill(config.build(3))
    x = random(2, 4, 3)
    alone = torch.stack([torch.stack([unit(token) for token in row]) for row in x])
    same(unit(x), alone.detach())


@pytest.mark.parametrize("config", [MLPConfig(dropout=1.0), MLPConfig(5, dropout=1.0), GLUConfig(5, dropout=1.0)])
def test_dropout_acts_on_what_is_activated_and_only_in_training(config: MLPConfig | GLUConfig) -> None:
    unit = fill(config.build(3))
    x = random(4, 3)
    left = torch.zeros(4, 3, dtype=torch.float64)
    if isinstance(unit, MLP):
        left = left + unit.down.bias.detach()
    same(unit(x), left)
    unit.eval()
    assert (unit(x) - left).abs().min() > 0
