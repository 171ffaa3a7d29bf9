"""Int8: exact products, independent of the batch, errors within their bound, and freed matrices."""

import gc

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, strategies
from torch import Tensor, nn

from regard.decode import quantise as quantise_module
from regard.decode.engine import in_use
from regard.decode.quantise import Int8, fbgemm, input_levels, quantise
from regard.errors import RegardError
from regard.models.recipe import build
from regard.models.store import save_model
from regard.parts.linear import Linear

from ..laws.cases import SHRINK, Case, batch, call, cases

SIZES = [(1, 1), (3, 5), (16, 16), (23, 17), (48, 64), (33, 130), (130, 33), (64, 513)]


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def made(weight, bias=None):
    with fbgemm():
        return Int8(weight, bias)


def layer(outputs, inputs, seed=0):
    chance = generator(seed)
    weight, bias = torch.randn(outputs, inputs, generator=chance), torch.randn(outputs, generator=chance)
    return weight, bias, made(weight, bias)


def same(one, other):
    """Compare to the bit, NaN included."""
    return torch.equal(one.view(torch.int32), other.view(torch.int32))


# --- the product -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("outputs", "inputs"), SIZES)
def test_a_vector_gets_the_same_result_alone_and_in_a_batch(outputs, inputs):
    *_, product = layer(outputs, inputs)
    x = torch.randn(70, inputs, generator=generator(1)) * torch.logspace(-6, 6, 70)[:, None]
    x[3], x[5], x[8], x[13], x[21] = 0, torch.inf, 1e-42, 1e38, x[20]
    x[9, 0], x[10, 0] = torch.nan, -torch.inf
    together = product(x)
    for row in range(len(x)):
        assert same(product(x[row : row + 1]), together[row : row + 1]), row
    order = torch.randperm(len(x), generator=generator(2))
    for count in (2, 3, 16, 33, 70):
        assert same(product(x[order[:count]]), together[order[:count]])
    assert same(product(x.view(7, 10, inputs)).flatten(0, 1), together)
    assert product(x[:0]).shape == (0, outputs)
    assert product.bias is not None
    assert same(together[3], product.bias)  # a vector of zeros gives the bias alone
    assert not together[[5, 9, 10]].isfinite().any()
    others = [row for row in range(len(x)) if row not in (5, 9, 10, 13)]
    assert together[others].isfinite().all()


@pytest.mark.parametrize("inputs", [64, 1000, 4096])
def test_sums_are_exact(inputs):
    """Even the largest possible sum, for which 16 bits are too few."""
    most, whole = input_levels(), generator()
    weight = torch.randint(-127, 128, (20, inputs), generator=whole).float()
    x = torch.randint(-most, most + 1, (9, inputs), generator=whole).float()
    weight[0], weight[1], x[0], x[1] = 127, -127, most, -most
    weight[:, 0], x[:, 0] = 127, most  # so that the scales are 1
    expected = (x.double() @ weight.double().t()).float()
    torch.testing.assert_close(made(weight)(x), expected, rtol=1e-6, atol=0)


@given(strategies.integers(0, 10**6), strategies.integers(1, 70), strategies.booleans())
def test_the_error_is_that_of_rounding(seed, inputs, biased):
    """Both sides are rounded to the nearest level, and nothing else is lost."""
    chance = generator(seed)
    weight = torch.randn(5, inputs, generator=chance) * torch.rand(5, 1, generator=chance)
    x, bias = torch.randn(4, inputs, generator=chance).exp(), torch.randn(5, generator=chance)
    half_w = weight.abs().amax(1) / 127 / 2
    half_x = x.abs().amax(1, keepdim=True) / input_levels() / 2
    bound = half_x * weight.abs().sum(1) + x.abs().sum(1, keepdim=True) * half_w + inputs * half_x * half_w
    expected = F.linear(x, weight, bias if biased else None)
    found = made(weight, bias if biased else None)(x)
    assert ((found - expected).abs() <= 1.001 * bound + 1e-5 * expected.abs().max()).all()


def test_where_pairs_are_added_in_16_bits_vectors_have_fewer_levels(monkeypatch):
    assert input_levels() in (63, 127)
    # not 64: a sum saturated
    monkeypatch.setattr(quantise_module, "multiply_int8", lambda x, levels, packed: torch.zeros(1, 1))
    assert input_levels.__wrapped__() == 63
    assert 2 * 127 * (63 + 64) < 2**15  # the largest pair


