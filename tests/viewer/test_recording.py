"""Partial recordings, and several recordings in one archive."""

import json

import numpy as np
import pytest
import torch

from regard.errors import InputError
from regard.viewer import attentions
from regard.viewer.archive import pack_archive
from regard.viewer.blobs import all_blobs
from regard.viewer.query import Query
from regard.viewer.record import record
from regard.viewer.recording import (
    LIST,
    PartialRecording,
    Recording,
    encode_json,
    list_recordings,
    pack_recordings,
    unpack_recordings,
)

from ..laws.cases import cases
from . import read_blobs as blobs


@pytest.fixture(scope="module")
def translator() -> Recording:
    model = next(case for case in cases() if case.name == "transformer-base").build(torch.float32)
    return record(model, Query([3, 4, 5, 6], target=[1, 2, 3]))


def test_a_partial_recording_has_only_the_chosen_layers(translator):
    part = PartialRecording(translator, layers=[2])
    assert [one["id"] for one in part.manifest()["attentions"]] == ["encoder.2", "decoder.2", "cross.2"]
    whole, some = blobs.weights(translator), blobs.weights(part)
    assert list(some) == ["encoder.2", "decoder.2", "cross.2"]
    for id, weights in some.items():
        assert np.array_equal(weights, whole[id])
    for blob in all_blobs(part.manifest()):
        assert blob.size is None or len(part.blob(blob.name)) == blob.size
    assert part.blob("vectors/cross.2/1.f32") == translator.blob("vectors/cross.2/1.f32")
    for name in ("vectors/cross.1/1.f32", "row/encoder.1/0/0.f32"):
        translator.blob(name)
        with pytest.raises(KeyError):
            part.blob(name)


def test_thumbnails_stay_with_their_heads(translator):
    everything = blobs.numbers(translator, "overview", step=0)
    sizes_of = [one["heads"] * one["rows"] * one["columns"] for one in translator.manifest()["attentions"]]
    begins = np.cumsum([0, *sizes_of])
    wanted = np.concatenate([everything[begins[index] : begins[index + 1]] for index in (0, 2, 4)])
    assert np.array_equal(blobs.numbers(PartialRecording(translator, layers=[1]), "overview", step=0), wanted)


def test_a_partial_recording_begins_where_the_whole_does_if_it_can(translator):
    begin = translator.manifest()["begin"]
    layer = blobs.attention(translator, begin["attention"])["layer"]
    assert PartialRecording(translator, layers=[layer]).manifest()["begin"] == begin
    (other,) = {1, 2} - {layer}
    wanted = {"attention": f"encoder.{other}", "head": 0, "query": 0, "key": 0}
    assert PartialRecording(translator, layers=[other]).manifest()["begin"] == wanted


@pytest.mark.parametrize(
    ("without", "gone"),
    [("arithmetic", ("vectors", "row", "input")), ("hidden", ("hidden",)), ("next", ("next", "vocab", "lens"))],
)
def test_large_parts_can_be_left_out(translator, without, gone):
    part = PartialRecording(translator, without=[without])
    left = [name for name in translator.names() if not name.startswith(gone)]
    assert list(part.names()) == left
    assert len(left) < len(list(translator.names()))
    assert len(pack_recordings({"a": translator}, without=[without])) < len(pack_recordings({"a": translator}))


def test_a_stored_recording_says_that_it_cannot_be_changed(translator):
    assert translator.manifest()["places"]
    stored = unpack_recordings(pack_recordings({"a": translator}))["a"]
    assert stored.manifest()["places"] == []


def test_a_pooled_attention_keeps_its_rows(monkeypatch, translator):
    monkeypatch.setattr(attentions, "PICTURE", 12)  # the self-attention of four tokens has more
    large = record(translator.model, Query([3, 4, 5, 6], target=[1, 2, 3]))
    said = PartialRecording(large, without=["arithmetic"]).manifest()["attentions"]
    assert {one["kind"] for one in said if one["arithmetic"]} == {"encoder"}


def test_wrong_partial_recordings(translator):
    with pytest.raises(InputError, match="no layer is left; this recording has the layers 1, 2"):
        PartialRecording(translator, layers=[3])
    with pytest.raises(ValueError, match="cannot leave out everything; only arithmetic, hidden, next"):
        PartialRecording(translator, without=["everything"])


def test_an_archive_has_the_paths_of_the_server(translator):
    archive = pack_recordings(
        {"one": translator, "b": translator}, layers=[1], without=["arithmetic", "hidden", "next"]
    )
    found = unpack_recordings(archive)
    assert list_recordings(found) == list_recordings({"one": translator, "b": translator})
    assert list_recordings(found)[1] == {"id": "b", "title": "a translator", "model": "a translator", "text": "3 4 5 6"}
    assert [one["id"] for one in found["b"].manifest()["attentions"]] == ["encoder.1", "decoder.1", "cross.1"]


def test_json_is_utf8_without_nan():
    assert encode_json({"ü": [1, None]}) == '{"ü":[1,null]}'.encode()
    with pytest.raises(InputError, match="numbers that are not finite"):
        encode_json(float("nan"))


@pytest.mark.parametrize("entries", [{}, {LIST: b"["}, {LIST: b"3"}, {LIST: json.dumps([{"id": "a"}]).encode()}])
def test_an_archive_of_something_else(entries):
    with pytest.raises(
        InputError, match="this archive holds no recordings; write it again with `regard look --export`"
    ):
        unpack_recordings(pack_archive(entries.items()))


def test_a_stored_recording_has_only_the_blobs_of_its_manifest(translator):
    with pytest.raises(KeyError):
        unpack_recordings(pack_recordings({"a": translator}, without=["next"]))["a"].blob("next/0.f32")
