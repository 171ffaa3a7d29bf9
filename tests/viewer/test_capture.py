"""An observed pass: what is kept is linear in the length, and a head costs only its own weights (a law)."""

import gc
from threading import Thread

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import regard
from regard.parts.watch import Tape
from regard.viewer import attentions, live_recording
from regard.viewer import capture as module
from regard.viewer.capture import AttentionTrace, Observations, capture, join_calls, observed
from regard.viewer.query import Query
from regard.viewer.record import record

from ..laws.cases import SHRINK, Case, cases, name_of
from . import read_blobs as blobs


class Sizes(TorchDispatchMode):
    """Records the sizes of all tensors that are created."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[int] = []

    def __torch_dispatch__(self, function, types, arguments=(), named=None):
        out = function(*arguments, **(named or {}))
        made = out if isinstance(out, tuple | list) else [out]
        self.found += [one.numel() for one in made if isinstance(one, torch.Tensor)]
        return out


def tokens(count: int) -> list[int]:
    return [3 + place % 20 for place in range(count)]


def held(one: object) -> int:
    """Count the numbers that a recording keeps in memory."""
    captured = one.captured
    every = [*captured.inputs.values(), captured.memory, captured.below, captured.output]
    every += [layer for layers in captured.hidden.values() for layer in layers]
    for looked in captured.traces.values():
        every += [looked.query, looked.key, looked.value, looked.mixed]
    stores = {x.untyped_storage().data_ptr(): x.untyped_storage().size() for x in every if x is not None}
    return sum(stores.values())


LONG = 600
LINEAR = [case for case in cases() if case.name in ("llama-like", "deepseek-like", "gpt2-alibi", "llama-local")]


@pytest.fixture(params=LINEAR, ids=name_of)
def model(request):
    changes = [change for change in request.param.overrides if "position.length" not in change]
    return regard.build(request.param.recipe, *changes, seed=0)


def large_tensors() -> list[torch.Tensor]:
    """Return all tensors as large as the weights of a head; other tests may have left some."""
    every = [x for x in gc.get_objects() if type(x) is torch.Tensor and x.dtype.is_floating_point]
    return [x for x in every if x.numel() >= LONG * LONG]


def test_a_head_of_a_long_text_costs_only_its_own_weights(model, monkeypatch):
    """Recording computes nothing as large as a head, and a head's blob computes only that head."""
    bias = model.stack.layers[0].mixer.position.has_bias or model.stack.layers[0].mixer.window
    of_others = {id(x) for x in large_tensors()}
    with Sizes() as sizes:
        one = record(model, Query(tokens(LONG), tokens=0))
    if not bias:  # otherwise the model's own kernel creates a matrix for all heads
        assert max(sizes.found) < LONG * LONG
    monkeypatch.setattr(attentions, "WHOLE", 0)
    one.manifest()
    before = len(sizes.found)
    with sizes:
        blob = one.blob("attention/0/self.2/1.f16")
    assert len(blob) == 2 * LONG * LONG
    assert max(sizes.found[before:]) == LONG * LONG
    with Sizes() as sizes:
        one.blob("row/self.2/1/500.f32")
        one.blob("vectors/self.2/1.f32")
        one.blob("next/5.f32")
        one.blob("hidden/tokens/1.f32")
    assert max(sizes.found) < LONG * 100
    gc.collect()
    assert not [x.shape for x in large_tensors() if id(x) not in of_others]


def test_memory_is_linear_in_the_length_of_the_text(model):
    short, long = (held(record(model, Query(tokens(count), tokens=0))) for count in (200, 400))
    assert long == 2 * short


def test_statistics_are_computed_a_few_heads_at_a_time(model, monkeypatch):
    one = record(model, Query(tokens(LONG), tokens=0))
    whole = one.manifest()["attentions"]
    monkeypatch.setattr(module, "BLOCK", 1 << 14)
    other = record(model, Query(tokens(LONG), tokens=0))
    with Sizes() as sizes:
        overview = other.blob("overview/0.u8")
    assert max(sizes.found) == LONG * LONG  # a whole head, assembled from blocks
    assert abs(blobs.numbers(one, "overview", step=0) - blobs.numbers(other, "overview", step=0)).max() <= 1
    assert len(overview) == sum(entry["heads"] for entry in whole) * 32 * 32


def test_the_keys_of_a_source_are_kept_once(monkeypatch):
    fed = regard.build("rnn-attention", *SHRINK["rnn-attention"], seed=0)
    seen = []
    monkeypatch.setattr(module, "join_calls", lambda calls: seen.append(calls) or join_calls(calls))
    record(fed, Query(tokens(30), target=tokens(10)))
    (calls,) = seen
    assert len(calls) == 10
    assert {call.key.data_ptr() for call in calls} == {calls[0].key.data_ptr()}
    assert {call.value.data_ptr() for call in calls} == {calls[0].value.data_ptr()}


def test_an_additive_score_is_computed_a_few_rows_at_a_time(monkeypatch):
    fed = regard.build("rnn-attention", *SHRINK["rnn-attention"], "model.feed=none", seed=0)
    one = record(fed, Query(tokens(40), target=tokens(30)))
    wanted = blobs.weights(one)["cross.1"]
    monkeypatch.setattr(module, "BLOCK", 16 * 40 * 3)
    with Sizes() as sizes:
        found = one.captured.traces["attention"].weights(range(1))
    assert max(sizes.found) == 16 * 40 * 3
    torch.testing.assert_close(found[0].double(), torch.tensor(wanted[0]), atol=1e-3, rtol=0)


