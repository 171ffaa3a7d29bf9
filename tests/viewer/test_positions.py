"""Position tables of models."""

import numpy as np
import pytest
import torch

import regard
from regard.models.model import Model
from regard.viewer.positions import LEAST, MOST, position_tables

from ..laws.cases import SHRINK, cases


def model_of(name: str) -> Model:
    return next(case for case in cases() if case.name == name).build(torch.float32)


def only(model: Model, tokens: int = 5):
    (found,) = position_tables(model, tokens)
    said = found.info()
    assert found.table.shape == (said["rows"], said["columns"])
    assert found.similar.shape == (said["similarities"], said["size"], said["size"])
    return found


def test_a_learned_table_has_only_its_own_positions():
    model = model_of("gpt2")
    found = only(model)
    assert (found.name, found.kind) == ("embed.position", "learned")
    torch.testing.assert_close(found.table, model.embed.position.table.weight[:32])
    unit = found.table / found.table.norm(dim=1, keepdim=True)
    torch.testing.assert_close(found.similar[0], unit @ unit.T)


def test_the_unused_rows_of_a_table_are_not_shown():
    first, second = position_tables(model_of("transformer-shared-tokens"), 5)
    assert {first.name, second.name} == {"embed.position", "source_embed.position"}
    model = model_of("transformer-shared-tokens")
    assert torch.equal(first.table, model.get_submodule(first.name).table.weight[2:34])


def test_sinusoids_are_those_of_the_paper():
    found = only(model_of("transformer-base"), 100)
    assert found.kind == "sinusoidal"
    place, feature = np.arange(100)[:, None], np.arange(16)
    angle = place / 10000 ** ((feature // 2 * 2) / 16)
    wanted = np.where(feature % 2, np.cos(angle), np.sin(angle))
    np.testing.assert_allclose(found.table.numpy(), wanted, atol=1e-5)
    assert found.similar[0].diagonal().sub(1).abs().max() < 1e-5


@pytest.mark.parametrize(("tokens", "rows"), [(1, LEAST), (100, 100), (1000, MOST)])
def test_the_number_of_positions(tokens, rows):
    assert len(only(model_of("transformer-base"), tokens).table) == rows


def test_linear_positions():
    changes = ["model.embed.position.kind=linear", "model.embed.position.slope=0.5", "model.embed.position.offset=1.0"]
    found = only(regard.build("transformer-base", *SHRINK["transformer-base"], *changes, seed=0))
    assert found.kind == "linear"
    torch.testing.assert_close(found.table, (torch.arange(64) * 0.5 + 1)[:, None].expand(-1, 16))


def test_rotations_are_cosines_and_sines():
    model = model_of("llama-like")
    found = only(model)
    frequencies = model.stack.layers[0].mixer.position.frequencies.values
    angles = torch.arange(64)[:, None] * frequencies
    torch.testing.assert_close(found.table, torch.cat((angles.cos(), angles.sin()), 1))
    # two equal vectors, rotated to two positions by the model itself
    ones = torch.ones(1, 1, 64, 2 * len(frequencies))
    turned = model.stack.layers[0].mixer.position.rotation(torch.arange(64)[None])(ones)[0, 0]
    torch.testing.assert_close(found.similar[0], turned @ turned.T / (2 * len(frequencies)), atol=1e-5, rtol=0)


@pytest.mark.parametrize(("name", "kind"), [("gpt2-alibi", "alibi"), ("gpt2-t5-bias", "relative-bias")])
def test_biases(name, kind):
    model = model_of(name)
    found = only(model)
    assert found.kind == kind
    position = model.stack.layers[1].mixer.position  # one for all layers
    assert (found.table.shape, found.similar.shape) == ((4, 127), (4, 64, 64))
    for head, query, key in ((0, 0, 0), (3, 10, 4), (2, 5, 63), (1, 63, 0)):
        bias = position.bias(torch.tensor(head), torch.tensor(query), torch.tensor(key))
        assert found.similar[head, query, key] == bias
        assert found.table[head, key - query + 63] == bias


def test_a_model_without_position_encoding():
    assert position_tables(model_of("lstm"), 5) == []
