"""Interventions: what is changed, where, for how long, and the errors for places that do not exist."""

from threading import Barrier, Thread
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import regard
from regard.decode.beam import beam_search
from regard.decode.choose import Sampling
from regard.decode.engine import Given, in_use
from regard.decode.sample import sample_all
from regard.decode.static import StaticEngine, StaticShapes, captured
from regard.errors import InputError, RegardError
from regard.models.intervention import check_weight
from regard.use.bundle import Bundle
from regard.use.loaded_model import LoadedModel

SMALL = [
    *("model.vocabulary=23", "model.dim=16", "model.depth=2", "model.layers.block.feedforward.hidden=24"),
    "model.layers.block.mixer.heads.heads=4",
]
TOKENS = torch.tensor([[3, 1, 4, 1, 5, 9, 2, 6]])


def writer(seed: int = 0) -> nn.Module:
    model = regard.build("gpt2", *SMALL, seed=seed).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.3 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(seed))
    return model


def translator() -> nn.Module:
    sides = ("encoder", "decoder")
    changes = [
        f"model.{side}.{change}" for side in sides for change in ("depth=2", "layers.block.feedforward.hidden=24")
    ]
    changes += [f"model.{side}.layers.block.mixer.heads.heads=4" for side in sides]
    changes += ["model.decoder.layers.block.cross.heads.heads=4", "model.vocabulary=23", "model.dim=16"]
    return regard.build("transformer-base", *changes, seed=0).eval()


def weights(model: nn.Module, name: str, **change: object) -> torch.Tensor:
    """Return the weights that a changed attention has: (heads, queries, keys)."""
    with regard.watch(model, "stack.layers.0.mixer") as tape, regard.intervene(model, name, **change):
        model(TOKENS)
    return tape.weights("stack.layers.0.mixer")[0].detach()


# --- what is changed -------------------------------------------------------------------------------------------------


def test_a_head_is_switched_off_and_the_others_stay():
    model = writer()
    with regard.watch(model) as tape:
        model(TOKENS)
    before, after = tape.weights("stack.layers.0.mixer")[0], weights(model, "self.1", heads=2, attention="zero")
    assert (after[2] == 0).all()
    assert torch.equal(after[[0, 1, 3]], before[[0, 1, 3]])


@pytest.mark.parametrize("change", [{"attention": "zero"}, {"vector": [0.0] * 4}])
def test_no_heads_are_no_change(change: dict[str, object]):
    model = writer()
    with regard.intervene(model, "self.1", heads=[], **change):
        found = model(TOKENS)
    assert torch.equal(found, model(TOKENS))


def test_uniform_attention_sees_the_visible_keys_alike():
    after = weights(writer(), "self.1", heads=[1], attention="uniform")
    expected = torch.tril(torch.ones(8, 8)) / torch.arange(1, 9)[:, None]
    torch.testing.assert_close(after[1], expected)


def test_the_previous_token_is_the_key_before_and_the_first_token_keeps_its_weights():
    model = writer()
    after = weights(model, "self.1", heads=[0, 3], attention="previous")
    assert torch.equal(after[3], torch.eye(8).roll(-1, 1).tril() + torch.eye(8)[0] * torch.eye(8)[:, :1])


def test_a_chosen_key_gets_all_of_the_weight_where_it_is_visible():
    model = writer()
    with regard.watch(model) as tape:
        model(TOKENS)
    before, after = tape.weights("stack.layers.0.mixer")[0], weights(model, "self.1", attention=3, positions=[1, 4, 7])
    assert torch.equal(after[:, 1], before[:, 1])  # the fourth token is in its future
    assert (after[:, [4, 7], 3] == 1).all()
    assert (after[:, [4, 7]].sum(-1) == 1).all()
    assert torch.equal(after[:, [0, 2, 3, 5, 6]], before[:, [0, 2, 3, 5, 6]])


