"""Each kind of residual against its equation, with norms and sublayers that are simple functions of numbers."""

import pytest
import torch
from torch import Tensor, nn

from regard.parts.norm import LayerNormConfig, RMSNormConfig
from regard.parts.residual import RESIDUALS, ResidualName, build_residual


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
NAMES = {
    "pre": ["a", "b"],
    "post": ["a", "b"],
    "around": ["a", "a_after", "b", "b_after"],
    "parallel": ["shared"],
    "plain": [],
}
SUBLAYERS = {"a": square, "b": cube}


def named(joining: str) -> dict[str, nn.Module]:
    return dict(zip(NAMES[joining], NORMS, strict=False))


def test_every_residual_has_an_equation_here() -> None:
    assert set(RESIDUALS) == set(EQUATIONS)


@pytest.mark.parametrize("joining", EQUATIONS)
def test_two_sublayers(joining: str) -> None:
    residual = RESIDUALS[joining](named(joining))
    x = torch.tensor([-0.7, 0.0, 0.3, 1.1], dtype=torch.float64)
    wanted = torch.tensor([EQUATIONS[joining](value) for value in x.tolist()], dtype=torch.float64)
    torch.testing.assert_close(residual(x, SUBLAYERS), wanted, rtol=0, atol=1e-10)


@pytest.mark.parametrize("joining", EQUATIONS)
def test_norms_are_named_after_their_sublayers(joining: ResidualName) -> None:
    assert RESIDUALS[joining].names(["a", "b"]) == NAMES[joining]
    residual = build_residual(joining, ["a", "b"], 4, RMSNormConfig(), 0.0)
    assert list(residual.norms) == NAMES[joining]
    assert {type(norm).__name__ for norm in residual.norms.values()} <= {"RMSNorm"}
    assert len({id(norm) for norm in residual.norms.values()}) == len(NAMES[joining])  # each has weights of its own


@pytest.mark.parametrize("joining", ["pre", "post", "around"])
def test_an_unknown_sublayer_is_noticed(joining: str) -> None:
    with pytest.raises(KeyError, match="c"):
        RESIDUALS[joining](named(joining))(torch.ones(2), {**SUBLAYERS, "c": square})


@pytest.mark.parametrize("joining", EQUATIONS)
def test_without_a_norm_nothing_is_normalised(joining: ResidualName) -> None:
    x = torch.tensor([[[0.5, -2.0]]], dtype=torch.float64)
    found = build_residual(joining, ["a", "b"], 2, None, 0.0)(x, SUBLAYERS)
    if joining == "plain":
        wanted = cube(square(x))
    elif joining == "parallel":
        wanted = x + square(x) + cube(x)
    else:
        wanted = x + square(x) + cube(x + square(x))
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-10)


def test_the_norm_is_built_for_the_width() -> None:
    norm = build_residual("pre", ["a"], 6, LayerNormConfig(eps=0.5, bias=False), 0.0).norms["a"]
    assert isinstance(norm, nn.LayerNorm)
    assert (norm.normalized_shape, norm.eps) == ((6,), 0.5)
    assert [name for name, _ in norm.named_parameters()] == ["weight"]  # no bias


@pytest.mark.parametrize("joining", EQUATIONS)
def test_dropout_acts_on_the_output_of_a_sublayer_not_on_the_stream(joining: ResidualName) -> None:
    residual = build_residual(joining, ["a", "b"], 3, None, dropout=1.0)
    x = torch.tensor([[[0.5, -2.0, 1.0]]], dtype=torch.float64)
    dropped = residual(x, SUBLAYERS)
    assert torch.equal(dropped, torch.zeros_like(x) if joining == "plain" else x)
    assert not torch.equal(residual.eval()(x, SUBLAYERS), dropped)


def test_a_dropped_path_leaves_a_sublayer_out_for_whole_rows_and_keeps_the_mean() -> None:
    torch.manual_seed(0)
    residual = build_residual("pre", ["mixer"], 4, None, 0.0, drop_path=0.25)
    x = torch.rand(2000, 3, 4) + 1
    change = (residual(x, {"mixer": lambda y: y}) - x) / x
    kept = change[:, 0, 0] > 0
    assert torch.allclose(change[kept], torch.full_like(change[kept], 4 / 3), atol=1e-5)
    assert torch.equal(change[~kept], torch.zeros_like(change[~kept]))
    assert 0.2 < float((~kept).float().mean()) < 0.3
    residual.eval()
    assert torch.equal(residual(x, {"mixer": lambda y: y}), x + x)
