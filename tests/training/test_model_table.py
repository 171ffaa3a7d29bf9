"""Fitting the model's table to the data."""

from regard.training.model_table import fill_missing


def test_the_sizes_of_a_part_are_left_out_where_another_override_removed_it():
    removed = {"mixer": {"kind": "attention"}}
    assert fill_missing(removed, ["feedforward"], {"hidden": 64}) == removed
    assert fill_missing({"feedforward": {"kind": "mlp"}}, ["feedforward"], {"hidden": 64}) == {
        "feedforward": {"hidden": 64, "kind": "mlp"}
    }