def test_one_weight_is_set_and_the_others_are_scaled():
    model = writer()
    with regard.watch(model) as tape:
        model(TOKENS)
    before, after = tape.weights("stack.layers.0.mixer")[0], weights(model, "self.1", heads=1, weight=(5, 2, 0.75))
    rest = [0, 1, 3, 4, 5]
    assert after[1, 5, 2] == 0.75
    torch.testing.assert_close(after[1, 5, rest], before[1, 5, rest] / before[1, 5, rest].sum() * 0.25)
    assert torch.equal(after[1, :5], before[1, :5])


def test_the_others_share_equally_what_a_key_with_all_of_the_weight_gives_up():
    model = writer()
    with (
        regard.watch(model, "stack.layers.0.mixer") as tape,
        regard.intervene(model, "self.1", heads=0, attention=1),
        regard.intervene(model, "self.1", heads=0, weight=(3, 1, 0.4)),
    ):
        model(TOKENS)
    found = tape.weights("stack.layers.0.mixer")[0, 0, 3]
    torch.testing.assert_close(found, torch.tensor([0.2, 0.4, 0.2, 0.2, 0, 0, 0, 0]))


def test_an_attention_is_also_found_by_the_name_of_its_module():
    model = writer()
    assert torch.equal(
        weights(model, "self.1", attention="uniform"), weights(model, "stack.layers.0.mixer", attention="uniform")
    )


def test_vectors_of_another_sentence_decide_what_follows():
    """With the vectors of all tokens after the last layer, the model says what it says of the other sentence."""
    model, other = writer(), (TOKENS + 7) % 23
    vectors = regard.read_vectors(model, "tokens.2", other)
    assert vectors.shape == (1, 8, 16)
    with regard.intervene(model, "tokens.2", vector=vectors[0]):
        torch.testing.assert_close(model(TOKENS), model(other))


def test_outputs_of_a_head_come_from_another_layer():
    model = writer()
    outputs = regard.read_vectors(model, "self.2", tokens=TOKENS)
    assert outputs.shape == (1, 4, 8, 4)
    with (
        regard.watch(model) as tape,
        regard.intervene(model, "self.1", heads=[2], positions=[5], vector=outputs[0, 2, 5]),
    ):
        model(TOKENS)
    mixed = tape["stack.layers.0.mixer"][0].mixed[0]
    assert torch.equal(mixed[2, 5], outputs[0, 2, 5])
    assert not torch.equal(mixed[2, 4], outputs[0, 2, 4])


def test_gradients_flow_through_what_was_not_changed():
    model = writer()
    with regard.intervene(model, "self.1", heads=1, attention="zero"):
        model(TOKENS).sum().backward()
    gradient = model.stack.layers[0].mixer.heads.to_value.weight.grad.unflatten(0, (4, 4))
    assert (gradient[1] == 0).all()
    assert (gradient[[0, 2, 3]] != 0).any(-1).any(-1).all()


# --- for how long, and where -----------------------------------------------------------------------------------------


def test_a_model_is_itself_again_after_an_error():
    model = writer()
    before = model(TOKENS)
    with pytest.raises(RuntimeError, match="size"), regard.intervene(model, "tokens.1", vector=torch.zeros(16)):
        model(TOKENS) + torch.zeros(5, 5, 5)
    assert torch.equal(model(TOKENS), before)
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


def test_nested_changes_add_up_and_end_one_by_one():
    model = writer()
    with regard.intervene(model, "self.1", heads=[0, 1], attention="zero"):
        both = model(TOKENS)
    with regard.intervene(model, "self.1", heads=0, attention="zero"):
        one = model(TOKENS)
        with regard.intervene(model, "self.1", heads=1, attention="zero"):
            torch.testing.assert_close(model(TOKENS), both)
        assert torch.equal(model(TOKENS), one)


@pytest.mark.parametrize("place", ["self.1", "tokens.1"])
def test_other_threads_use_the_model_unchanged(place: str):
    model, barrier = writer(), Barrier(2)
    before, found = model(TOKENS), {}
    change = {"attention": "zero"} if place == "self.1" else {"vector": torch.ones(16)}

    def use() -> None:
        barrier.wait()  # the other thread is inside its `with`
        found["there"] = model(TOKENS)
        barrier.wait()

    thread = Thread(target=use)
    thread.start()
    with regard.intervene(model, place, **change):
        barrier.wait()
        found["here"] = model(TOKENS)
        barrier.wait()
    thread.join()
    assert torch.equal(found["there"], before)
    assert not torch.equal(found["here"], before)


