"""Weights laid out for decoding compute the same, under the same names."""

from copy import deepcopy

import pytest
import torch
import torch.nn.functional as F

import regard
from regard.decode import layout
from regard.decode.engine import eager, in_use
from regard.decode.layout import (
    LEAST_PACKED,
    USES,
    USES_BY_ONEDNN,
    PackedProduct,
    join,
    lay_out,
    pack_heads,
    shared_product,
    stored_by_columns,
    widen_head,
)
from regard.decode.quantise import quantise
from regard.models.store import read_model, save_model
from regard.parts.attention import AttentionConfig
from regard.parts.heads import MultiHeads, MultiHeadsConfig
from regard.parts.mask import Causal
from regard.parts.norm import RMSNormConfig
from regard.parts.position import RopeConfig, identity

from ..laws.cases import SHRINK
from .test_static import case, given, run


def random(*shape):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(sum(shape)))


def close(found, expected):
    torch.testing.assert_close(found, expected, atol=1e-10, rtol=0)


def fill(module):
    """Set every parameter to values that it does not start with, norms and biases included."""
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype) / 2 + 0.2)
    return module


@pytest.mark.parametrize("on_cpu", [True, False])
@pytest.mark.parametrize("bias", ["no", "all"])
def test_packed_heads_compute_the_same(on_cpu, bias):
    config = MultiHeadsConfig(4, 2, bias=bias, qk_norm=RMSNormConfig())
    attention, x = fill(AttentionConfig(config, position=RopeConfig()).build(8).double()), random(2, 5, 8)
    expected = attention(x, mask=Causal())
    names = {name: value.clone() for name, value in attention.state_dict().items()}
    pack_heads(attention.heads, on_cpu)
    with in_use(attention):
        close(attention(x, mask=Causal()), expected)
        close(attention(x, memory=x), attention(x))  # a memory takes the same matrices one by one
    for name, value in attention.state_dict().items():
        assert torch.equal(value, names.pop(name))
    assert not names


def test_packed_parameters_are_the_packed_matrix():
    """Changing them changes what is computed, and moving the model leaves no stale copy behind."""
    heads, x = fill(MultiHeads(8, 2).double()), random(1, 3, 8)
    pack_heads(heads, on_cpu=True)
    with in_use(heads):
        heads.to_value.weight.mul_(2)
        _, (_, value) = heads.project(x, identity)
        close(value, heads.split(x @ heads.to_value.weight.t()))
    assert heads.float().product is None
    assert heads.project(x.float(), identity)[0].dtype == torch.float32


@pytest.mark.parametrize("name", ["gpt2", "transformer-base", "llama-like", "rnn-attention"])
def test_laying_out_changes_no_result(name, tmp_path):
    model = case(name).build()
    with in_use(model):
        expected = run(eager(model), given(model), 2)
    names = {key: value.clone() for key, value in model.state_dict().items()}
    lay_out(model)
    with in_use(model):
        for found, wanted in zip(run(eager(model), given(model), 2), expected, strict=True):
            torch.testing.assert_close(found, wanted, rtol=0, atol=1e-10)
    save_model(model, tmp_path)
    for key, value in read_model(tmp_path).state_dict().items():
        assert torch.equal(value, names[key])


def test_a_widened_head_scores_the_same():
    model = case("gpt2").build()
    x = torch.randn(2, model.embed.tokens.table.weight.shape[1], dtype=torch.float64)
    expected = model.logits(x)
    widen_head(model, model.vocabulary_head(), multiple=64)
    assert model.head.product.args[0].shape[0] == 64
    with in_use(model):
        torch.testing.assert_close(model.logits(x), expected, rtol=0, atol=1e-12)
        model.embed.tokens.table.weight.data.mul_(2)
        torch.testing.assert_close(model.logits(x), 2 * expected, rtol=0, atol=1e-12)
    assert model.float().head.product is None


@pytest.mark.parametrize("form", ["packed", "widened", "int8"])
@torch.no_grad()
def test_the_bias_of_the_vocabulary_is_added_once(form):
    model = regard.build("gpt2", *SHRINK["gpt2"], "model.head.bias=true", seed=0)
    model.head.bias.copy_(torch.linspace(-3, 3, len(model.head.bias)))
    x = torch.randn(2, 1, 16, generator=torch.Generator().manual_seed(0))
    expected = model.logits(x)
    if form == "widened":
        widen_head(model, model.vocabulary_head(), multiple=64)
    else:
        (lay_out if form == "packed" else quantise)(model)
    with in_use(model):
        assert model.head.current_product() is not None
        torch.testing.assert_close(model.logits(x), expected, rtol=0, atol=0.05 if form == "int8" else 1e-5)


