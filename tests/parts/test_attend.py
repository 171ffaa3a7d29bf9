"""Three kernels of the same function."""

import contextlib
import sys
import warnings

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.attention.flex_attention import create_block_mask
from torch.utils._python_dispatch import TorchDispatchMode

from regard.config import from_table
from regard.models import stack as stack_module
from regard.models.stack import StackConfig
from regard.parts.attend import Terms, attend, explain, explicit, flex, fused
from regard.parts.attention import AttentionConfig
from regard.parts.heads import LatentHeadsConfig, MultiHeadsConfig
from regard.parts.mask import Causal, Padding, Window, padded_positions
from regard.parts.position import Alibi, Relative, RelativeBias, RopeConfig
from regard.parts.score import AdditiveConfig, Cosine, Dot, DotConfig
from regard.parts.watch import watch

from .attended import close, fill, random, random_terms, reference

attend_module = sys.modules["regard.parts.attend"]  # `regard.parts.attend` is the function


@contextlib.contextmanager
def quiet():
    """Silence Flex, which warns that it is not compiled; it evaluates the rules all the same."""
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


# --- the same function -----------------------------------------------------------------------------------------------


def test_against_the_definition():
    query, key, value = random(2, 4, 3, 5), random(2, 2, 6, 5), random(2, 2, 6, 7)
    q, k = torch.tensor([[3, 4, 5], [0, 1, -1]]), torch.tensor([[0, 1, 2, 3, 4, 5], [0, 1, 2, -1, -1, -1]])
    alibi = Alibi(4).double()
    terms = Terms(Dot(5, cap=0.8), Causal() & Padding(), alibi, q, k)
    mixed, weights = reference(
        query,
        key,
        value,
        scale=5**-0.5,
        cap=0.8,
        bias=lambda h, b, i, j: -(2.0 ** (-2 * (h + 1))) * abs(int(q[b, i] - k[b, j])),
        allowed=lambda b, i, j: 0 <= k[b, j] <= q[b, i],
    )
    close(explicit(query, key, value, terms), mixed)
    close(explain(query, key, terms).weights, weights)


@settings(max_examples=60)
@given(random_terms(), st.sampled_from([4, 3]))
def test_explicit_and_fused_agree(case, width):
    (B, H, K, T, S), terms = case
    query, key, value = random(B, H, T, 4), random(B, K, S, 4), random(B, K, S, width)
    mixed = explicit(query, key, value, terms)
    total = explain(query, key, terms).weights.sum(-1)
    close(total, total.round())  # each row sums to 1, or to 0 where all is hidden
    if terms.score.cap is None:
        close(fused(query, key, value, terms), mixed)
    close(attend(query, key, value, terms), mixed)


@pytest.mark.compile
@settings(max_examples=30)
@given(random_terms(), st.sampled_from([4, 3]))
def test_explicit_and_flex_agree(case, width):
    (B, H, K, T, S), terms = case
    query, key, value = random(B, H, T, 4), random(B, K, S, 4), random(B, K, S, width)
    with quiet():
        close(flex(query, key, value, terms), explicit(query, key, value, terms))


def gradients(kernel, terms, *inputs):
    inputs = [x.clone().requires_grad_() for x in inputs]
    out = kernel(*inputs, terms)
    parameters = list(terms.position.parameters())
    return torch.autograd.grad((out * random(*out.shape, seed=3)).sum(), [*inputs, *parameters])


@pytest.mark.parametrize("position", [Relative(), Alibi(4).double(), fill(RelativeBias(4, 8, 6, True).double())])
@pytest.mark.parametrize("mask", [None, Causal(), Causal() & Padding()])
def test_gradients_agree(position, mask):
    inputs = random(2, 4, 5, 4), random(2, 2, 5, 4), random(2, 2, 5, 4)
    places = padded_positions(torch.tensor([5, 3]), 5) if mask is not None and len(mask.rules()) > 1 else None
    terms = Terms(Dot(4), mask, position, places, places)
    for one, two in zip(gradients(explicit, terms, *inputs), gradients(fused, terms, *inputs), strict=True):
        close(one, two)
        assert one.abs().max() > 0


