"""The experiment `depth`."""

from regard.lab import run_experiment


def test_without_residual_connections_the_gradient_does_not_reach_the_first_layer(tmp_path):
    result = run_experiment("depth", scale="tiny", seeds=1, out=tmp_path)
    ratio = {(row["stack"], row["depth"]): row["first / last"] for row in result.rows if row["part"] == "gradient"}
    assert ratio["no residual, no norm", 12] < 1e-3 * ratio["no residual, no norm", 2]
    assert 0.1 < ratio["pre-norm", 12] < 100
    assert [row["stack"] for row in result.rows if row["part"] == "trained"] == ["no residual, no norm"]
    assert "with 2 layers: no residual, no norm 0." in result.verdict.text  # one depth was trained, and is named once