REPLACED = {
    "a query matrix": "stack.layers.0.mixer.heads.to_query.weight",
    "a value bias": "stack.layers.0.mixer.heads.to_value.bias",
    "a feed-forward": "stack.layers.1.feedforward.up.weight",
    "the vocabulary": "embed.tokens.table.weight",
}


@pytest.mark.parametrize("name", REPLACED.values(), ids=REPLACED.keys())
@pytest.mark.parametrize("how", ["parameter", "data", "in place", "functional call", "in a copy"])
@torch.no_grad()
def test_a_laid_out_model_computes_with_the_weights_that_it_has(how, name):
    model, plain = (fill(regard.build("gpt2", *SHRINK["gpt2"], seed=0).eval()) for _ in range(2))
    lay_out(model)
    tokens = torch.tensor([[3, 1, 4, 1, 5]])
    before = model(tokens)
    path, _, leaf = name.rpartition(".")
    other = -1.5 * plain.get_parameter(name)
    plain.get_parameter(name).copy_(other)
    if how == "functional call":
        found = torch.func.functional_call(model, {name: other}, (tokens,))
        torch.testing.assert_close(model(tokens), before)
    else:
        model = deepcopy(model) if how == "in a copy" else model
        match how:
            case "parameter":
                setattr(model.get_submodule(path), leaf, torch.nn.Parameter(other))
            case "data":
                model.get_parameter(name).data = other
            case _:
                model.get_parameter(name).copy_(other)
        found = model(tokens)
        with in_use(model):
            torch.testing.assert_close(model(tokens), plain(tokens))
    torch.testing.assert_close(found, plain(tokens))


def test_packed_products_are_used_while_a_model_is_in_use_unless_they_are_stale():
    model, other = (fill(regard.build("gpt2", *SHRINK["gpt2"], seed=0).eval()) for _ in range(2))
    parts = [model.stack.layers[0].mixer.heads, model.stack.layers[1].feedforward.up, model.head]
    for each in (model, other):
        lay_out(each)
    assert [part.current_product() for part in parts] == [None, None, None]
    with in_use(model):
        with in_use(other):
            assert other.head.current_product() is other.head.product
        assert other.head.current_product() is None
        assert [part.current_product() for part in parts] == [part.product for part in parts]
    parts[0].to_query.bias = torch.nn.Parameter(torch.zeros_like(parts[0].to_query.bias))
    with in_use(model):
        assert [part.current_product() for part in parts] == [None, *(part.product for part in parts[1:])]
    assert [part.current_product() for part in parts] == [None, None, None]


def test_a_laid_out_model_has_all_gradients():
    model, plain = (fill(regard.build("gpt2", *SHRINK["gpt2"], seed=0).eval()) for _ in range(2))
    lay_out(model)
    for one in (model, plain):
        one(torch.tensor([[3, 1, 4, 1, 5]])).square().sum().backward()
    for name, parameter in plain.named_parameters():
        torch.testing.assert_close(model.get_parameter(name).grad, parameter.grad)


@torch.no_grad()
def test_hooks_and_wrappers_of_queries_keys_and_values_are_called():
    model = fill(regard.build("gpt2", *SHRINK["gpt2"], seed=0).eval())
    lay_out(model)
    tokens, seen = torch.tensor([[3, 1, 4, 1, 5]]), []
    before, heads = model(tokens), model.stack.layers[0].mixer.heads
    with in_use(model):
        hook = heads.to_key.register_forward_hook(lambda module, inputs, output: seen.append(output))
        torch.testing.assert_close(model(tokens), before)
    assert len(seen) == 1
    hook.remove()
    heads.to_value = torch.nn.Sequential(heads.to_value, torch.nn.Identity())
    with in_use(model):
        torch.testing.assert_close(model(tokens), before)
    heads.to_value = torch.nn.Sequential(*heads.to_value, torch.nn.Tanh())
    with in_use(model):
        assert not torch.allclose(model(tokens), before)


