"""Training snapshots as a recording with several steps."""

import json
from collections.abc import Iterator
from io import BytesIO

import numpy as np
import pytest
import torch
from PIL.Image import open as open_image
from safetensors.torch import load_file, save_file

from regard.errors import RegardError
from regard.training.run import open_run
from regard.use.bundle import Bundle
from regard.viewer.blobs import all_blobs
from regard.viewer.query import Query
from regard.viewer.record import record
from regard.viewer.recording import pack_recordings, unpack_recordings
from regard.viewer.training_recording import TrainingRecording, record_training

from . import read_blobs as blobs
from .snapshots import STEPS, write

CASES = {
    "translator": ("translation", "translator"),
    "bahdanau": ("translation", "rnn-attention"),
    "language": ("language", "gpt2"),
    "masked": ("masked", "bert"),
    "classification": ("classification", "bert"),
    "vision": ("vision", "vit"),
    "trajectories": ("trajectories", "forecaster"),
}


@pytest.fixture(autouse=True, scope="module")
def _cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REGARD_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(params=CASES, scope="module")
def case(request, tmp_path_factory):
    run, models = write(tmp_path_factory.mktemp("case"), *CASES[request.param])
    training = record_training(run)
    assert isinstance(training, TrainingRecording)
    return training, models


def test_weights_and_statistics_are_those_of_each_step(case):
    """They equal those of a live recording of the model at that step."""
    training, models = case
    manifest = training.manifest()
    assert manifest["steps"] == list(STEPS)
    assert (manifest["title"], manifest["whole"]) == ("a run, training", True)
    inputs = training.probe.inputs
    for step, model in enumerate(models):
        if "images" in inputs:
            task = open_run(training.folder).config.task
            live = record(Bundle(model, mean=task.mean, std=task.std), Query(image=pixels(training)))
        elif "tracks" in inputs:
            live = record(model, Query(scene(inputs["tracks"][0], inputs["present"][0])))
        else:
            rows = {name: tensor[0].tolist() for name, tensor in inputs.items()}
            live = record(model, Query(rows.get("tokens") or rows["source"], target=rows.get("target"), tokens=0))
        known = {one["id"]: one for one in live.manifest()["attentions"]}
        wanted = blobs.weights(live)
        assert list(known) == [one["id"] for one in manifest["attentions"]]
        for one, (id, found) in zip(manifest["attentions"], blobs.weights(training, step).items(), strict=True):
            np.testing.assert_allclose(found, wanted[id], atol=2e-3)
            for name, numbers in one["statistics"].items():
                assert len(numbers) == len(STEPS)
                assert numbers[step] == pytest.approx(known[id]["statistics"][name][0], abs=5e-3)
            assert np.array_equal(blobs.mask(training, one), blobs.mask(live, known[id]))
            same = ("kind", "layer", "name", "heads", "groups", "queries", "keys", "rows", "columns", "mask", "score")
            assert {key: one[key] for key in same} == {key: known[id][key] for key in same}
            assert not one["arithmetic"]
        overview = blobs.numbers(live, "overview", step=0)
        assert abs(blobs.numbers(training, "overview", step=step) - overview).max() <= 1


def scene(tracks: torch.Tensor, present: torch.Tensor) -> str:
    """Write the rows of a scene whose agents are observed for three steps."""
    numbered = enumerate(zip(tracks.tolist(), present.tolist(), strict=True))
    return "; ".join(f"{index % 3} {index // 3 + 1} {x!r} {y!r}" for index, ((x, y), here) in numbered if here)


def pixels(training: TrainingRecording) -> np.ndarray:
    with open_image(BytesIO(training.blob("image.png"))) as file:
        return np.array(file)


def test_it_can_be_stored(case):
    training, _ = case
    (found,) = unpack_recordings(pack_recordings({"one": training})).values()
    assert found.manifest() == json.loads(json.dumps(training.manifest(), allow_nan=False))
    for blob in all_blobs(training.manifest()):
        assert found.blob(blob.name) == training.blob(blob.name)
        assert blob.size is None or blob.size == len(training.blob(blob.name))


