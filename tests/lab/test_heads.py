"""The experiment `heads`."""

import pytest
import torch

from regard import load_recipe
from regard.lab import run_experiment
from regard.lab.experiments.heads import HEAD, HEADS, LOSS, RISE, WEIGHT, without_head


@pytest.mark.usefixtures("no_reports")
def test_models_differ_in_heads_only_and_every_head_is_removed_once(tmp_path):
    rows = run_experiment("heads", scale="tiny", seeds=1, out=tmp_path).rows
    whole = [row for row in rows if LOSS in row]
    assert [row[HEADS] for row in whole] == [1, 2]
    one, two = (row["parameters"] for row in whole)
    assert one == pytest.approx(two, rel=0.01)  # the norms of queries and keys are as wide as a head
    assert [row[HEAD] for row in rows if RISE in row] == ["1.1", "1.2"]
    assert all(0 <= row[WEIGHT] <= 1 for row in rows if WEIGHT in row)


def test_a_head_that_is_switched_off_adds_nothing_and_comes_back():
    small = ("model.dim=8", "model.depth=1", "model.layers.block.mixer.heads.heads=2", "model.vocabulary=9")
    model = load_recipe("gpt2", *small).model.build().eval()
    (role,) = model.attentions()
    heads = model.get_submodule(role.name).heads
    tokens = torch.tensor([[1, 2, 3]])
    whole = model(tokens)
    with without_head(model, role, 1):
        without = model(tokens)
    assert not torch.equal(whole, without)
    assert torch.equal(model(tokens), whole)
    with torch.no_grad():
        heads.output.weight[:, 4:] = 0  # what the second head writes
    torch.testing.assert_close(model(tokens), without)