def test_vectors_are_those_of_this_thread(monkeypatch):
    model, others = writer(), torch.tensor([[7, 7]])
    expected = regard.read_vectors(model, "tokens.1", tokens=TOKENS)
    first = model.stack.layers[0].forward

    def called_by_two(*inputs: object, **named: object) -> torch.Tensor:
        monkeypatch.setattr(model.stack.layers[0], "forward", first)
        other = Thread(target=model, args=(others,))
        other.start()
        other.join()
        return first(*inputs, **named)

    monkeypatch.setattr(model.stack.layers[0], "forward", called_by_two)
    assert torch.equal(regard.read_vectors(model, "tokens.1", tokens=TOKENS), expected)


@pytest.mark.parametrize("kind", ["watch", "intervene"])
def test_static_steps_give_way_to_the_model_itself(kind: str):
    """Captured and compiled steps would not see a change, so the model is called directly."""
    model = writer()
    engine = StaticEngine(captured, StaticShapes(model, slots=16, width=16))

    def write() -> list[int]:
        with in_use(model):
            given = Given(TOKENS)
            (found,) = sample_all(engine, given, end=(), limits=[6], sampling=Sampling(temperature=0.0), seeds=[0])
        return found

    before = write()
    if kind == "watch":
        with regard.watch(model) as tape:
            assert write() == before
        assert len(tape["stack.layers.0.mixer"]) == 6
        return
    with in_use(model):
        expected, text = [], TOKENS
        with regard.intervene(model, "self.1", attention="zero"):
            for _ in range(6):
                expected.append(int(model(text)[0, -1].argmax()))
                text = torch.cat((text, torch.tensor([expected[-1:]])), 1)
    with regard.intervene(model, "self.1", attention="zero"):
        assert write() == expected
    assert expected != before
    assert write() == before


def test_beams_search_in_the_changed_model():
    """Without cross-attention the score is another one; with one source token, it does not matter how to look at it."""
    model, source = translator(), torch.tensor([[5, 7, 2, 11]])

    def translate() -> tuple[list[int], float]:
        with in_use(model):
            engine = StaticEngine(captured, StaticShapes(model, slots=16, width=16))
            given = Given(torch.tensor([[1]]), None, source)
            ((best,),) = beam_search(engine, given, end=(2,), limits=[8], beam=3)
        return best.ids, best.score

    before = translate()
    with regard.intervene(model, "cross.2", attention="zero"):
        assert translate()[1] != before[1]
    source = source[:, :1]
    before = translate()
    with regard.intervene(model, "cross.1", attention="uniform"), regard.intervene(model, "cross.2", attention=0):
        assert translate()[0] == before[0]
        assert translate()[1] == pytest.approx(before[1], rel=1e-5)


@pytest.mark.unchecked
def test_numbers_of_numpy_and_torch_are_those_of_python():
    model = writer()

    def changed(**change: Any) -> torch.Tensor:
        with regard.intervene(model, "self.1", **change):
            return model(TOKENS)

    wanted = changed(heads=[0, 2], attention=1)
    for heads in (np.array([0, 2]), torch.tensor([0, 2]), [np.int64(0), np.int64(2)]):
        assert torch.equal(changed(heads=heads, attention=np.int64(1)), wanted)
    with pytest.raises(InputError, match=r"a head must be a whole number from 0, not 1\.0"):
        changed(heads=np.float64(1), attention=1)


def test_a_loaded_model_can_be_given_instead_of_its_module():
    model = writer()
    found = regard.read_vectors(LoadedModel(Bundle(model)), "tokens.1", TOKENS)
    assert torch.equal(found, regard.read_vectors(model, "tokens.1", TOKENS))


@pytest.mark.unchecked
def test_a_name_is_not_a_model():
    rule = r"'gpt2' is not a model; use a torch module, or what regard.load\(...\) returned"
    with pytest.raises(InputError, match=rule):
        regard.read_vectors("gpt2", "tokens.1", TOKENS)
    with pytest.raises(InputError, match=rule), regard.intervene("gpt2", "self.1", attention=0):
        pass


