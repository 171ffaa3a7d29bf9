"""The recurrent encoder-decoder against its equations, step by step."""

import pytest
import torch

import regard
from regard.errors import ConfigError
from regard.models.recipe import load_recipe
from tests.laws.cases import SMALL

SOURCE = torch.tensor([[3, 1, 4, 1, 5]])
TARGET = torch.tensor([[2, 7, 1, 8]])


def build(*overrides: str) -> torch.nn.Module:
    model = regard.build("rnn-attention", *SMALL, *overrides, dtype=torch.float64, seed=0).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.3 * torch.randn_like(parameter)
    return model


def gru(cell, x, h):
    """h~ = tanh(W_xh x + W_hh (r*h) + b); h' = z*h + (1-z)*h~."""
    r, z, candidate = cell.W_x(x).chunk(3, -1)
    r = torch.sigmoid(r + h @ cell.W_hr.weight.T)
    z = torch.sigmoid(z + h @ cell.W_hz.weight.T)
    return z * h + (1 - z) * torch.tanh(candidate + (r * h) @ cell.W_hh.weight.T)


def encode(model):
    """Both directions of the one encoder layer, and h_T: the last of each."""
    layer = model.encoder.layers[0].mixer
    x = model.embed(SOURCE)[0]
    h, ahead = torch.zeros(8, dtype=x.dtype), []
    for vector in x:
        h = gru(layer.forward_layer, vector, h)
        ahead.append(h)
    last, h, back = h, torch.zeros(8, dtype=x.dtype), []
    for vector in x.flip(0):
        h = gru(layer.backward_layer, vector, h)
        back.insert(0, h)
    return torch.stack([torch.cat(pair) for pair in zip(ahead, back, strict=True)]), torch.cat((last, h))


def attend(model, s, H):
    """e_i = v.tanh(W s + U h_i + b); a = softmax(e); c = sum a_i h_i."""
    score = model.attention.score
    e = score.energy(torch.tanh(score.from_query(s) + score.from_key(H)))[:, 0]
    return e.softmax(0) @ H


@torch.no_grad()
def decode(model):
    H, summary = encode(model)
    s = torch.tanh(model.bridge(summary))
    cell, r, logits = model.cells[0], torch.zeros(16, dtype=H.dtype), []
    for y in model.embed(TARGET)[0]:
        if model.attention is None:
            s = r = gru(cell, torch.cat((y, summary)), s)
        elif model.feed == "context":
            c = attend(model, s, H)
            s = gru(cell, torch.cat((y, c)), s)
            r = torch.tanh(model.readout(torch.cat((c, s))))
        else:
            s = gru(cell, torch.cat((y, r)) if model.feed else y, s)
            r = torch.tanh(model.readout(torch.cat((attend(model, s, H), s))))
        logits.append(model.logits(r))
    return torch.stack(logits)


@pytest.mark.parametrize(
    "overrides",
    [[], ["model.feed=attended"], ["model.feed=none"], ["model.feed=none", "model.attention=none"]],
    ids=["bahdanau", "input-feeding", "luong", "bottleneck"],
)
def test_equations(overrides):
    model = build(*overrides)
    torch.testing.assert_close(model(SOURCE, TARGET)[0], decode(model), rtol=1e-10, atol=1e-10)


def test_the_bottleneck_sees_the_source_only_through_one_vector():
    model = build("model.feed=none", "model.attention=none")
    state = model.start(SOURCE)
    assert sum(value.numel() for layer in state.layers for part in layer.values() for value in part.values) == 2 * 16


def test_alignment_is_recorded_for_every_step():
    model = build()
    with regard.watch(model) as tape:
        model(SOURCE, TARGET)
    weights = tape.weights("attention")
    assert weights.shape == (1, 1, 4, 5)
    torch.testing.assert_close(weights.sum(-1), torch.ones(1, 1, 4, dtype=torch.float64))


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["model.attention=none"], "model: feed='context' needs an attention table"),
        (["model.cell.bidirectional=true"], "model.cell: a decoder cannot be bidirectional"),
        (["model.cell.kind=mut1"], "model.cell: .*mut3"),
    ],
)
def test_mistakes(overrides, message):
    with pytest.raises(ConfigError, match=message):
        regard.build("rnn-attention", *overrides)


def test_recipe_of_the_bottleneck_has_no_attention():
    assert load_recipe("rnn-seq2seq").model.attention is None
