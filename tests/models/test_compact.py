"""Weights in int8 with a scale for each row."""

from pathlib import Path

import torch
from safetensors.torch import save_file

from regard.models.compact import compact_weights, expand_weights
from regard.models.recipe import build
from regard.models.store import WEIGHTS, read_model, save_model, tensors

from ..laws.cases import SHRINK


def test_rounds_to_half_a_scale() -> None:
    weights = {"a": torch.randn(5, 7), "b": torch.randn(3), "c": torch.randn(2, 3, 4)}
    packed = compact_weights(weights)
    assert set(packed) == {"a", "a.scale", "b", "c", "c.scale"}
    assert packed["a"].dtype == packed["c"].dtype == torch.int8
    found = expand_weights(packed)
    assert set(found) == set(weights)
    for name in ("a", "c"):
        scale = weights[name].flatten(1).abs().amax(1) / 127
        error = (found[name] - weights[name]).flatten(1).abs()
        assert (error <= scale[:, None] * 0.5001).all()
    assert found["b"] is weights["b"]


def test_whole_multiples_and_empty_rows_are_exact() -> None:
    rows = torch.tensor([[127.0, -3.0, 0.0], [0.0, 0.0, 0.0], [0.5, -0.5, 0.25]])
    found = expand_weights(compact_weights({"a": rows}))["a"]
    assert torch.equal(found[:2], rows[:2])
    assert torch.allclose(found[2], rows[2], atol=0.5 / 127)


def test_leaves_other_weights_alone() -> None:
    weights = {"norm.scale": torch.ones(3), "norm": torch.ones(2, 3), "ids": torch.ones(2, 2, dtype=torch.int8)}
    assert {name: found is weights[name] for name, found in expand_weights(weights).items()} == dict.fromkeys(
        weights, True
    )


def test_a_folder_with_compact_weights_is_read(tmp_path: Path) -> None:
    model = build("gpt2", *SHRINK["gpt2"], seed=0).eval()
    save_model(model, tmp_path)
    save_file({name: one.contiguous() for name, one in compact_weights(tensors(model)).items()}, tmp_path / WEIGHTS)
    found = read_model(tmp_path)
    for name, tensor in tensors(found).items():
        wanted = tensors(model)[name].detach()
        assert tensor.dtype == torch.float32
        assert torch.allclose(tensor, wanted, atol=float(wanted.abs().max()) / 127)