# --- mistakes --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("place", "change", "message"),
    [
        ("cross.1", {"attention": "zero"}, "no attention or vectors 'cross.1'; use one of self.1, self.2, tokens.0"),
        ("self.3", {"attention": "zero"}, "did you mean 'self.2'"),
        ("self.1", {"heads": 4, "attention": "zero"}, "self.1: no head 4; the heads are 0 to 3"),
        ("self.1", {"heads": -1, "attention": "zero"}, "a head must be a whole number from 0, not -1"),
        ("self.1", {"attention": "off"}, "must be the position of a key or one of zero, uniform, previous, first"),
        ("self.1", {"attention": -1}, "a key must be a whole number from 0, not -1"),
        ("self.1", {"attention": 2**63}, r"a key must be below 2\^63, not 9,223,372,036,854,775,808"),
        ("self.1", {"attention": 2**63 - 1}, "self.1: no key at position 9223372036854775807; the last one is 7"),
        ("self.1", {"attention": "zero", "positions": [0, 2**63]}, r"a position must be below 2\^63"),
        ("self.1", {"weight": (2**63, 1, 0.5)}, r"a query must be below 2\^63"),
        ("self.1", {}, "nothing to change was given; give one of attention, weight and vector"),
        ("self.1", {"attention": "zero", "weight": (1, 1, 0.5)}, "attention and weight were given; give one"),
        ("self.1", {"weight": (1, 1, 1.5)}, "must be between 0 and 1, not 1.5"),
        ("self.1", {"weight": (1, 1, 0.5), "positions": [1]}, "leave positions out"),
        ("self.1", {"vector": torch.zeros(5)}, r"4 numbers for each of 4 heads, but this one has the shape \[5\]"),
        ("tokens.1", {"attention": "zero"}, "are vectors, which have no attention"),
        ("tokens.1", {"vector": torch.zeros(16), "heads": 1}, "are vectors, which have no heads"),
        ("tokens.1", {"vector": torch.zeros(3, 16), "positions": [1, 2]}, r"at each of 2 positions, .* \[3, 16\]"),
        ("tokens.1", {"vector": "a"}, "must be a tensor or numbers"),
        ("self.1", {"attention": 8}, "self.1: no key at position 8; the last one is 7"),
        ("self.1", {"weight": (3, 9, 0.5)}, "self.1: no key at position 9; the last one is 7"),
        ("self.1", {"attention": "zero", "positions": [2, 11]}, "self.1: no token at position 11; the last one is 7"),
        (
            "tokens.1",
            {"vector": torch.zeros(16), "positions": 8},
            "no token at position 8; the last one is 7",
        ),
    ],
)
def test_what_does_not_exist_is_an_error_of_one_line(place: str, change: dict[str, object], message: str):
    model = writer()
    with pytest.raises(InputError, match=message) as error, regard.intervene(model, place, **change):
        model(TOKENS)
    assert "\n" not in str(error.value)


def test_a_weight_is_query_key_and_value():
    with pytest.raises(InputError, match=r"self.1: a weight must be \(query, key, value\), not \(1, 1\)"):
        check_weight("self.1", (1, 1))
    for query in (None, [], [1, 2], 1.5):
        with pytest.raises(InputError, match=r"self.1: a query must be a whole number from 0, not (None|\[.*\]|1\.5)$"):
            check_weight("self.1", (query, 1, 0.5))


def test_a_source_has_no_previous_token():
    with (
        pytest.raises(InputError, match=r"cross.2: .* no previous token; use zero, uniform, first"),
        regard.intervene(translator(), "cross.2", attention="previous"),
    ):
        pass


def test_a_change_of_a_model_that_is_not_called_is_an_error():
    model = writer()
    with (
        pytest.raises(InputError, match="nothing was changed; call the model"),
        regard.intervene(model, "self.1", attention="zero"),
    ):
        pass


def test_a_module_without_attention_cannot_be_changed():
    with pytest.raises(RegardError, match="no attention and no layers"), regard.intervene(nn.Linear(2, 2), "self.1"):
        pass