# --- who sees nothing ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kernel", [explicit, fused, pytest.param(flex, marks=pytest.mark.compile)])
@pytest.mark.parametrize("position", [Relative(), Alibi(2).double()])
@pytest.mark.parametrize("mask", [Padding(), Causal() & Padding()])
def test_a_query_that_sees_nothing_gets_zeros(kernel, position, mask):
    query, key, value = random(2, 2, 3, 4), random(2, 2, 3, 4), random(2, 2, 3, 4)
    places = torch.tensor([[0, 1, 2], [-1, -1, -1]])
    terms = Terms(Dot(4), mask, position, places, places)
    with quiet():
        out = kernel(query, key, value, terms)
    if kernel is explicit:
        assert not explain(query, key, terms).weights[1].any()
    assert torch.equal(out[1], torch.zeros_like(out[1]))
    assert out[0].abs().min() > 0
    if kernel is not flex:
        for gradient in gradients(kernel, terms, query, key, value):
            assert gradient.isfinite().all()
            assert torch.equal(gradient[1], torch.zeros_like(gradient[1]))


@pytest.mark.parametrize("heads", [MultiHeadsConfig(2), LatentHeadsConfig(2, 3, 2, 2, 3)])
@pytest.mark.parametrize("cap", [None, 2.0])
def test_who_sees_nothing_in_a_whole_attention(heads, cap):
    attention = fill(AttentionConfig(heads, score=DotConfig(cap=cap)).build(4).double())
    x = random(2, 3, 4).requires_grad_()
    places = torch.tensor([[0, 1, 2], [-1, -1, -1]])
    out = attention(x, mask=Causal() & Padding(), positions=places)
    assert torch.equal(out[1], torch.zeros_like(out[1]))
    out.square().sum().backward()
    assert all(parameter.grad.isfinite().all() for parameter in attention.parameters())
    assert torch.equal(x.grad[1], torch.zeros_like(x.grad[1]))
    assert x.grad[0].isfinite().all()
    with watch(attention) as tape:
        assert torch.equal(attention(x, mask=Causal() & Padding(), positions=places)[1], torch.zeros_like(out[1]))
    assert torch.equal(tape.weights("")[1], torch.zeros(2, 3, 3, dtype=torch.float64))


def test_a_hidden_key_has_no_weight_however_large_its_score():
    query, key, value = random(1, 1, 2, 4), random(1, 1, 2, 4), random(1, 1, 2, 4)
    loud = torch.stack((key[:, :, 0], 1e6 * query[:, :, 0]), 2), torch.stack((value[:, :, 0], 1e6 * value[:, :, 1]), 2)
    terms = Terms(Dot(4), Causal())
    close(explicit(query, *loud, terms)[:, :, 0], value[:, :, 0])
    close(fused(query, *loud, terms)[:, :, 0], value[:, :, 0])


def test_half_precision_softmax_is_computed_in_float32():
    query, key, value = (random(1, 1, 3, 4, seed=s).to(torch.bfloat16) for s in range(3))
    score = Dot(4, scale=3.0)
    weights = explain(query, key, Terms(score)).weights
    assert explicit(query, key, value, Terms(score)).dtype == weights.dtype == torch.bfloat16
    assert torch.equal(weights, score(query, key).float().softmax(-1).to(torch.bfloat16))


# --- dropout ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cap", [None, 5.0])
def test_dropout_only_in_training(cap):
    heads = MultiHeadsConfig(2)
    dropping = fill(AttentionConfig(heads, score=DotConfig(cap=cap), dropout=0.5).build(4).double())
    plain = AttentionConfig(heads, score=DotConfig(cap=cap)).build(4).double()
    plain.load_state_dict(dropping.state_dict())
    x = random(2, 6, 4)
    assert (dropping.train()(x) - plain(x)).abs().max() > 1e-3
    assert torch.equal(dropping.eval()(x), plain.eval()(x))


