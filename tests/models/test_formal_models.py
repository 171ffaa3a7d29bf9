"""The models against the formal algorithms, on random weights, to 1e-10."""

import numpy as np
import torch

import regard
from regard import formal
from regard.config import from_table
from regard.lab.formal_weights import as_array, decoder_theta, encoder_theta, seq2seq_theta
from regard.models.recipe import MODELS

NORM = {"kind": "layer", "eps": 0.0}
MIXER = {"kind": "attention", "heads": {"kind": "multi", "heads": 2, "bias": "all"}}
EMBED = {"position": {"kind": "learned", "length": 12}}


def mlp(activation: str) -> dict:
    return {"kind": "mlp", "hidden": 10, "activation": activation}


def build(kind: str, **table) -> torch.nn.Module:
    config = from_table({"vocabulary": 11, "dim": 6, "embed": EMBED, **table}, MODELS[kind])
    model = regard.build(config, dtype=torch.float64, seed=0).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.5 * torch.randn_like(parameter)
    return model


def assert_same(logits: torch.Tensor, P: np.ndarray) -> None:
    np.testing.assert_allclose(as_array(logits.softmax(-1)).T, P, rtol=0, atol=1e-10)


X = [3, 1, 4, 1, 5, 9, 2]
Z = [2, 7, 1, 8, 2]


def test_language_model_is_algorithm_10():
    block = {"residual": "pre", "norm": NORM, "mixer": MIXER, "feedforward": mlp("gelu")}
    model = build("language", depth=2, layers={"block": block}, norm=NORM, head={"tied": False})
    theta = decoder_theta(model)
    assert_same(model(torch.tensor([X]))[0], formal.d_transformer(X, theta))


def test_encoder_is_algorithm_9():
    block = {"residual": "post", "norm": NORM, "mixer": MIXER, "feedforward": mlp("gelu")}
    head = {"kind": "tokens", "tied": False, "transform": "gelu", "norm": NORM}
    model = build("encoder", depth=2, layers={"block": block}, head=head)
    theta = encoder_theta(model)
    assert_same(model(torch.tensor([X]))[0], formal.e_transformer(X, theta))


def test_seq2seq_is_algorithm_8():
    block = {"residual": "post", "norm": NORM, "mixer": MIXER, "feedforward": mlp("relu")}
    cross = {**block, "cross": {"heads": MIXER["heads"]}}
    model = build(
        "seq2seq",
        encoder={"depth": 2, "layers": {"block": block}},
        decoder={"depth": 2, "layers": {"block": cross}},
        head={"tied": False},
    )
    theta = seq2seq_theta(model)
    assert_same(model(torch.tensor([Z]), torch.tensor([X]))[0], formal.ed_transformer(Z, X, theta))


def test_one_update_is_algorithm_13():
    """One gradient step of the torch model equals the step of DTraining, up to its central differences."""
    block = {"residual": "pre", "norm": NORM, "mixer": MIXER, "feedforward": mlp("gelu")}
    model = build("language", depth=1, layers={"block": block}, norm=NORM, head={"tied": False})
    theta = decoder_theta(model)
    trained = formal.d_training([X], theta, eta=0.05, epochs=1)
    logits = model(torch.tensor([X[:-1]]))[0]
    torch.nn.functional.cross_entropy(logits, torch.tensor(X[1:]), reduction="sum").backward()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter -= 0.05 * parameter.grad
    updated = decoder_theta(model)
    np.testing.assert_allclose(trained.W_e, updated.W_e, atol=1e-7)
    np.testing.assert_allclose(trained.W_u, updated.W_u, atol=1e-7)
    found, wanted = trained.layers[0].attention, updated.layers[0].attention
    np.testing.assert_allclose(found.W_o, wanted.W_o, atol=1e-7)
    np.testing.assert_allclose(found.heads[0].W_q, wanted.heads[0].W_q, atol=1e-7)
    assert np.abs(found.W_o - theta.layers[0].attention.W_o).max() > 1e-4
