"""Weights cast all at once: the same gradients, and one product for layers with the same input."""

from contextlib import nullcontext

import pytest
import torch
from torch import Tensor

import regard
from regard.parts.heads import MultiHeads
from regard.parts.linear import Linear
from regard.training.casting import CastWeights

from ..laws.cases import SHRINK

RECIPES = ("translator", "gpt2", "llama-like", "bert")


def gradients(model: torch.nn.Module, casts: CastWeights | None) -> dict[str, Tensor]:
    """Return the gradients of a pass by name, in float32, in which the order of additions makes no large difference."""
    torch.manual_seed(0)
    inputs = [torch.randint(5, 20, (3, 6)) for _ in range(2 if getattr(model, "has_source", False) else 1)]
    model.zero_grad()
    with nullcontext() if casts is None else casts.cast_to(torch.float32):
        out = model(*inputs)
    out.logsumexp(-1).square().sum().backward()
    return {name: each.grad.clone() for name, each in model.named_parameters() if each.grad is not None}


@pytest.mark.parametrize("recipe", RECIPES)
def test_weights_cast_together_get_the_gradients_of_weights_cast_one_by_one(recipe: str) -> None:
    model = regard.build(recipe, *SHRINK[recipe], device="cpu").eval()
    casts = CastWeights(model)
    wanted, found = gradients(model, None), gradients(model, casts)
    assert wanted.keys() == found.keys()
    for name, gradient in found.items():
        torch.testing.assert_close(gradient, wanted[name], rtol=1e-4, atol=1e-5)


def test_products_are_computed_in_the_dtype_of_the_pass() -> None:
    layer = Linear(4, 3)
    x = torch.randn(2, 4, dtype=torch.bfloat16)
    with CastWeights(layer).cast_to(torch.bfloat16):
        out = layer(x)
    wanted = torch.nn.functional.linear(x, layer.weight.bfloat16(), layer.bias.bfloat16())
    assert torch.equal(out, wanted)
    out.sum().backward()
    assert torch.equal(layer.bias.grad, torch.full((3,), 2.0))
    assert layer.weight.grad.dtype == torch.float32
    assert torch.equal(layer.weight.grad, x.sum(0).float().expand(3, 4))


def test_queries_keys_and_values_are_one_product(monkeypatch: pytest.MonkeyPatch) -> None:
    model = regard.build("translator", *SHRINK["translator"], device="cpu")
    calls: list[tuple[int, ...]] = []
    product = torch.nn.functional.linear
    monkeypatch.setattr(
        "regard.parts.linear.F.linear",
        lambda x, weight, bias=None: calls.append(weight.shape) or product(x, weight, bias),
    )
    gradients(model, CastWeights(model))
    heads = next(part for part in model.modules() if isinstance(part, MultiHeads))
    rows = heads.to_query.out_features
    assert calls.count((3 * rows, rows)) == 2 * len(model.encoder.layers)  # every self-attention
    assert calls.count((2 * rows, rows)) == len(model.decoder.layers)  # every cross-attention


def test_an_update_in_float32_joins_what_one_product_computes() -> None:
    """Nothing is cast then, so all other layers use their own weights. The gradients are those of separate products."""
    model = regard.build("gpt2", *SHRINK["gpt2"], device="cpu").eval()
    casts = CastWeights(model, alone=False)
    heads = [part for part in model.modules() if isinstance(part, MultiHeads)]
    assert casts.groups == [(each.to_query, each.to_key, each.to_value) for each in heads]
    wanted, found = gradients(model, None), gradients(model, casts)
    assert wanted.keys() == found.keys()
    for name, gradient in found.items():
        torch.testing.assert_close(gradient, wanted[name], rtol=1e-4, atol=1e-5)


def test_a_layer_that_is_frozen_or_hooked_is_left_to_autocast() -> None:
    model = torch.nn.ModuleList(Linear(2, 2) for _ in range(3))
    model[0].weight.requires_grad_(False)
    model[1].register_forward_hook(lambda *_: None)
    assert CastWeights(model).groups == [(model[2],)]
    with CastWeights(model[0]).cast_to(torch.bfloat16):  # there may be none
        pass


@pytest.mark.parametrize("register", ["register_forward_hook", "register_full_backward_hook"])
@pytest.mark.parametrize("early", [True, False])
def test_hooks_are_called_whenever_they_were_registered(register: str, early: bool) -> None:
    """A callback may add them while a model is trained."""
    model = regard.build("gpt2", *SHRINK["gpt2"], device="cpu").eval()
    wanted, calls = gradients(model, None), []
    key = next(part for part in model.modules() if isinstance(part, MultiHeads)).to_key
    casts = None if early else CastWeights(model, alone=False)
    getattr(key, register)(lambda *_: calls.append(1))
    found = gradients(model, casts or CastWeights(model, alone=False))
    assert calls
    for name, gradient in found.items():
        torch.testing.assert_close(gradient, wanted[name], rtol=1e-4, atol=1e-5)
