"""The experiment `nonlinearity`."""

from regard.lab import run_experiment


def test_attention_alone_averages_and_does_not_learn_the_exclusive_or(tmp_path):
    result = run_experiment("nonlinearity", scale="tiny", seeds=1, out=tmp_path)
    alone = [row["distance from the mean"] for row in result.rows if row["layers are"] == "attention"]
    assert alone[0] > 0.5
    assert alone[-1] < 1e-6
    (linear,) = [row["accuracy"] for row in result.rows if row["part"] == "parity"]
    assert linear < 0.8  # a linear model gets at most three of the four cases right
