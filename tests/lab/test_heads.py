"""The experiment `heads`."""

import pytest

from regard.errors import RegardError
from regard.lab import run_experiment
from regard.lab.experiments.heads import HEAD, HEADS, LOSS, RISE, WEIGHT


@pytest.mark.usefixtures("no_reports")
def test_models_differ_in_heads_only_and_every_head_is_removed_once(tmp_path):
    rows = run_experiment("heads", scale="tiny", seeds=1, out=tmp_path).rows
    whole = [row for row in rows if LOSS in row]
    assert [row[HEADS] for row in whole] == [1, 2]
    one, two = (row["parameters"] for row in whole)
    assert one == pytest.approx(two, rel=0.01)  # the norms of queries and keys are as wide as a head
    assert [row[HEAD] for row in rows if RISE in row] == ["1.1", "1.2"]
    assert all(0 <= row[WEIGHT] <= 1 for row in rows if WEIGHT in row)


@pytest.mark.parametrize("changes", [["heads=[2, 4]"], ["heads=[1, 4]"], ["heads=[1]", "studied=1"], ["studied=3"]])
def test_what_cannot_be_judged_is_refused_before_anything_is_trained(tmp_path, changes: list[str]):
    with pytest.raises(RegardError, match="heads must contain 1, another number, and the one that is studied"):
        run_experiment("heads", *changes, scale="tiny", seeds=1, out=tmp_path / "out")
    assert not (tmp_path / "out" / "runs").exists()
