"""Products by oneDNN: the numbers and the gradients of torch's own."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from regard.parts import onednn
from regard.parts.linear import Linear
from regard.parts.onednn import affine, fast_products

pytestmark = pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="this torch has no oneDNN")


@pytest.fixture(autouse=True)
def _on_every_processor_and_for_all_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onednn, "is_onednn_faster", lambda: True)
    monkeypatch.setattr(onednn, "LEAST_OPERATIONS", 1)


def is_fast(out: Tensor) -> bool:
    """Return whether oneDNN computed this, and will compute its gradients."""
    return out.grad_fn is not None and "FastAffine" in type(out.grad_fn).__name__


def gradients(layer: Linear, x: Tensor, out: Tensor) -> list[Tensor]:
    """Return the gradients of something that depends on all numbers of the output in different ways."""
    learned = [each for each in (x, *layer.parameters()) if each.requires_grad]
    return list(torch.autograd.grad((out.square() * torch.arange(1.0, out.shape[-1] + 1)).sum(), learned))


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("learns", [True, False])
@pytest.mark.parametrize("shape", [(24, 40), (40, 24), (32, 32), (7, 5), (1, 3)])
def test_they_have_the_numbers_and_gradients_of_torch(shape: tuple[int, int], learns: bool, bias: bool) -> None:
    torch.manual_seed(0)
    layer = Linear(*shape, bias=bias)
    apart = torch.randn(3, shape[0], 9).mT, torch.randn(1, 1, shape[0]).expand(4, 2, -1)
    for x in (torch.randn(3, 9, shape[0]), *apart):
        x.requires_grad_(learns)
        wanted = F.linear(x, layer.weight, layer.bias)
        with fast_products():
            found = layer(x)
        assert is_fast(found)
        torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)
        pairs = zip(gradients(layer, x, found), gradients(layer, x, wanted), strict=True)
        for one, other in pairs:
            torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-4)


def test_a_gradient_that_is_the_same_number_everywhere() -> None:
    layer, x = Linear(6, 4), torch.randn(5, 6, requires_grad=True)
    with fast_products():
        layer(x).sum().backward()  # the gradient is one number, expanded
    assert x.grad is not None
    torch.testing.assert_close(x.grad, layer.weight.sum(0).expand(5, 6))


class Matrices(TorchDispatchMode):
    """Notes the second factors that oneDNN gets."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[Tensor] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        if func is torch.ops.mkldnn._linear_pointwise.default:
            self.found.append(args[1])
        return func(*args, **(kwargs or {}))


def test_it_gets_no_slice_of_a_matrix_for_which_it_takes_a_thousand_times_as_long() -> None:
    wide, tall = torch.randn(12, 3 * 16), torch.randn(16, 3 * 24).t()
    vectors = torch.randn(5, 9, 16, requires_grad=True)
    weight = torch.randn(24, 16, requires_grad=True)
    with fast_products(), Matrices() as matrices:
        for part in (wide[:, :16], tall[24:48]):  # weights
            torch.testing.assert_close(affine(vectors, part, None), F.linear(vectors, part))
        assert matrices.found == []
        for x in (vectors[:, :1], vectors[:, :, :7].repeat(1, 1, 3)[..., :16]):  # vectors and gradients
            affine(x, weight, None)[..., :4].square().sum().backward()
    assert len(matrices.found) == 6
    assert all(each.is_contiguous() or each.mT.is_contiguous() for each in matrices.found)


def test_weights_that_do_not_learn_get_no_gradient() -> None:
    layer, x = Linear(8, 6).requires_grad_(False), torch.randn(4, 8, requires_grad=True)
    with fast_products():
        layer(x).sum().backward()
    assert layer.weight.grad is None
    assert x.grad is not None


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_other_precisions_are_left_to_torch(dtype: torch.dtype) -> None:
    layer, x = Linear(8, 6).to(dtype), torch.randn(4, 8, dtype=dtype)
    with fast_products():
        assert not is_fast(layer(x))
        with torch.autocast("cpu"):
            assert layer.float()(x.float()).dtype == torch.bfloat16


def test_small_products_are_left_to_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onednn, "LEAST_OPERATIONS", 4 * 8 * 6 + 1)
    with fast_products():
        assert not is_fast(Linear(8, 6)(torch.randn(4, 8)))
        assert is_fast(Linear(8, 7)(torch.randn(4, 8)))


def test_they_are_used_inside_the_block_only_and_where_they_are_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    layer, x = Linear(8, 6), torch.randn(4, 8)
    with fast_products():
        assert is_fast(layer(x))
        with torch.no_grad():
            torch.testing.assert_close(layer(x), F.linear(x, layer.weight, layer.bias))
    assert not is_fast(layer(x))
    monkeypatch.setattr(onednn, "is_onednn_faster", lambda: False)
    with fast_products():
        assert not is_fast(layer(x))
