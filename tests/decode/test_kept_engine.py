"""The engine of a model is kept between validations, so that what it captured is used again."""

import torch

from regard.decode.static import KeptEngine
from regard.models.recipe import build, load_recipe

from ..laws.cases import SHRINK


def test_the_engine_of_the_same_model_is_kept() -> None:
    config = load_recipe("gpt2", *SHRINK["gpt2"]).model
    model, other = build(config, seed=0), build(config, seed=1)
    model.train()
    kept = KeptEngine()
    with kept.of(model) as first:
        assert not model.training
        assert torch.is_inference_mode_enabled()
    assert model.training
    with kept.of(model) as second:
        assert second is first
    with kept.of(other) as third:
        assert third is not first
