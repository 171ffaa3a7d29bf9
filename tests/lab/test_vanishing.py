"""The experiment `vanishing`."""

from dataclasses import replace

import torch

from regard.lab import Lab, run_experiment
from regard.lab.experiments import find_experiment


def test_the_gradient_of_an_lstm_exceeds_that_of_an_elman_network_by_orders_of_magnitude(tmp_path):
    result = run_experiment("vanishing", scale="tiny", seeds=1, out=tmp_path)
    assert result.verdict.holds, result.verdict.text
    assert " to 10^" not in result.verdict.text  # one seed has no range
    far = {row["model"]: row["relative gradient"] for row in result.rows if row["distance"] == 100}
    assert far["LSTM, gate bias 5"] > 1000 * far["Elman, radius 0.5"]
    assert far["Elman, radius 1.5, no input"] > 1e6  # it explodes where tanh is linear
    assert far["LSTM, gate bias 0"] < 1e-6  # a closed gate does not keep it
    assert 0.1 < far["attention"] < 10


def test_other_radii_and_gates_decide_nothing_but_are_shown(tmp_path):
    """The page suggests this: all networks are beyond the edge, and no gate is half closed."""
    result = run_experiment("vanishing", "radii=[1.1, 1.5]", "gates=[1.0, 8.0]", scale="tiny", seeds=1, out=tmp_path)
    assert result.verdict.holds is None
    assert "an LSTM with gates of bias 8 changes by the factor" in result.verdict.text
    assert "an Elman network of radius 1." in result.verdict.text


def test_without_inputs_the_factor_per_step_is_the_spectral_radius(tmp_path):
    experiment = find_experiment("vanishing")
    settings = replace(experiment.scales["tiny"], radii=(0.9,), gates=())
    rows = list(experiment.measure(Lab(0, tmp_path, torch.device("cpu")), settings))
    norms = {row["distance"]: row["gradient norm"] for row in rows if row["input"] == "none"}
    assert abs((norms[100] / norms[50]) ** (1 / 50) - 0.9) < 0.02