def test_dropout_is_not_in_the_explained_weights():
    query, key, value = random(1, 1, 4, 4), random(1, 1, 50, 4), torch.eye(50, dtype=torch.float64)[None, None]
    torch.manual_seed(0)
    terms = Terms(Dot(4), dropout=0.5)
    mixed, weights = explicit(query, key, value, terms), explain(query, key, terms).weights
    close(weights.sum(-1), torch.ones(1, 1, 4, dtype=torch.float64))
    kept = mixed != 0
    close(mixed[kept], 2 * weights[kept])  # the mixed values show what was dropped
    assert 0.2 < kept.double().mean() < 0.8


# --- which kernel ----------------------------------------------------------------------------------------------------


places = padded_positions(torch.tensor([4, 2]), 4)
natural = torch.arange(4).expand(2, -1)


@pytest.mark.parametrize(
    ("terms", "expected"),
    [
        (Terms(Dot(4)), ["fused", ("open", None)]),
        (Terms(Cosine()), ["fused", ("open", None)]),
        (Terms(Dot(4), Causal()), ["fused", ("causal", None)]),
        (Terms(Dot(4), Causal(), Relative()), ["fused", ("causal", None)]),
        (Terms(Dot(4), Padding(), Relative(), places, places), ["fused", ("open", (2, 1, 1, 4))]),
        (Terms(Dot(4), Causal(), Relative(), natural, natural), ["fused", ("open", (2, 1, 4, 4))]),
        (Terms(Dot(4), Causal() & Padding(), Relative(), places, places), ["fused", ("open", (2, 1, 4, 4))]),
        (Terms(Dot(4), Causal() & Window(2)), ["fused", ("open", (1, 1, 4, 4))]),
        (Terms(Dot(4), Causal(), Alibi(2)), ["fused", ("open", (1, 2, 4, 4))]),
        (Terms(Dot(4), None, Alibi(2)), ["fused", ("open", (1, 2, 4, 4))]),
        (Terms(Dot(4, cap=1.0)), ["explicit"]),
        (Terms(Dot(4, cap=1.0), Causal()), ["explicit"]),
        (Terms(AdditiveConfig().build(4, 4).double(), Causal()), ["explicit"]),
    ],
)
def test_the_data_choose_the_kernel(calls, terms, expected):
    attend(random(2, 2, 4, 4), random(2, 2, 4, 4), random(2, 2, 4, 4), terms)
    assert calls == expected


def test_causal_at_unequal_lengths_needs_an_explicit_mask(calls):
    """The kernel's own causal mask aligns the first query with the first key, which is wrong with a cache."""
    query, key = random(1, 2, 2, 4), random(1, 2, 4, 4)
    attend(query, key, key, Terms(Dot(4), Causal()))
    assert calls == ["fused", ("open", (1, 1, 2, 4))]


class OnAccelerator(torch.Tensor):
    """A tensor that claims to be on CUDA."""

    is_cuda = True


@pytest.mark.parametrize(
    ("terms", "queries", "expected"),
    [
        (Terms(Dot(16), Causal() & Window(2)), 4, "flex"),
        (Terms(Dot(16), Causal(), Alibi(2)), 4, "flex"),
        (Terms(Dot(16, cap=1.0)), 4, "flex"),
        (Terms(Dot(8), Causal() & Window(2)), 4, "fused"),  # too narrow for Flex
        (Terms(Dot(16), Causal()), 4, "fused"),
        (Terms(Dot(16)), 4, "fused"),
        (Terms(Dot(16), Padding()), 4, "fused"),
        (Terms(Dot(16), Causal() & Window(2), dropout=0.1), 4, "fused"),
        (Terms(Dot(16, cap=1.0), dropout=0.1), 4, "explicit"),
        (Terms(Dot(16), Causal() & Padding()), 1, "fused"),
        (Terms(AdditiveConfig().build(16, 16).double(), Window(2)), 4, "explicit"),
        (Terms(Dot(16), Causal() & Window(2)), 3, "fused"),  # too short for Flex
    ],
)
def test_compiled_on_an_accelerator_flex_takes_what_fused_would_need_a_matrix_for(
    monkeypatch, terms, queries, expected
):
    noted = []
    for name in ("explicit", "fused", "flex"):
        kernel = explicit if name == "flex" else getattr(attend_module, name)

        def note(*inputs, kernel=kernel, name=name):
            noted.append(name)
            return kernel(*inputs)

        monkeypatch.setattr(attend_module, name, note)
    width = round(terms.score.scale**-2) if terms.score.is_dot else 16
    monkeypatch.setattr(attend_module, "LONG", 4)
    keys = 3 if queries == 3 else 4
    query, key, value = (random(2, 2, rows, width) for rows in (queries, keys, keys))
    query = query.as_subclass(OnAccelerator)
    with monkeypatch.context() as patch:
        patch.setattr(torch.compiler, "is_compiling", lambda: True)
        attend(query, key, value, terms)
        assert noted == [expected]
    noted.clear()
    attend(query, key, value, terms)
    assert "flex" not in noted  # not compiled


