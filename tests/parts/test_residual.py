"""Each joining against its equation, with norms and sublayers that are simple functions of numbers."""

import pytest
import torch
from torch import Tensor, nn

from regard.parts.norm import LayerNormConfig, RMSNormConfig
from regard.parts.residual import RESIDUALS, Joining, build_residual


class Affine(nn.Module):
    """x -> slope * x + offset, in place of a norm."""

    def __init__(self, slope: float, offset: float) -> None:
        super().__init__()
        self.slope, self.offset = slope, offset

    def forward(self, x: Tensor) -> Tensor:
        return self.slope * x + self.offset


def square(x: Tensor) -> Tensor:
    return x * x


def cube(x: Tensor) -> Tensor:
    return x**3 + 1


NORMS = [Affine(2, 1), Affine(0.5, -1), Affine(3, 0.25), Affine(-1, 2)]


def n(number: int, x: float) -> float:
    return NORMS[number].slope * x + NORMS[number].offset


def pre(x: float) -> float:
    x = x + n(0, x) ** 2
    return x + n(1, x) ** 3 + 1


def post(x: float) -> float:
    x = n(0, x + x**2)
    return n(1, x + x**3 + 1)


def around(x: float) -> float:
    x = x + n(1, n(0, x) ** 2)
    return x + n(3, n(2, x) ** 3 + 1)


def parallel(x: float) -> float:
    return x + n(0, x) ** 2 + n(0, x) ** 3 + 1


def plain(x: float) -> float:
    return (x**2) ** 3 + 1


EQUATIONS = {"pre": pre, "post": post, "around": around, "parallel": parallel, "plain": plain}
COUNTS = {"pre": 2, "post": 2, "around": 4, "parallel": 1, "plain": 0}


def test_every_joining_has_an_equation_here() -> None:
    assert set(RESIDUALS) == set(EQUATIONS)


@pytest.mark.parametrize("joining", EQUATIONS)
def test_two_sublayers(joining: str) -> None:
    residual = RESIDUALS[joining](NORMS[: COUNTS[joining]])
    x = torch.tensor([-0.7, 0.0, 0.3, 1.1], dtype=torch.float64)
    wanted = torch.tensor([EQUATIONS[joining](value) for value in x.tolist()], dtype=torch.float64)
    torch.testing.assert_close(residual(x, [square, cube]), wanted, rtol=0, atol=1e-10)


@pytest.mark.parametrize("joining", EQUATIONS)
@pytest.mark.parametrize("sublayers", [1, 2, 3])
def test_the_number_of_norms(joining: Joining, sublayers: int) -> None:
    wanted = {"pre": sublayers, "post": sublayers, "around": 2 * sublayers, "parallel": 1, "plain": 0}[joining]
    assert RESIDUALS[joining].count(sublayers) == wanted
    residual = build_residual(joining, sublayers, 4, RMSNormConfig(), 0.0)
    assert [type(norm).__name__ for norm in residual.norms] == ["RMSNorm"] * wanted
    assert len({id(norm) for norm in residual.norms}) == wanted  # each has weights of its own
    x = torch.ones(1, 1, 4)
    assert residual(x, [square] * sublayers).shape == x.shape


@pytest.mark.parametrize("joining", ["pre", "post", "around"])
def test_a_wrong_number_of_sublayers_is_noticed(joining: str) -> None:
    residual = RESIDUALS[joining](NORMS[: COUNTS[joining]])
    for sublayers in ([square], [square, cube, square]):
        with pytest.raises(ValueError, match="zip"):
            residual(torch.ones(2), sublayers)


@pytest.mark.parametrize("joining", EQUATIONS)
def test_without_a_norm_nothing_is_normalised(joining: Joining) -> None:
    x = torch.tensor([[[0.5, -2.0]]], dtype=torch.float64)
    found = build_residual(joining, 2, 2, None, 0.0)(x, [square, cube])
    if joining == "plain":
        wanted = cube(square(x))
    elif joining == "parallel":
        wanted = x + square(x) + cube(x)
    else:
        wanted = x + square(x) + cube(x + square(x))
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-10)


def test_the_norm_is_built_for_the_width() -> None:
    [norm] = build_residual("pre", 1, 6, LayerNormConfig(eps=0.5, bias=False), 0.0).norms
    assert isinstance(norm, nn.LayerNorm)
    assert (norm.normalized_shape, norm.eps) == ((6,), 0.5)
    assert [name for name, _ in norm.named_parameters()] == ["weight"]  # no bias


@pytest.mark.parametrize("joining", EQUATIONS)
def test_dropout_acts_on_what_a_sublayer_says_not_on_the_stream(joining: Joining) -> None:
    residual = build_residual(joining, 2, 3, None, dropout=1.0)
    x = torch.tensor([[[0.5, -2.0, 1.0]]], dtype=torch.float64)
    dropped = residual(x, [square, cube])
    assert torch.equal(dropped, torch.zeros_like(x) if joining == "plain" else x)
    assert not torch.equal(residual.eval()(x, [square, cube]), dropped)
