"""Scenes in the viewer: tokens are named agent@step, and the answers are where agents may be."""

from pathlib import Path

import pytest

from regard.errors import InputError
from regard.viewer.model_handle import ModelHandle
from regard.viewer.query import Query
from regard.viewer.record import record

from ..tasks.corpora import walks
from ..use.made import loaded
from . import read_blobs as blobs

ROWS = "0 a 0 0; 10 a 1 0; 20 a 2 0; 10 b 5 1; 20 b 6 1"


def test_steps_of_agents_are_pieces_of_a_word_and_absent_ones_are_special():
    recording = record(loaded("trajectories"), Query(ROWS))
    manifest = recording.manifest()
    tokens = manifest["sequences"]["steps"]
    assert [token["text"] for token in tokens] == ["a@1", "a@2", "a@3", "b@1", "b@2", "b@3"]
    assert [token["word"] for token in tokens] == [0, 0, 0, -1, 1, 1]
    assert [token["special"] for token in tokens] == [False, False, False, True, False, False]
    assert manifest["text"] == "0 a 0 0; 10 a 1 0; 10 b 5 1; 20 a 2 0; 20 b 6 1"
    assert {one["queries"] for one in manifest["attentions"]} == {"steps"}
    for one, weights in zip(manifest["attentions"], blobs.weights(recording).values(), strict=True):
        assert one["bias"]  # the difference between an agent's own projections and those for others
        assert weights.shape == (4, 6, 6)
        assert (weights[:, :, 3] == 0).all()
    assert blobs.mask(recording, manifest["attentions"][0])[:, 3].sum() == 0


def test_the_answers_are_where_each_agent_may_be():
    ready = loaded("trajectories")
    first, second = record(ready, Query(ROWS)).manifest()["answers"]
    assert first["question"] == "Where is agent a after 2 steps?"
    assert second["question"] == "Where is agent b after 2 steps?"
    found = ready.forecast(_scene(ROWS))
    x, y = found.paths[0, 0, -1]
    assert first["guesses"][0]["text"] == f"{x:.2f} {y:.2f}"
    assert first["guesses"][0]["probability"] == pytest.approx(float(found.probabilities[0, 0]), abs=1e-5)


def _scene(text):
    from regard.data.tracks import parse_scene

    return parse_scene(text, 3, 2)


def test_files_frames_and_many_agents(tmp_path):
    path = walks(tmp_path / "a.txt", agents=5)
    recording = record(loaded("trajectories"), Query(f"{path}@100", longest=9))
    manifest = recording.manifest()
    assert len(manifest["sequences"]["steps"]) == 9
    assert manifest["notes"] == ["Cut to the first 3 of 5 agents; the viewer does not show more."]


def test_a_model_of_scenes_without_snapshots_asks_for_tracks():
    handle = ModelHandle(Path("walkers"), "walkers")
    handle.hold(loaded("trajectories").bundle)
    handle.training = lambda: None
    with pytest.raises(InputError, match="walkers: has no snapshots of its training; give a file of tracks to look at"):
        handle.recordings(None)


def test_what_a_scene_is_not(tmp_path):
    with pytest.raises(InputError, match="needs tracks; give a file, or rows"):
        record(loaded("trajectories"), Query(" "))
    with pytest.raises(InputError, match="reads tracks; leave the image out"):
        record(loaded("trajectories"), Query(ROWS, image="a.png"))
    with pytest.raises(InputError, match=r"^no\.txt: no such file; give FILE, FILE@FRAME, or rows such as 0 a 1"):
        record(loaded("trajectories"), Query("no.txt@30"))
    with pytest.raises(InputError, match=r"^x{77}\.\.\.: no such file; give FILE"):
        record(loaded("trajectories"), Query("x" * 5000))
    with pytest.raises(InputError, match="the text:1: has 2 columns"):
        record(loaded("trajectories"), Query("1 2; 3 4"))