class Sizes(TorchDispatchMode):
    """Collect the shapes of all that is computed."""

    def __init__(self):
        super().__init__()
        self.shapes = set()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        out = function(*args, **(kwargs or {}))
        for item in out if isinstance(out, tuple | list) else [out]:
            if isinstance(item, torch.Tensor):
                self.shapes.add(tuple(item.shape))
        return out


def pairs(attention, x, **terms):
    """Return whether any tensor was as large as queries x keys."""
    T = x.shape[1]
    with Sizes() as sizes:
        attention(x, **terms)
    assert any(T in shape for shape in sizes.shapes)
    return any(shape.count(T) > 1 for shape in sizes.shapes)


@pytest.mark.parametrize("train", [True, False])
def test_no_matrix_of_pairs_on_the_plain_paths(train):
    attention = AttentionConfig(MultiHeadsConfig(2), position=RopeConfig()).build(8)
    x = torch.randn(2, 37, 8, requires_grad=train)
    lengths = padded_positions(torch.tensor([37, 20]), 37)
    assert not pairs(attention, x, mask=Causal())
    assert not pairs(attention, x)
    assert not pairs(attention, x, mask=Padding(), positions=lengths)
    assert pairs(attention, x, mask=Causal() & Padding(), positions=lengths)  # so the test would notice one


# --- blocks that layers share ----------------------------------------------------------------------------------------


@pytest.fixture
def blocks_made(monkeypatch):
    """Use Flex on the CPU, and record for how many tokens blocks are computed."""
    made = []
    torch._dynamo.reset()  # what other tests compiled was for other rules

    def note(rule, rows, heads, queries, keys, device):
        made.append(queries)
        return create_block_mask(rule, rows, heads, queries, keys, device)

    monkeypatch.setattr(attend_module, "LONG", 8)
    monkeypatch.setattr(attend_module, "_make_blocks", note)
    monkeypatch.setattr(attend_module, "is_compiled", lambda: True)
    monkeypatch.setattr(stack_module, "is_compiled", lambda: True)
    monkeypatch.setattr(attend_module, "_suits_flex", lambda *given: True)
    return made


@pytest.mark.compile
@pytest.mark.parametrize(("pattern", "count"), [(["4*near"], 1), (["near", "far"], 2), (["near", "all"], 1)])
def test_layers_with_the_same_mask_share_its_blocks(blocks_made, monkeypatch, pattern, count):
    """Plainly causal layers need none; blocks of other patterns are their own."""
    mixers = {"near": {"window": 3}, "far": {"window": 5}, "all": {}}
    heads = {"kind": "multi", "heads": 2}
    layers = {
        name: {"mixer": {"kind": "attention", "heads": heads, **mixers[name]}}
        for name in mixers
        if any(item.endswith(name) for item in pattern)
    }
    stack = from_table({"depth": 4, "layers": layers, "pattern": pattern}, StackConfig).build_stack(32).eval()
    x = torch.randn(2, 8, 32)
    with torch.no_grad(), quiet():
        found = stack(x.as_subclass(OnAccelerator), mask=Causal()).as_subclass(torch.Tensor)
        assert blocks_made == [8] * count
        monkeypatch.setattr(attend_module, "_suits_flex", lambda *given: False)
        torch.testing.assert_close(found, stack(x, mask=Causal()), rtol=1e-5, atol=1e-5)
