"""The tape of `watch`: it records what was computed, and changes nothing."""

from threading import Event, Thread

import pytest
import torch
from hypothesis import given, settings
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from regard.errors import RegardError
from regard.parts.attend import explain, explicit
from regard.parts.attention import AttentionConfig
from regard.parts.heads import MultiHeadsConfig
from regard.parts.mask import Causal
from regard.parts.position import RopeConfig
from regard.parts.score import AdditiveConfig
from regard.parts.state import State
from regard.parts.watch import Record, watch

from .attended import close, fill, random, random_terms, reference


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
        close(alone.weights @ value[:, head * K // H, None], record.mixed[:, head, None])
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


def test_an_attention_that_was_not_called_has_no_weights():
    model = Model()
    with watch(model) as tape:
        model.layers[0](x)
    with pytest.raises(RegardError, match=r"'cross' was not called inside the `with watch\(...\)` block.*: layers.0$"):
        tape.weights("cross")


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