@pytest.mark.parametrize("faster", [True, False])
@pytest.mark.parametrize("biased", [True, False])
@torch.no_grad()
def test_large_matrices_are_packed_after_some_products(biased: bool, faster: bool, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(layout, "is_onednn_faster", lambda: faster)
    weight = torch.nn.Parameter(torch.randn(1024, LEAST_PACKED // 1024, generator=torch.Generator().manual_seed(0)))
    bias = torch.randn(1024) if biased else None
    product, x = PackedProduct(weight, bias, (weight,)), torch.randn(3, 1, weight.shape[1])

    def compare(rows):
        expected = torch.nn.functional.linear(rows.double(), weight.double(), None if bias is None else bias.double())
        torch.testing.assert_close(product(rows).double(), expected, atol=1e-3, rtol=0)

    uses = USES_BY_ONEDNN if faster else USES
    for _ in range(uses - 1):
        compare(x[:1])
    assert product.packed is None
    compare(x[:1])
    assert (product.packed is not None) == (faster and product.suits)  # elsewhere a single row is not faster
    for _ in range(uses):
        compare(x)
    assert (product.packed is not None) == product.suits == torch.backends.mkldnn.is_available()
    weight.mul_(2)  # packed again
    compare(x)
    weight.data = -weight.data
    compare(x)
    with torch.enable_grad():
        assert product(x).requires_grad


@pytest.mark.parametrize("faster", [True, False])
@torch.no_grad()
def test_large_matrices_are_copied_only_where_their_products_use_them_by_columns(
    faster: bool, monkeypatch: pytest.MonkeyPatch
):
    """Nor is anything copied that a file stores by columns, and queries, keys and values as one matrix, as GPT-2's."""
    monkeypatch.setattr(layout, "is_onednn_faster", lambda: faster)
    changes = ("model.dim=512", "model.layers.block.feedforward.hidden=512", "model.vocabulary=512", "model.depth=1")
    model = regard.build("gpt2", *SHRINK["gpt2"], *changes, seed=0)
    layer = model.stack.layers[0]
    parts = [layer.mixer.heads.to_query, layer.mixer.heads.to_key, layer.mixer.heads.to_value]
    together = stored_by_columns(torch.cat([each.weight.data for each in parts]))
    for number, each in enumerate(parts):
        each.weight.data = together[512 * number : 512 * (number + 1)]
    layer.feedforward.up.weight.data = stored_by_columns(layer.feedforward.up.weight.data)
    by_columns = {"query": parts[0].weight, "value": parts[2].weight, "up": layer.feedforward.up.weight}
    by_rows = {"down": layer.feedforward.down.weight, "table": model.embed.tokens.table.weight}
    before = {name: (weight, weight.data_ptr()) for name, weight in (by_columns | by_rows).items()}
    lay_out(model)
    copied = {name for name, (weight, address) in before.items() if weight.data_ptr() != address}
    assert copied == (set() if faster and torch.backends.mkldnn.is_available() else set(by_rows))
    assert all(weight.stride(0) == 1 for name, (weight, _) in before.items() if name in copied | set(by_columns))


def test_tensors_that_follow_each_other_in_memory_are_joined_without_a_copy():
    rows, columns = torch.randn(6, 4), torch.randn(4, 6).t()
    for whole in (rows, columns, rows[:, 0]):
        first, second, third = whole.split((3, 2, 1))
        assert join([first, second, third]).data_ptr() == whole.data_ptr()
        assert torch.equal(join([first, second, third]), whole)
        for parts in ([first, third], [second, first], [first, second.clone()], [first, first]):
            assert torch.equal(join(parts), torch.cat(parts))
            assert join(parts).data_ptr() != first.data_ptr()


def test_small_matrices_and_other_precisions_are_not_packed():
    small, precise = torch.zeros(8, 8), torch.zeros(1024, LEAST_PACKED // 1024, dtype=torch.float64)
    assert not PackedProduct(small, None, (small,)).suits
    assert not PackedProduct(precise, None, (precise,)).suits


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("bias", [False, True])
def test_threads_share_the_product_of_a_single_row(threads: int, bias: bool) -> None:
    """Its numbers are those of one product, also if the outputs cannot be shared evenly, and for a slice."""
    weight = stored_by_columns(torch.randn(70, 16))[3:67]
    x, b = torch.randn(1, 1, 16), torch.randn(64) if bias else None
    torch.testing.assert_close(shared_product(x, weight, b, threads), F.linear(x, weight, b))
