"""Changes of a recorded model: the same tokens in the changed model, and what it writes by itself."""

from contextlib import nullcontext
from threading import Lock

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import regard
from regard.errors import InputError
from regard.viewer.query import Query
from regard.viewer.record import record
from regard.viewer.recording_store import RecordingStore

from ..use.made import image, loaded
from .fake import recording
from .shown import in_float32
from .test_server import client

OFF = {"place": "self.1", "heads": [2], "attention": "zero"}


def writer():
    return in_float32("writer", loaded("language", "word", "gpt2").bundle)


def read(live, sequence: str = "tokens") -> torch.Tensor:
    return torch.tensor([[token["id"] for token in live.manifest()["sequences"][sequence]]])


def test_the_changed_recording_is_the_model_inside_intervene():
    bundle = writer()
    live = record(bundle, Query("one red dog runs one blue dog", tokens=3))
    tokens = read(live)
    with torch.no_grad():
        before = bundle.model(tokens)
        with regard.watch(bundle.model) as tape, regard.intervene(bundle.model, "self.1", heads=2, attention="zero"):
            after = bundle.model(tokens)
    changed, result = live.change([OFF])
    logits = np.frombuffer(changed.blob("next/4.f32"), "<f4")
    np.testing.assert_allclose(logits, after[0, 4].numpy(), atol=1e-5)
    weights = np.frombuffer(changed.blob("attention/0.f16"), "<f2").reshape(8, tokens.shape[1], tokens.shape[1])
    np.testing.assert_allclose(weights[:4], tape.weights("stack.layers.0.mixer")[0].numpy(), atol=1e-3)
    losses = [float(F.cross_entropy(one[0, :-1], tokens[0, 1:])) for one in (before, after)]
    assert result["loss"] == pytest.approx(losses, abs=1e-5)
    assert changed.manifest()["title"] == "writer (changed)"
    assert changed.manifest()["sequences"] == live.manifest()["sequences"]
    assert live.manifest()["places"] == ["self.1", "self.2", "tokens.0", "tokens.1", "tokens.2"]
    for work in (changed.change, changed.write):
        with pytest.raises(InputError, match="change the original instead"):
            work([OFF])


@pytest.mark.parametrize("change", [{"attention": 1}, {"attention": "previous"}, {"weight": [2, 1, 0.75]}])
def test_the_agents_of_a_scene_share_the_weight_of_a_step(change):
    """A step is one position of all agents; the weights of a query still sum to 1."""
    scene = "0 a 0 0; 10 a 0.4 0.1; 20 a 0.8 0.2; 0 b 1 1; 10 b 1 1.4; 20 b 1 1.8"
    live = record(in_float32("walkers", loaded("trajectories").bundle), Query(scene))
    names = [token["text"] for token in live.manifest()["sequences"]["steps"]]
    changed, result = live.change([{"place": "self.1", "heads": [0], **change}])
    assert result["moved"]["self.1"][0] > 0.01
    weights = changed.weights("self.1", 0)
    torch.testing.assert_close(weights.sum(-1), torch.ones(len(names)))
    row, step = names.index("b@3"), [names.index("a@2"), names.index("b@2")]
    if "attention" in change and change["attention"] == 1:
        assert weights[row, step].tolist() == [0.5, 0.5]
    if "weight" in change:
        assert weights[row, step].tolist() == [0.375, 0.375]


def test_moved_weights_are_total_variation():
    live = record(writer(), Query("one red dog runs", tokens=0))
    _, result = live.change([OFF])
    assert result["moved"]["self.1"] == pytest.approx([0, 0, 0.5, 0], abs=1e-6)  # its weights are 0
    changed, result = live.change([{**OFF, "attention": "uniform"}])
    shape = (8, 5, 5)
    numbers = [np.frombuffer(one.blob("attention/0.f16"), "<f2").astype(float) for one in (live, changed)]
    before, after = (one.reshape(shape) for one in numbers)
    expected = np.abs(before - after).sum(-1).mean(-1) / 2
    np.testing.assert_allclose([*result["moved"]["self.1"], *result["moved"]["self.2"]], expected, atol=2e-3)


def test_an_empty_effect_leaves_every_number():
    live = record(writer(), Query("one red dog runs", tokens=2))
    position = 2
    changed, result = live.change(
        [{"place": "tokens.1", "positions": [position], "vector": {"place": "tokens.1", "position": position}}]
    )
    assert result["loss"][0] == result["loss"][1]
    assert set(result["moved"]["self.2"]) == {0.0}
    assert changed.blob("next/4.f32") == live.blob("next/4.f32")


def test_a_vector_comes_from_another_text_or_layer():
    bundle = writer()
    live = record(bundle, Query("one red dog runs", tokens=0))
    other = record(bundle, Query("two blue cats", tokens=0))
    origin = {"place": "tokens.1", "position": 2, "text": "two blue cats"}
    changed, _ = live.change([{"place": "tokens.2", "positions": [3], "vector": origin}])
    assert torch.equal(changed.captured.hidden["tokens"][2][3], other.captured.hidden["tokens"][1][2])
    origin = {"place": "self.2", "position": 1, "head": 3}
    changed, result = live.change([{"place": "self.1", "heads": [0], "positions": [2], "vector": origin}])
    mixed = changed.captured.traces["stack.layers.0.mixer"].mixed[0, 0, 2]
    assert torch.equal(mixed, live.captured.traces["stack.layers.1.mixer"].mixed[0, 3, 1])
    assert "regard.read_vectors(model.model, 'self.2', tokens)[0, 3, 1]" in result["code"]


