"""Attention over short rows: the kernels agree with torch's attention in float64."""

import os
import sys
from collections.abc import Callable
from functools import partial
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

import regard
from regard.parts.short_attention import short_attention

ROWS, HEADS = 2, 3
SHAPES = {  # queries, keys, widths of queries and values
    "causal": (33, 33, 32, 16),
    "a full block": (16, 16, 16, 64),
    "longer than a block": (65, 70, 16, 16),
    "one key": (5, 1, 64, 32),
}


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> str:
    """CUDA, or with TRITON_INTERPRET=1 the CPU."""
    pytest.importorskip("triton", reason="triton comes with torch for CUDA")
    if not torch.cuda.is_available() and os.environ.get("TRITON_INTERPRET") != "1":
        pytest.skip("set TRITON_INTERPRET=1 to run the kernel without CUDA")
    name = "regard.parts.short_attention_kernel"  # imported without the type checks of the tests, which wrap kernels
    spec = spec_from_file_location(name, Path(regard.__file__).parent / "parts" / "short_attention_kernel.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    monkeypatch.setitem(sys.modules, name, module)
    spec.loader.exec_module(module)
    return "cuda" if torch.cuda.is_available() else "cpu"


def draw(length: int, width: int, seed: int, beside: bool) -> Tensor:
    """Return vectors of all heads; `beside`: those of a token lie beside each other, among others."""
    chance = torch.Generator().manual_seed(seed)
    if not beside:
        return torch.randn(ROWS, HEADS, length, width, generator=chance)
    joined = torch.randn(ROWS, length, 3 * HEADS * width, generator=chance)
    return joined[..., HEADS * width : 2 * HEADS * width].unflatten(-1, (HEADS, width)).transpose(1, 2)


def derive(attend: Callable[..., Tensor], given: list[Tensor], gradient: Tensor) -> list[Tensor]:
    """Return the result, and the gradients of what is given."""
    inputs = [each.detach().requires_grad_() for each in given]
    out = attend(*inputs)
    return [out.detach(), *torch.autograd.grad(out, inputs, gradient)]


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())
@pytest.mark.parametrize("hidden", ["", "pairs", "keys", "heads", "blind"])
@pytest.mark.parametrize("beside", [False, True])
def test_the_kernels_compute_the_same(shape: tuple[int, ...], hidden: str, beside: bool, device: str) -> None:
    queries, keys, width, value_width = shape
    sizes = ((queries, width), (keys, width), (keys, value_width), (queries, value_width))
    *given, gradient = (draw(*size, seed, beside) for seed, size in enumerate(sizes))
    causal, mask, blind = queries == keys == 33 and not hidden, None, torch.zeros(queries, 1, dtype=torch.bool)
    if hidden:
        around = {"keys": (ROWS, 1, 1), "heads": (1, HEADS, queries)}.get(hidden, (ROWS, 1, queries))
        scores = torch.rand(*around, keys, generator=torch.Generator().manual_seed(9))
        mask = torch.zeros(*around, keys).masked_fill(scores < 0.4, -torch.inf)
        mask[..., 0] = 0.5
    blind[::3] = hidden == "blind"

    def attend(*inputs: Tensor) -> Tensor:
        seen = None if mask is None else mask.double().expand(ROWS, HEADS, queries, keys)
        return scaled_dot_product_attention(*inputs, attn_mask=seen, is_causal=causal, scale=0.2).masked_fill(blind, 0)

    wanted = derive(attend, [each.double() for each in given], gradient.double())
    seen = None if mask is None else mask.masked_fill(blind, -torch.inf) if hidden == "blind" else mask
    kernel = partial(short_attention, mask=None if seen is None else seen.to(device), causal=causal, scale=0.2)
    found = derive(kernel, [each.to(device) for each in given], gradient.to(device))
    rough = 2e-3 if device == "cuda" else 1e-5  # which may multiply in TF32
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one.double().cpu(), other, rtol=rough, atol=rough)
