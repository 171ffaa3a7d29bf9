"""What a manifest says of blobs, recordings in part, and several as one file."""

import json

import numpy as np
import pytest
import torch

from regard.errors import InputError
from regard.viewer import attentions
from regard.viewer.archive import pack_archive
from regard.viewer.record import record
from regard.viewer.recording import (
    LIST,
    PartialRecording,
    Recording,
    encode_json,
    list_recordings,
    pack_recordings,
    sizes,
    unpack_recordings,
)

from ..laws.cases import cases
from . import read_blobs as blobs


@pytest.fixture(scope="module")
def translator() -> Recording:
    model = next(case for case in cases() if case.name == "transformer-base").build(torch.float32)
    return record(model, [3, 4, 5, 6], target=[1, 2, 3])


def test_a_part_has_only_the_layers_that_were_asked_for(translator):
    part = PartialRecording(translator, layers=[2])
    assert [one["id"] for one in part.manifest()["attentions"]] == ["encoder.2", "decoder.2", "cross.2"]
    whole, some = blobs.weights(translator), blobs.weights(part)
    assert list(some) == ["encoder.2", "decoder.2", "cross.2"]
    for id, weights in some.items():
        assert np.array_equal(weights, whole[id])
    for name, size in sizes(part.manifest()):
        assert size is None or len(part.blob(name)) == size
    assert part.blob("vectors/cross.2/1.f32") == translator.blob("vectors/cross.2/1.f32")
    for name in ("vectors/cross.1/1.f32", "row/encoder.1/0/0.f32"):
        translator.blob(name)
        with pytest.raises(KeyError):
            part.blob(name)


def test_small_pictures_stay_with_their_heads(translator):
    everything = blobs.numbers(translator, "overview/0.u8", "u1")
    sizes_of = [one["heads"] * one["rows"] * one["columns"] for one in translator.manifest()["attentions"]]
    begins = np.cumsum([0, *sizes_of])
    wanted = np.concatenate([everything[begins[place] : begins[place + 1]] for place in (0, 2, 4)])
    assert np.array_equal(blobs.numbers(PartialRecording(translator, layers=[1]), "overview/0.u8", "u1"), wanted)


def test_a_part_begins_where_the_whole_does_if_it_can(translator):
    begin = translator.manifest()["begin"]
    layer = blobs.attention(translator, begin["attention"])["layer"]
    assert PartialRecording(translator, layers=[layer]).manifest()["begin"] == begin
    (other,) = {1, 2} - {layer}
    wanted = {"attention": f"encoder.{other}", "head": 0, "query": 0, "key": 0}
    assert PartialRecording(translator, layers=[other]).manifest()["begin"] == wanted


@pytest.mark.parametrize(
    ("without", "gone"),
    [("arithmetic", ("vectors", "row", "input")), ("hidden", ("hidden",)), ("next", ("next", "vocab"))],
)
def test_what_is_large_can_be_left_out(translator, without, gone):
    part = PartialRecording(translator, without=[without])
    left = [name for name in translator.names() if not name.startswith(gone)]
    assert list(part.names()) == left
    assert len(left) < len(list(translator.names()))
    assert len(pack_recordings({"a": translator}, without=[without])) < len(pack_recordings({"a": translator}))


def test_of_what_is_pooled_the_rows_stay(monkeypatch, translator):
    monkeypatch.setattr(attentions, "PICTURE", 12)  # the self-attention of four tokens has more
    large = record(translator.model, [3, 4, 5, 6], target=[1, 2, 3])
    said = PartialRecording(large, without=["arithmetic"]).manifest()["attentions"]
    assert {one["kind"] for one in said if one["arithmetic"]} == {"encoder"}


def test_wrong_parts(translator):
    with pytest.raises(InputError, match="no layer is left; there are the layers 1, 2"):
        PartialRecording(translator, layers=[3])
    with pytest.raises(ValueError, match="cannot leave out everything; only arithmetic, hidden, next"):
        PartialRecording(translator, without=["everything"])


def test_a_container_has_the_paths_of_the_server(translator):
    container = pack_recordings(
        {"one": translator, "b": translator}, layers=[1], without=["arithmetic", "hidden", "next"]
    )
    found = unpack_recordings(container)
    assert list_recordings(found) == list_recordings({"one": translator, "b": translator})
    assert list_recordings(found)[1] == {"id": "b", "title": "a translator", "model": "a translator", "text": "3 4 5 6"}
    assert [one["id"] for one in found["b"].manifest()["attentions"]] == ["encoder.1", "decoder.1", "cross.1"]


def test_json_is_utf8_without_nan():
    assert encode_json({"ü": [1, None]}) == '{"ü":[1,null]}'.encode()
    with pytest.raises(ValueError, match="not JSON compliant"):
        encode_json(float("nan"))


@pytest.mark.parametrize("entries", [{}, {LIST: b"["}, {LIST: b"3"}, {LIST: json.dumps([{"id": "a"}]).encode()}])
def test_a_container_of_something_else(entries):
    with pytest.raises(
        InputError, match="this container holds no recordings; make it anew with `regard look --export`"
    ):
        unpack_recordings(pack_archive(entries.items()))


def test_a_stored_recording_has_no_more_than_it_says(translator):
    with pytest.raises(KeyError):
        unpack_recordings(pack_recordings({"a": translator}, without=["next"]))["a"].blob("next/0.f32")