def test_another_text_is_never_read_as_the_name_of_a_file(tmp_path):
    picture, scene = image(tmp_path / "a.png"), tmp_path / "walk.txt"
    rows = "0 a 0 0; 10 a 0.4 0.1; 20 a 0.8 0.2"
    scene.write_text(rows.replace("; ", "\n"), encoding="utf-8")
    seer = record(in_float32("seer", loaded("vision").bundle), Query(image=picture))
    walkers = record(in_float32("walkers", loaded("trajectories").bundle), Query(rows))
    for live, sequence, name, says in (
        (seer, "patches", picture, "leave the text out"),
        (walkers, "steps", scene, "write rows"),
    ):
        change = {"place": f"{sequence}.1", "vector": {"place": f"{sequence}.1", "position": 0, "text": str(name)}}
        with pytest.raises(InputError, match=says):
            live.change([change])
    change["vector"]["text"] = rows
    _, result = walkers.change([change])
    assert set(result["moved"]) == {"self.1", "self.2"}


def test_code_does_what_the_page_does():
    live = record(writer(), Query("one red dog runs", tokens=0))
    _, result = live.change([OFF, {"place": "self.2", "weight": [3, 1, 0.5]}])
    assert result["code"] == (
        "with regard.intervene(model, 'self.1', heads=[2], attention='zero'):\n"
        "    with regard.intervene(model, 'self.2', weight=(3, 1, 0.5)):\n"
        "        ..."
    )


def test_what_the_changed_model_writes_by_itself():
    loaded_model = loaded("language", "word", "gpt2")
    live = record(loaded_model, Query("one red dog", tokens=6))
    every = [{"place": place, "attention": "zero"} for place in ("self.1", "self.2")]
    before, after = live.write(every)["written"]
    assert before == live.manifest()["written"]
    first, second = (regard.intervene(loaded_model, place, attention="zero") for place in ("self.1", "self.2"))
    with first, second:
        expected = record(loaded_model, Query("one red dog", tokens=6)).manifest()["written"]
    assert after == expected != before
    far = [{**OFF, "positions": [4]}]
    assert record(loaded_model, Query("one red dog", tokens=1)).write(far)["written"][0] is not None


def test_models_that_do_not_write_are_changed_too():
    reader = in_float32("reader", loaded("masked").bundle)
    live = record(reader, Query("one red [MASK] runs"))
    changed, result = live.change([{"place": "self.1", "attention": "uniform"}])
    assert result["loss"] is None
    assert changed.manifest()["answers"] != live.manifest()["answers"]
    assert live.write([OFF]) == {"written": [None, None]}
    recurrent = in_float32("recurrent", loaded("language", "word", "lstm").bundle)
    live = record(recurrent, Query("one red dog", tokens=2))
    assert live.manifest()["places"] == ["tokens.0", "tokens.1", "tokens.2"]
    _, result = live.change([{"place": "tokens.1", "positions": [1], "vector": {"place": "tokens.0", "position": 2}}])
    assert result["loss"][0] != result["loss"][1]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (None, "changes must be a list"),
        ([], "changes must be a list"),
        ([3], "a change must be an object"),
        ([{"attention": "zero"}], 'an object with the name of a "place"'),
        ([{**OFF, "evil": 1}], "unknown field 'evil' of a change"),
        ([{**OFF, "place": "self.9"}], "no attention or vectors 'self.9'"),
        ([{**OFF, "heads": [9]}], "no head 9; the heads are 0 to 3"),
        ([{**OFF, "positions": [99]}], "no token at position 99; the last one is 4"),
        ([{**OFF, "attention": 99}], "no key at position 99; the last one is 4"),
        ([{"place": "self.1", "weight": [1, 2]}], r"a weight must be \[query, key, value\]"),
        ([{"place": "tokens.1", "vector": {"place": "tokens.1", "position": 77}}], "no token at position 77"),
        ([{"place": "self.1", "vector": {"place": "self.1", "position": 1}}], "no head None; the heads are 0 to 3"),
        ([{"place": "tokens.1", "vector": {"place": "tokens.1", "position": 1, "text": ""}}], "the text is empty"),
    ],
)
def test_bad_changes_are_errors_of_one_line(changes, message):
    live = record(writer(), Query("one red dog runs", tokens=0))
    with pytest.raises(InputError, match=message) as error:
        live.change(changes)
    assert "\n" not in str(error.value)


def test_the_server_changes_recordings_and_says_which_cannot_be_changed():
    live = record(writer(), Query("one red dog runs", tokens=0))
    store = RecordingStore({"sample": recording()})
    id = store.put(live, Lock())
    page = client(store)

    def change(**body: object) -> tuple[int, dict]:
        answer = page.post("/change", json=body)
        return answer.status_code, answer.json()

    status, found = change(recording=id, changes=[OFF])
    assert status == 200
    assert found["moved"]["self.1"][2] > 0
    assert store.find(found["id"]).recording.manifest()["title"] == "writer (changed)"
    assert [one["id"] for one in store.listing()] == [id, "sample"]  # changed models are not listed
    assert change(recording=id, changes=[OFF], write=True) == (200, {"written": ["", ""]})
    status, found = change(recording="sample", changes=[OFF])
    assert status == 400
    assert "no model that could be changed; open the model itself" in found["error"]
    assert change(recording="nowhere", changes=[OFF])[0] == 404
    assert change(recording=id, changes=[{"place": "x"}])[0] == 400
    assert change()[0] == 404


def test_changed_models_replace_each_other_but_no_listed_recording():
    store = RecordingStore({}, capacity=1)
    asked = store.put(recording(), nullcontext())
    first, second = (store.put(recording(), nullcontext(), listed=False) for _ in range(2))
    assert store.find(asked).listed
    assert not store.find(second).listed
    with pytest.raises(KeyError):
        store.find(first)
