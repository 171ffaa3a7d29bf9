"""The experiment `positions`."""

from regard.lab import run_experiment


def test_layer_norm_removes_linear_positions(tmp_path):
    result = run_experiment("positions", scale="tiny", seeds=1, out=tmp_path)
    found = {name: [row["accuracy"] for row in result.rows if row["positions"] == name] for name in ("none", "linear")}
    assert found["linear"] == found["none"]
    assert len(found["none"]) == 4
    assert "Linear positions are like no positions" in result.verdict.text
    assert "that length: no positions 0." in result.verdict.text
    assert "is kept by no encoding." in result.verdict.text  # not by `none`, which is one of them
