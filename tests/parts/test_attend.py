"""Three kernels of the same function; and the tape of `watch`."""

import contextlib
import sys
import warnings
from threading import Event, Thread

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn.attention.flex_attention import create_block_mask
from torch.utils._python_dispatch import TorchDispatchMode

from regard.config import from_table
from regard.errors import RegardError
from regard.models import stack as stack_module
from regard.models.stack import StackConfig
from regard.parts.attend import Record, Terms, attend, explain, explicit, flex, fused, watch
from regard.parts.attention import AttentionConfig
from regard.parts.heads import LatentHeadsConfig, MultiHeadsConfig
from regard.parts.mask import Causal, Documents, Padding, Prefix, Window, padded_positions
from regard.parts.position import Alibi, Relative, RelativeBias, RopeConfig
from regard.parts.score import AdditiveConfig, Cosine, Dot, DotConfig
from regard.parts.state import State

attend_module = sys.modules["regard.parts.attend"]  # `regard.parts.attend` is the function


def random(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed + sum(shape)))


def close(found, expected):
    torch.testing.assert_close(found, expected, atol=1e-10, rtol=0)


def fill(module):
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype) / 2)
    return module


def reference(query, key, value, scale, cap=None, bias=None, allowed=None):
    """The definition with loops: weights and mixed values, both NumPy; `bias` and `allowed` are called per pair."""
    query, key, value = query.numpy(), key.numpy(), value.numpy()
    (B, H, T, _), (_, K, S, _) = query.shape, key.shape
    weights = np.zeros((B, H, T, S))
    for b, h, i in np.ndindex(B, H, T):
        seen = [j for j in range(S) if allowed is None or allowed(b, i, j)]
        scores = [scale * query[b, h, i] @ key[b, h * K // H, j] for j in seen]
        scores = [s if cap is None else cap * np.tanh(s / cap) for s in scores]
        scores = [s + (0 if bias is None else bias(h, b, i, j)) for s, j in zip(scores, seen, strict=True)]
        powers = np.exp(np.array(scores) - max(scores, default=0))
        weights[b, h, i, seen] = powers / powers.sum() if seen else []
    grouped = np.repeat(value, H // K, axis=1)
    return torch.tensor(weights @ grouped), torch.tensor(weights)


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


@st.composite
def random_terms(draw):
    """Draw sizes and terms: any mask, bias, cap, grouping, lengths."""
    B, K, groups = draw(st.integers(1, 2)), draw(st.integers(1, 2)), draw(st.integers(1, 3))
    T, S = draw(st.integers(1, 4)), draw(st.integers(1, 5))
    H = K * groups
    place = st.integers(-1, 6)
    q, k = (
        draw(
            st.none()
            | st.lists(st.lists(place, min_size=n, max_size=n), min_size=B, max_size=B).map(
                lambda rows: torch.tensor(rows, dtype=torch.long)
            )
        )
        for n in (T, S)
    )
    rules = [Causal(), Padding(), Window(draw(st.integers(1, 4)))]
    rules.append(Prefix(torch.tensor([draw(st.integers(0, 5)) for _ in range(B)])))
    long = max(T, S)
    rules.append(Documents(torch.tensor([[draw(st.integers(0, 1)) for _ in range(long)] for _ in range(B)])))
    mask = None
    for rule in draw(st.lists(st.sampled_from(rules), max_size=3)):
        mask = rule & mask
    position = draw(st.sampled_from([Relative(), Alibi(H).double(), fill(RelativeBias(H, 8, 6, True).double())]))
    score = draw(st.sampled_from([Dot(4), Dot(4, scale=1.0), Dot(4, cap=0.7)]))
    return (B, H, K, T, S), Terms(score, mask, position, q, k)


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


@pytest.fixture
def calls(monkeypatch):
    """Record which kernels run, and how the fused one is called."""
    noted = []
    for name in ("explicit", "fused", "flex"):
        kernel = getattr(attend_module, name)
        monkeypatch.setattr(
            attend_module, name, lambda *a, kernel=kernel, name=name: (noted.append(name), kernel(*a))[1]
        )
    inner = torch.nn.functional.scaled_dot_product_attention

    def torchs(query, key, value, mask, dropout, causal, **options):
        noted.append(("causal" if causal else "open", None if mask is None else tuple(mask.shape)))
        return inner(query, key, value, mask, dropout, causal, **options)

    monkeypatch.setattr(attend_module.F, "scaled_dot_product_attention", torchs)
    return noted


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


# --- watching --------------------------------------------------------------------------------------------------------


class Model(nn.Module):
    """Two attentions to itself and one to a memory."""

    def __init__(self, **options):
        super().__init__()
        self.layers = nn.ModuleList(AttentionConfig(MultiHeadsConfig(2), **options).build(4) for _ in range(2))
        self.cross = AttentionConfig(MultiHeadsConfig(2, 1)).build(4)
        fill(self.double())

    def forward(self, x, memory):
        for layer in self.layers:
            x = x + layer(x, mask=Causal())
        return x + self.cross(x, memory=memory)


x, memory = random(2, 3, 4), random(2, 5, 4)


def test_watch_records_what_was_computed():
    model = Model()
    expected = model(x, memory)
    with watch(model) as tape:
        close(model(x, memory), expected)
    assert list(tape) == ["layers.0", "layers.1", "cross"]
    first = model.layers[0].heads
    query, key, value = (
        linear(x).view(2, 3, 2, 2).transpose(1, 2).detach() for linear in (first.to_query, first.to_key, first.to_value)
    )
    mixed, weights = reference(query, key, value, 2**-0.5, allowed=lambda b, i, j: j <= i)
    (record,) = tape["layers.0"]
    close(record.weights, weights)
    close(record.query, query)
    close(record.key, key)
    close(record.value, value)
    close(record.mixed, mixed)
    assert tape.weights("cross").shape == (2, 2, 3, 5)
    close(tape.weights("cross").sum(-1), torch.ones(2, 2, 3, dtype=torch.float64))


def test_a_tape_shows_itself_in_a_few_lines():
    model = nn.ModuleDict({f"<{number}>": AttentionConfig(MultiHeadsConfig(2)).build(8) for number in range(9)})
    x = torch.randn(3, 5, 8)
    with watch(model) as tape:
        for attention in [*model.values(), model["<0>"]]:
            attention(x)
    assert repr(tape).startswith("<tape of 9 attentions and 10 calls: <0>, <1>,")
    assert len(repr(tape)) < 200
    assert (
        repr(tape["<0>"])
        == "[<a call: 3 rows, 2 heads, 5 queries, 5 keys>, <a call: 3 rows, 2 heads, 5 queries, 5 keys>]"
    )
    shown = tape._repr_html_()
    assert shown.count("<tr>") == 10
    assert "&lt;0&gt;" in shown
    assert "<0>" not in shown
    assert len(shown) < 5000


def test_watch_only_some_and_the_kernels_stay_as_they_are(calls):
    model = Model()
    with watch(model, "layers.*") as tape:
        model(x, memory)
    assert list(tape) == ["layers.0", "layers.1"]
    assert [call for call in calls if isinstance(call, str)] == ["fused", "fused", "fused"]


def test_nothing_of_the_size_of_the_weights_exists_until_it_is_asked_for():
    attention = AttentionConfig(MultiHeadsConfig(2)).build(4).double()
    with watch(attention) as tape, torch.no_grad():
        attention(random(1, 500, 4), mask=Causal())
    (record,) = tape[""]
    with Largest() as largest:
        explained = record.explain(1)
    assert largest.numel == 500 * 500  # and not that of two heads
    assert "weights" not in vars(record)
    close(explained.weights[:, 0], record.weights[:, 1])


class Largest(TorchDispatchMode):
    """Record the size of the largest tensor that is created."""

    numel = 0

    def __torch_dispatch__(self, function, types, arguments=(), named=None):
        out = function(*arguments, **(named or {}))
        if isinstance(out, torch.Tensor):
            self.numel = max(self.numel, out.numel())
        return out


@settings(max_examples=60)
@given(random_terms())
def test_a_head_is_explained_alone_as_with_the_others(case):
    (B, H, K, T, S), terms = case
    query, key, value = random(B, H, T, 4), random(B, K, S, 4), random(B, K, S, 3)
    record = Record(query, key, value, explicit(query, key, value, terms), terms)
    together = explain(query, key, terms)
    for head in range(H):
        alone = record.explain(head)
        close(alone.scores[:, 0], together.scores[:, head])
        close(alone.weights[:, 0], record.weights[:, head])
        close(alone.weights @ record.value_of(head), record.mixed[:, head, None])
        if together.bias is not None:
            close(alone.bias[:, 0], together.bias[:, head])


def test_watch_every_call():
    model = Model()
    with watch(model, "cross") as tape:
        model(x, memory)
        model(x[:, :2], memory)
    assert [record.weights.shape[2] for record in tape["cross"]] == [3, 2]
    assert tape.weights("cross").shape == (2, 2, 5, 5)


@pytest.mark.parametrize("window", [None, 2])
@pytest.mark.parametrize("capacity", [None, 8])
def test_the_steps_of_a_decoder_join_to_one_matrix(window, capacity):
    """With any cache, also a ring: column j of the matrix is position j, as without a cache."""
    attention = fill(AttentionConfig(MultiHeadsConfig(2), position=RopeConfig(), window=window).build(4).double())
    whole = random(2, 6, 4)
    with watch(attention) as tape:
        attention(whole, mask=Causal())
    expected = tape.weights("")
    state = State([{"mixer": attention.start(2, capacity)}], torch.zeros(2, dtype=torch.long))
    with watch(attention) as tape, torch.no_grad():
        for part in whole.split([3, 1, 1, 1], 1):
            step = state.advance(torch.zeros(part.shape[:2], dtype=torch.long))
            attention(part, state=step.layers[0]["mixer"])
    found = tape.weights("")
    assert len(tape[""]) == 4
    close(found[..., :6], expected)
    assert not found[..., 6:].any()


def test_a_record_does_not_change_when_the_cache_does():
    attention = fill(AttentionConfig(MultiHeadsConfig(2), window=2).build(4).double())
    state = State([{"mixer": attention.start(1)}], torch.zeros(1, dtype=torch.long))
    with watch(attention) as tape, torch.no_grad():
        for t in range(4):
            step = state.advance(torch.zeros(1, 1, dtype=torch.long))
            attention(random(1, 1, 4, seed=t), state=step.layers[0]["mixer"])
            if t == 1:
                before = tape[""][1].key.clone(), tape[""][1].value.clone()
    assert torch.equal(tape[""][1].key, before[0])
    assert torch.equal(tape[""][1].value, before[1])


def test_nothing_to_watch():
    with pytest.raises(RegardError, match=r"nothing to watch.*no attention"), watch(nn.Linear(2, 2)):
        pass


def test_no_attention_has_that_name():
    with pytest.raises(RegardError, match=r"'decoder\.\*'.*layers\.0, layers\.1, cross"), watch(Model(), "decoder.*"):
        pass


def test_nothing_was_recorded():
    with pytest.raises(RegardError, match=r"nothing was recorded: call the model inside"), watch(Model()):
        pass


def test_an_error_inside_passes_and_the_watch_ends(calls):
    model = Model()
    with pytest.raises(ZeroDivisionError), watch(model) as tape:
        raise ZeroDivisionError
    model(x, memory)
    assert "explicit" not in calls
    assert not any(tape.values())


def test_a_watch_sees_the_calls_of_its_own_thread_only():
    model = Model()
    with watch(model) as tape:
        thread = Thread(target=model, args=(x, memory))
        thread.start()
        thread.join()
        assert not any(tape.values())
        model(x, memory)
    assert [len(calls) for calls in tape.values()] == [1, 1, 1]


def test_a_watch_inside_a_watch_hides_nothing_from_the_outer_one(calls):
    model = Model()
    with watch(model) as outer:
        with watch(model, "cross") as inner:
            model(x, memory)
        model(x, memory)
    assert {name: len(records) for name, records in outer.items()} == {"layers.0": 2, "layers.1": 2, "cross": 2}
    assert {name: len(records) for name, records in inner.items()} == {"cross": 1}
    calls.clear()
    model(x, memory)
    assert "explicit" not in calls


def test_watch_whatever_the_score():
    attention = fill(AttentionConfig(MultiHeadsConfig(2), score=AdditiveConfig()).build(4).double())
    with watch(attention) as tape:
        attention(x)
    close(tape.weights("").sum(-1), torch.ones(2, 2, 3, dtype=torch.float64))


@pytest.mark.compile
def test_watching_in_two_threads_leaves_compiling_on():
    torch.compiler.reset()
    model, seen = Model(), []
    started, first_ended = Event(), Event()

    def watch_longer() -> None:
        with watch(model):
            model(x, memory)
            started.set()
            first_ended.wait()

    thread = Thread(target=watch_longer)
    with watch(model):
        thread.start()
        started.wait()
        model(x, memory)
    first_ended.set()
    thread.join()
    torch.compile(model, backend=lambda graph, inputs: seen.append(graph) or graph.forward)(x, memory)
    assert seen != []


@pytest.mark.compile
@pytest.mark.parametrize("part", ["whole", "layer"])
def test_watch_a_compiled_model(part):
    torch.compiler.reset()
    model = Model()
    expected = model(x, memory)
    with watch(model) as plain:
        model(x, memory)
    seen = []

    def backend(graph, inputs):
        seen.append(graph)
        return graph.forward

    if part == "whole":
        compiled = torch.compile(model, backend=backend)
    else:
        model.layers[0] = torch.compile(model.layers[0], backend=backend)
        compiled = model
    with watch(compiled) as tape:
        close(compiled(x, memory), expected)
    assert seen == []  # it ran uncompiled
    assert list(tape) == ["layers.0", "layers.1", "cross"]
    for name in tape:
        close(tape.weights(name), plain.weights(name))
    close(compiled(x, memory), expected)
    assert seen != []


@pytest.mark.compile
def test_watch_a_compiled_attention():
    torch.compiler.reset()
    attention = torch.compile(fill(AttentionConfig(MultiHeadsConfig(2)).build(4).double()), backend="eager")
    with watch(attention) as tape:
        attention(x)
    assert list(tape) == [""]


# --- blocks that layers share ----------------------------------------------------------------------------------------


@pytest.fixture
def blocks_made(monkeypatch):
    """Use Flex on the CPU, and record for how many tokens blocks are computed."""
    made = []

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