# --- what is too large for one blob ----------------------------------------------------------------------------------


def test_heads_are_single_blobs_if_all_together_are_too_large(monkeypatch):
    model = regard.build("gpt2", *SHRINK["gpt2"], seed=0)
    one = record(model, Query(tokens(9), tokens=0))
    wanted = blobs.weights(one)
    monkeypatch.setattr(attentions, "WHOLE", 4 * 81)
    other = record(model, Query(tokens(9), tokens=0))
    assert not other.manifest()["whole"]
    for entry, head in blobs.heads(other):
        found = blobs.numbers(other, "weights", step=0, attention=entry["id"], head=head).reshape(9, 9)
        assert (found == wanted[entry["id"]][head]).all()
    with pytest.raises(KeyError):
        other.blob("attention/0.f16")


def test_a_large_head_is_pooled_and_its_rows_are_exact(monkeypatch):
    model = regard.build("gpt2", *SHRINK["gpt2"], seed=0)
    wanted = blobs.weights(record(model, Query(tokens(9), tokens=0)))
    monkeypatch.setattr(attentions, "PICTURE", 80)
    monkeypatch.setattr(attentions, "SIDE", 4)
    one = record(model, Query(tokens(9), tokens=0))
    manifest = one.manifest()
    assert (manifest["whole"], manifest["rollout"]) == (False, False)
    begins, ends = [0, 2, 4, 6], [2, 4, 6, 9]
    for entry, head in blobs.heads(one):
        assert entry["pooled"] == [4, 4]
        found = blobs.numbers(one, "pooled", step=0, attention=entry["id"], head=head).reshape(4, 4)
        for row, column in ((0, 0), (1, 0), (3, 2), (3, 3)):
            part = wanted[entry["id"]][head, begins[row] : ends[row], begins[column] : ends[column]]
            assert abs(found[row, column] - 255 * part.max()) < 1
        rows = blobs.rows(one, entry, head)["weights"]
        assert abs(rows - wanted[entry["id"]][head]).max() < 1e-3
    for name in ("attention/0.f16", "attention/0/self.1/0.f16", "rollout.f16"):
        with pytest.raises(KeyError):
            one.blob(name)


def test_single_rows_equal_rows_computed_together(monkeypatch):
    for case in (one for one in cases() if one.name in ("gpt2-t5-bias", "rnn-attention-alibi-window", "llama-local")):
        together, alone = recorded(case), recorded(case)
        names = [name for name in together.names() if name.startswith("row/")]
        first = [np.frombuffer(together.blob(name), "<f4") for name in names]
        with monkeypatch.context() as patch:
            patch.setattr(live_recording, "TOGETHER", 0)
            second = [np.frombuffer(alone.blob(name), "<f4") for name in names]
        assert max(abs(a - b).max() for a, b in zip(first, second, strict=True)) < 1e-5


def recorded(case: Case):
    model = case.build(torch.float32)
    return (
        record(model, Query(tokens(7), target=tokens(5)))
        if "rnn" in case.name
        else record(model, Query(tokens(7), tokens=0))
    )


# --- the pass itself -------------------------------------------------------------------------------------------------


def test_a_pass_leaves_no_trace_in_the_model():
    model = regard.build("gpt2", *SHRINK["gpt2"], seed=0).train()
    given = torch.tensor([tokens(5)])
    capture(model, {"tokens": given})
    assert model.training
    for part in model.modules():
        assert not part._forward_hooks
        assert not part._forward_pre_hooks
    model.eval()
    assert model(given).shape == (1, 5, 23)  # and runs to its end


def test_an_error_leaves_no_trace_either():
    model = regard.build("gpt2", *SHRINK["gpt2"], seed=0)
    with pytest.raises(regard.InputError, match="token id 99"):
        capture(model, {"tokens": torch.tensor([[1, 99]])})
    assert not any(part._forward_hooks or part._forward_pre_hooks for part in model.modules())


@pytest.mark.parametrize("recipe", ["gpt2", "lstm"])
def test_other_threads_use_the_model_meanwhile(recipe):
    model = regard.build(recipe, *SHRINK[recipe], seed=0).eval()
    row = torch.tensor([tokens(5)])
    plain, found, seen = model(row), [], Observations()
    with observed(model, seen, Tape()):
        other = Thread(target=lambda: found.append(model(row)))
        other.start()
        other.join()
    assert torch.equal(found[0], plain)
    assert not seen.found
    assert not any(seen.recurrent.values())


def test_calls_are_joined_in_their_order():
    fed = regard.build("rnn-attention", *SHRINK["rnn-attention"], seed=0).eval()
    given = {"source": torch.tensor([tokens(4)]), "target": torch.tensor([tokens(6)])}
    looked = capture(fed, given).traces["attention"]
    assert isinstance(looked, AttentionTrace)
    with regard.watch(fed) as tape, torch.no_grad():
        fed(**given)
    assert len(tape["attention"]) == 6
    torch.testing.assert_close(looked.weights(range(1))[None], tape.weights("attention"))
    assert looked.terms.query_positions.tolist() == [[0, 1, 2, 3, 4, 5]]
