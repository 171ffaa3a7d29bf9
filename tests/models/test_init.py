"""The initial weights."""

from math import sqrt

import pytest
import torch
from torch import nn

import regard


def spread(tensor: torch.Tensor) -> float:
    return float(tensor.detach().std())


@pytest.mark.parametrize(("output", "wanted"), [("same", 0.02), ("scaled", 0.02 / sqrt(8)), ("zero", 0.0)])
def test_normal(output, wanted):
    model = regard.build("gpt2", "model.depth=4", "model.vocabulary=999", f"model.init.output={output}", seed=0)
    layer = model.stack.layers[0]
    assert spread(layer.mixer.heads.to_query.weight) == pytest.approx(0.02, rel=0.02)
    assert spread(model.embed.tokens.table.weight) == pytest.approx(0.02, rel=0.02)
    assert spread(layer.mixer.heads.output.weight) == pytest.approx(wanted, rel=0.02)
    assert spread(layer.feedforward.down.weight) == pytest.approx(wanted, rel=0.02)
    assert layer.mixer.heads.output.bias.abs().max() == 0


def test_xavier():
    model = regard.build("transformer-base", "model.vocabulary=999", seed=0)
    weight = model.encoder.layers[0].feedforward.up.weight
    assert float(weight.detach().abs().max()) == pytest.approx(sqrt(6 / (512 + 2048)), rel=0.01)
    assert spread(model.embed.tokens.table.weight) == pytest.approx(1 / sqrt(512), rel=0.02)


@pytest.mark.parametrize("recipe", ["elman", "lstm", "gru", "mut1"])
def test_uniform(recipe):
    model = regard.build(recipe, "model.init.kind=uniform", "model.init.limit=0.03", "model.embed.norm=none", seed=0)
    for name, parameter in model.named_parameters():
        if parameter.ndim > 1:
            assert float(parameter.detach().abs().max()) == pytest.approx(0.03, rel=0.01), name
        else:
            assert parameter.abs().max() == 0, name


@pytest.mark.parametrize("recipe", ["lstm", "gru"])
def test_recurrent_matrices_have_their_own_rule(recipe):
    model = regard.build(recipe, "model.init.kind=normal", seed=0)
    matrices = [p for p in model.stack.layers[0].mixer.parameters() if p.ndim == 2]
    for matrix in matrices:
        assert float(matrix.detach().abs().max()) == pytest.approx(1 / sqrt(model.config.dim), rel=0.01)


def test_norms_start_as_one_and_zero():
    model = regard.build("gpt2", "model.depth=1", "model.vocabulary=9")
    for module in model.modules():
        if isinstance(module, nn.LayerNorm):
            assert torch.equal(module.weight, torch.ones(768))
            assert torch.equal(module.bias, torch.zeros(768))


def test_a_router_starts_unbiased():
    model = regard.build("deepseek-like", "model.depth=2", "model.vocabulary=9")
    router = model.stack.layers[1].feedforward.router
    assert router.bias.abs().max() == 0
    assert router.load.abs().max() == 0
    assert spread(model.stack.layers[1].feedforward.experts.down) == pytest.approx(0.006, rel=0.02)
