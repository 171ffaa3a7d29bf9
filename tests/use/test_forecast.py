"""Forecasts of scenes: the model's own futures, the most likely first, as numbers and as a table."""

import csv
from io import StringIO

import numpy as np
import pytest
import torch

from regard.data.tracks import parse_scene
from regard.errors import InputError
from regard.models.recipe import build
from regard.use.bundle import Bundle
from regard.use.loaded_model import LoadedModel
from regard.use.precision import prepare

from ..laws.cases import SHRINK
from ..tasks.corpora import walks
from .made import loaded

ROWS = "0 a 0 0; 10 a 1 0; 20 a 2 0; 10 b 5 1; 20 b 6 1; 20 c 9 9"


@pytest.fixture
def forecaster() -> LoadedModel:
    return LoadedModel(Bundle(build("forecaster", *SHRINK["forecaster"], seed=0).eval(), "here"))


def test_futures_are_those_of_the_model_sorted_by_probability(forecaster):
    scene = parse_scene(ROWS, 3, 2)
    found = forecaster.forecast(scene)
    assert found.paths.shape == (3, 3, 2, 2)
    np.testing.assert_allclose(found.probabilities.sum(1), 1, rtol=1e-5)
    assert (np.diff(found.probabilities, axis=1) <= 0).all()
    tracks = torch.from_numpy(np.nan_to_num(scene.positions, nan=0.0)).reshape(1, -1, 2)
    with torch.no_grad():
        paths, logits = forecaster.model(tracks, torch.from_numpy(scene.present).reshape(1, -1))
    best = logits[0].argmax(-1)
    np.testing.assert_allclose(found.paths[:, 0], paths[0, torch.arange(3), best], rtol=1e-5)


def test_the_table_has_a_row_for_each_agent_future_and_step(forecaster):
    found = forecaster.forecast(parse_scene(ROWS, 3, 2))
    rows = list(csv.DictReader(StringIO(found.to_csv())))
    assert list(rows[0]) == ["frame", "agent", "future", "probability", "x", "y"]
    assert len(rows) == 3 * 3 * 2
    assert [(row["frame"], row["agent"], row["future"]) for row in rows[:3]] == [
        ("30", "a", "1"),
        ("40", "a", "1"),
        ("30", "a", "2"),
    ]
    assert float(rows[1]["x"]) == pytest.approx(float(found.paths[0, 0, 1, 0]), abs=1e-3)


def test_a_file_up_to_a_frame(forecaster, tmp_path):
    path = walks(tmp_path / "a.txt", steps=9)
    assert forecaster.forecast(path).scene.frame == 80
    early = forecaster.forecast(tmp_path / "a.txt", frame=0)
    assert early.scene.agents == ("1",)  # seen for one step only
    assert np.isfinite(early.paths).all()


@pytest.mark.unchecked
@pytest.mark.parametrize(("scene", "frame", "rule"), [(5, None, "scene=5 must be a path"), (None, "0", "in frame 0;")])
def test_what_is_not_a_file_or_a_frame_is_rejected(forecaster, tmp_path, scene, frame, rule):
    with pytest.raises(InputError, match=rule):
        forecaster.forecast(scene or walks(tmp_path / "a.txt"), frame=frame)


def test_other_models_cannot_forecast(tmp_path):
    with pytest.raises(InputError, match="here: is a language model and cannot forecast; use `generate` or `embed`"):
        loaded("language").forecast(walks(tmp_path / "a.txt"))


def test_int8_is_close(forecaster):
    scene = parse_scene(ROWS, 3, 2)
    exact = forecaster.forecast(scene)
    model = prepare(build("forecaster", *SHRINK["forecaster"], seed=0), "int8")
    rough = LoadedModel(Bundle(model, "here")).forecast(scene)
    assert np.abs(exact.paths.mean(1) - rough.paths.mean(1)).max() < 0.2


def test_half_precision_keeps_positions(forecaster):
    scene = parse_scene(ROWS.replace("0 a", "100 a"), 3, 2)
    half = LoadedModel(Bundle(build("forecaster", *SHRINK["forecaster"], seed=0).eval().bfloat16(), "here"))
    full, rough = forecaster.forecast(scene), half.forecast(scene)
    assert np.abs(full.paths.mean(1) - rough.paths.mean(1)).max() < 0.3
