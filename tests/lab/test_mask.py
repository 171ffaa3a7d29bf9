"""The experiment `mask`."""

import pytest
import torch

from regard import load_recipe
from regard.lab import run_experiment
from regard.lab.experiments.mask import HIDDEN, REPORTED, UnmaskedModel
from regard.models.language import LanguageModel


@pytest.mark.usefixtures("no_reports")
def test_without_the_mask_the_loss_looks_better_and_is_worse(tmp_path):
    result = run_experiment("mask", scale="tiny", seeds=1, out=tmp_path)
    masked, unmasked = result.rows
    assert unmasked[REPORTED] < masked[REPORTED] < unmasked[HIDDEN]
    assert masked[REPORTED] == pytest.approx(masked[HIDDEN])
    page = result.page.read_text(encoding="utf-8")
    assert "/runs/with-mask-0" in page
    assert "/runs/without-mask-0" not in page  # the viewer does not know its kind


def test_only_the_unmasked_model_sees_the_next_token():
    small = ("model.dim=8", "model.depth=1", "model.layers.block.mixer.heads.heads=2", "model.vocabulary=9")
    model = load_recipe("gpt2", *small).model.build().eval()
    unmasked = UnmaskedModel(model.embed, model.stack, model.head)
    tokens = torch.tensor([[1, 2, 3, 4]])
    other = torch.tensor([[1, 2, 3, 5]])
    for each, differs in ((model, False), (unmasked, True)):
        assert isinstance(each, LanguageModel)
        assert (each(tokens)[:, :3] != each(other)[:, :3]).any() == differs