def test_tokens_are_those_of_the_runs_tokenizer(case):
    training, _ = case
    manifest = training.manifest()
    if training.tokenizer is None:
        kinds = {"patches": "an image", "steps": "a scene"}
        (sequence,) = manifest["sequences"]
        assert manifest["text"] == kinds[sequence]
        return
    for name, row in training.probe.inputs.items():
        assert [token["id"] for token in manifest["sequences"][name]] == row[0].tolist()
        assert [token["text"] for token in manifest["sequences"][name]] == training.tokenizer.pieces(row[0].numpy())
    assert manifest["text"] == training.tokenizer.decode([next(iter(training.probe.inputs.values()))[0].tolist()])[0]
    if "target" in manifest["sequences"]:
        written = [token["id"] for token in manifest["sequences"]["written"]]
        assert written == [*training.probe.inputs["target"][0, 1:].tolist(), training.tokenizer.end]
    for one in manifest["attentions"]:
        assert one["rows"] == len(manifest["sequences"][one["queries"]])


def test_it_begins_with_a_head_of_the_last_step(case):
    training, _ = case
    begin = training.manifest()["begin"]
    one = blobs.attention(training, begin["attention"])
    assert begin["head"] < one["heads"]
    tokens = training.manifest()["sequences"]
    assert not tokens[one["queries"]][begin["query"]]["special"]
    assert not tokens[one["keys"]][begin["key"]]["special"]


def test_unknown_blobs(case):
    training, _ = case
    wrong = ["attention/3.f16", "attention/0.u8", "overview/0.f16", "overview/00.u8", "mask/x.bits", "next/0.f32", ""]
    wrong += [] if training.picture else ["image.png"]
    for name in [*wrong, "vectors/self.1/0.f32", "row/self.1/0/0.f32", "hidden/tokens/0.f32"]:
        with pytest.raises(KeyError):
            training.blob(name)


def test_the_image_is_the_one_that_was_given(case):
    training, _ = case
    if training.picture is None:
        assert training.manifest()["image"] is None
        return
    with np.load(training.folder.parent / "images.npz") as file:
        images = file["images"]
    assert any(np.array_equal(pixels(training), image[..., 0]) for image in images)
    said = training.manifest()["image"]
    assert (said["width"], said["height"]) == (12, 8)


def test_only_some_heads_and_layers_were_kept(tmp_path):
    run, _ = write(tmp_path, "language", "gpt2")
    for path in (run / "probe").glob("step-*"):
        weights = load_file(path)
        save_file({"stack.layers.1.mixer": weights["stack.layers.1.mixer"][:3].contiguous()}, path)
    training = record_training(run)
    (one,) = training.manifest()["attentions"]
    assert (one["id"], one["heads"]) == ("self.2", 3)
    assert blobs.weights(training)["self.2"].shape == (3, one["rows"], one["columns"])


def test_a_run_without_snapshots(tmp_path):
    run, _ = write(tmp_path, "language", "gpt2")
    for path in (run / "probe").iterdir():
        path.unlink()
    assert record_training(run) is None
    (run / "probe").rmdir()
    assert record_training(run) is None
    assert record_training(tmp_path / "nowhere") is None


def test_snapshots_of_another_run(tmp_path):
    run, _ = write(tmp_path, "language", "gpt2")
    for path in (run / "probe").glob("step-*"):
        save_file({"stack.layers.9.mixer": torch.zeros(2, 3, 3)}, path)
    said = r"probe: the snapshot of stack.layers.9.mixer \(2 x 3 x 3\) does not belong to this run; remove the folder"
    with pytest.raises(RegardError, match=said):
        record_training(run)


def test_a_missing_snapshot(tmp_path):
    run, _ = write(tmp_path, "language", "gpt2")
    training = record_training(run)
    training.manifest()
    (run / "probe/step-00000010.safetensors").unlink()
    assert training.blob("attention/2.f16")
    with pytest.raises(RegardError, match="there is no snapshot of step 10"):
        training.blob("attention/1.f16")
