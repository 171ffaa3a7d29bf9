"""The table of blobs: names, sizes, and the methods that make them."""

from typing import get_args

import pytest

from regard.viewer.blobs import BLOBS, FIELDS, PATTERNS, all_blobs, blob_name, find_blob
from regard.viewer.live_recording import LiveRecording
from regard.viewer.manifest import BlobKind

from .fake import attention, manifest


def test_every_kind_has_a_row_and_a_method_that_makes_it():
    assert set(BLOBS) == set(get_args(BlobKind))
    assert {name.removeprefix("make_") for name in dir(LiveRecording) if name.startswith("make_")} == set(BLOBS)


def test_every_name_is_found_again():
    attentions = [attention("self.1", "source", "source", 2, 2, mask="source-causal", arithmetic=True)]
    said = manifest(attentions=attentions)
    said |= {"steps": [0, 5], "rollout": True}
    said |= {"hidden": [{"sequence": "source", "layers": 2, "width": 3}]}
    said |= {"next": {"sequence": "target", "begin": 1, "vocabulary": 7}}
    blobs = list(all_blobs(said))
    assert len({blob.name for blob in blobs}) == len(blobs)
    for blob in blobs:
        assert find_blob(said, blob.name) == blob
    assert [blob.name for blob in blobs if blob.kind == "row"] == [
        blob_name("row", attention="self.1", head=head, query=query) for head in range(2) for query in range(2)
    ]
    assert [blob.size for blob in blobs if blob.kind == "next"] == [4 * 7] * 3
    assert [blob.size for blob in blobs if blob.kind == "all_weights"] == [2 * 2 * 2 * 2] * 2


@pytest.mark.parametrize(
    "name",
    [
        "attention/1.f16",
        "attention/00.f16",
        "attention/0.u8",
        "attention/0/cross.1/0.f16",
        "overview/-1.u8",
        "row/self.1/0/0.f32",
        "mask/none.bits",
        "../0.f16",
        "hidden/source/0.f32",
        "next/0.f32",
        "rollout.f16",
        "image.png",
    ],
)
def test_what_the_manifest_does_not_have_is_not_found(name):
    with pytest.raises(KeyError):
        find_blob(manifest(), name)


def test_patterns_use_known_fields():
    fields = {field.split("}")[0] for pattern in PATTERNS.values() for field in pattern.split("{")[1:]}
    assert fields == set(FIELDS)
