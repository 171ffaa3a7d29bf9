"""The bundled sample, which is served without importing anything heavy."""

import json
import subprocess
import sys

import pytest

from bench.sample import CHECKSUMS, weight_checksums
from regard.errors import RegardError
from regard.viewer import sample
from regard.viewer.blobs import all_blobs
from regard.viewer.manifest import Manifest

from ..processes import PATIENCE


def test_the_recordings_of_all_files_in_their_order(bundle):
    found = sample.sample_recordings()
    assert list(found) == ["one", "two"]
    for id, one in found.items():
        assert one.manifest() == bundle[id].manifest()
        assert {name: one.blob(name) for name in one.names()} == {name: bundle[id].blob(name) for name in one.names()}


def test_no_sample(tmp_path, monkeypatch):
    monkeypatch.setattr(sample, "FOLDER", tmp_path)
    monkeypatch.setattr(sample, "bundled_recordings", sample.bundled_recordings.__wrapped__)
    assert sample.bundled_recordings() == {}
    with pytest.raises(
        RegardError, match=r"this installation has no bundled sample; name a model \(-m RUN\) and a text"
    ):
        sample.sample_recordings()


def test_the_sample_is_served_before_torch_or_numpy_is_imported():
    program = """
import sys
from regard.viewer.sample import bundled_recordings
from regard.viewer.server import listen, make_app, serve
from regard.viewer.recording_store import RecordingStore
import regard.viewer.export, regard.viewer.notebook
make_app(RecordingStore(bundled_recordings()), [], None)
print([name for name in ("torch", "numpy", "matplotlib") if name in sys.modules])
"""
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_the_shipped_sample_has_every_blob_of_its_manifests():
    recordings = sample.bundled_recordings()
    assert {"book", "bank-money", "bank-water", "romeo", "trousers", "training", "crossing"} <= set(recordings)
    for recording in recordings.values():
        assert recording.manifest().keys() == Manifest.__annotations__.keys()
        for blob in all_blobs(recording.manifest()):
            data = recording.blob(blob.name)
            assert blob.size is None or len(data) == blob.size


def test_the_shipped_sample_was_recorded_with_the_models_in_the_box():
    recorded = json.loads(CHECKSUMS.read_text())
    assert recorded == weight_checksums(), "the models in the box have changed; record the sample again: make sample"