def test_a_row_of_zeros_in_the_matrix():
    weight, bias = torch.zeros(3, 8), torch.tensor([1.0, 2.0, 3.0])
    assert torch.equal(made(weight, bias)(torch.ones(2, 8)), bias.expand(2, 3))


def test_fbgemm_is_selected_only_while_packing():
    before = torch.backends.quantized.engine
    *_, product = layer(4, 8)
    assert torch.backends.quantized.engine == before
    with fbgemm():
        assert torch.backends.quantized.engine == "fbgemm"
    assert torch.backends.quantized.engine == before
    with pytest.raises(RuntimeError), fbgemm():
        torch.zeros(1, 2) @ torch.zeros(1, 2)
    assert torch.backends.quantized.engine == before
    product(torch.ones(1, 8))  # works with any engine selected


# --- models ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", cases(), ids=lambda case: case.name)
def test_every_model_gives_nearly_the_same(case):
    model, data = case.build(torch.float32), batch(case, dtype=torch.float32)
    with in_use(model):
        expected = call(model, data)
    quantise(model)
    assert not any(isinstance(module, Linear) for module in model.modules())
    with in_use(model):
        found = call(model, data)
    assert found.dtype == torch.float32
    assert torch.corrcoef(torch.stack((found.flatten(), expected.flatten())))[0, 1] > 0.995


def test_a_trained_model_predicts_the_same():
    """It has learned to count, and can still do so."""
    model = build("gpt2", *SHRINK["gpt2"], "model.vocabulary=12", "model.dim=32", seed=0)
    chance, optimizer = generator(), torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(60):
        tokens = (torch.randint(12, (16, 1), generator=chance) + torch.arange(9)) % 12
        loss = F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    tokens = (torch.arange(12)[:, None] + torch.arange(9)) % 12
    with in_use(model):
        before = model(tokens)
    quantise(model)
    with in_use(model):
        after = model(tokens)
    assert torch.equal(after.argmax(-1), (tokens + 1) % 12)
    assert torch.corrcoef(torch.stack((before.flatten(), after.flatten())))[0, 1] > 0.9995
    losses = [F.cross_entropy(logits.flatten(0, 1), ((tokens + 1) % 12).flatten()) for logits in (before, after)]
    assert abs(losses[0] - losses[1]) < 0.02


def tensor_bytes():
    """Count the bytes of all tensors in memory."""
    gc.collect()
    tensors = [one for one in gc.get_objects() if type(one) in (Tensor, nn.Parameter)]
    return sum({one.untyped_storage().data_ptr(): one.untyped_storage().nbytes() for one in tensors}.values())


@pytest.mark.slow
@pytest.mark.parametrize("name", ["transformer-base", "gpt2-concatenated", "deepseek-like", "bert"])
def test_matrices_are_freed(name):
    (case,) = [case for case in cases() if case.name == name]
    model, before = case.build(torch.float32), tensor_bytes()
    matrices = [module.weight for module in model.modules() if isinstance(module, Linear)]
    if model.head.unembed is not None:
        matrices.append(model.head.unembed.weight)
    freed = sum(4 * weight.numel() for weight in matrices)
    del matrices
    quantise(model)
    added = sum(
        4 * len(module.bias) for module in model.modules() if isinstance(module, Int8) and module.bias is not None
    )
    assert before - freed <= tensor_bytes() <= before - freed + added


def test_an_int8_model_is_neither_saved_nor_moved(tmp_path):
    model = Case("gpt2", "gpt2", tuple(SHRINK["gpt2"])).build(torch.float32)
    quantise(model)
    with pytest.raises(RegardError, match="^an int8 model cannot be saved; load it in float32$"):
        save_model(model, tmp_path)
    assert not list(tmp_path.iterdir())
    with pytest.raises(RegardError, match="^an int8 model cannot be moved or cast; load it again"):
        model.double()


def test_a_torch_without_fbgemm(monkeypatch):
    monkeypatch.setattr(quantise_module, "ENGINE", "ruy")
    with pytest.raises(RegardError, match=r"^int8 needs an x86 processor with AVX2, and a torch .*; use --precision f"):
        quantise(Case("gpt2", "gpt2", tuple(SHRINK["gpt2"])).build(torch.float32))
