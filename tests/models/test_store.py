"""Saving and reading models: the same bits, and clear errors for folders without a valid model."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file

import regard
from regard.errors import ConfigError, RegardError
from regard.models.store import read_model, save_model


@pytest.fixture
def folder(tmp_path):
    save_model(regard.build("elman", "model.vocabulary=9", "model.dim=4"), tmp_path)
    return tmp_path


def change(folder, edit):
    weights = load_file(folder / "model.safetensors")
    edit(weights)
    save_file(weights, folder / "model.safetensors")


@pytest.mark.parametrize("vocabulary", [9, 10, 11])  # so that weights start at different offsets in the file
def test_a_loaded_model_computes_the_same_bits(tmp_path, vocabulary):
    """Weights at unaligned addresses would be multiplied by other kernels."""
    changes = ("model.dim=64", "model.depth=2", "model.layers.block.mixer.heads.heads=4")
    model = regard.build("gpt2", f"model.vocabulary={vocabulary}", *changes, seed=0).eval()
    save_model(model, tmp_path)
    loaded = read_model(tmp_path).eval()
    assert {weight.data_ptr() % 64 for weight in loaded.parameters()} == {0}
    tokens = torch.arange(24).reshape(3, 8) % vocabulary
    assert torch.equal(loaded(tokens), model(tokens))


def test_missing_weight(folder):
    change(folder, lambda w: w.pop("head.bias"))
    with pytest.raises(RegardError, match="the weight 'head.bias' is missing"):
        read_model(folder)


def test_unknown_weight(folder):
    change(folder, lambda w: w.update({"head.bia": torch.zeros(9)}))
    with pytest.raises(RegardError, match="no weight 'head.bia'; did you mean 'head.bias'"):
        read_model(folder)


def test_wrong_shape(folder):
    change(folder, lambda w: w.update({"head.bias": torch.zeros(8)}))
    with pytest.raises(RegardError, match=r"head.bias has shape \(8,\), the config asks for \(9,\)"):
        read_model(folder)


def test_unknown_config_key(folder):
    table = json.loads((folder / "config.json").read_text())
    table["model"]["deph"] = 2
    (folder / "config.json").write_text(json.dumps(table))
    with pytest.raises(ConfigError, match="config.json: model.deph: unknown key; did you mean 'depth'"):
        read_model(folder)


@pytest.mark.parametrize("content", [b"", b"not a model", b"\xff" * 100])
def test_broken_weights(folder, content):
    (folder / "model.safetensors").write_bytes(content)
    with pytest.raises(RegardError, match="cannot be read as a model"):
        read_model(folder)


def test_no_model_at_all(tmp_path):
    with pytest.raises(RegardError, match="cannot be read as a model: config.json: No such file or directory$"):
        read_model(tmp_path)


@pytest.mark.parametrize("content", ["3", "null", '"x"', "[]", "not json", "[" * 99_999, "9" * 5000])
def test_broken_config(folder, content):
    (folder / "config.json").write_text(content)
    with pytest.raises(RegardError, match="config.json: must contain a table|cannot be read as a model"):
        read_model(folder)


def test_a_compiled_model_is_saved_as_it_was(tmp_path):
    model = regard.build("elman", "model.vocabulary=9", "model.dim=4")
    save_model(torch.compile(model), tmp_path)
    assert torch.equal(read_model(tmp_path).head.bias, model.head.bias)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["config.json", "model.safetensors"]


def test_a_model_without_a_config_is_not_saved(tmp_path):
    model = regard.build("elman", "model.vocabulary=9", "model.dim=4")
    model.config = None
    with pytest.raises(RegardError, match="has no config"):
        save_model(model, tmp_path)
    assert regard.cost(model, 8).parameters == sum(p.numel() for p in model.parameters())


def test_half_precision_is_kept(tmp_path):
    save_model(regard.build("elman", "model.vocabulary=9", "model.dim=4", dtype=torch.bfloat16), tmp_path)
    assert {p.dtype for p in read_model(tmp_path).parameters()} == {torch.bfloat16}


def test_saved_files_have_the_permissions_of_new_files(tmp_path):
    other = tmp_path / "other"
    other.touch()
    save_model(regard.build("elman", "model.vocabulary=9", "model.dim=4"), tmp_path)
    assert {path.stat().st_mode for path in tmp_path.iterdir()} == {other.stat().st_mode}


@pytest.mark.parametrize("number", [4000, 2_000_000, 2**31 - 1, 10**400])
def test_a_config_of_absurd_depth_is_one_line_and_builds_little(folder, number):
    config = json.loads((folder / "config.json").read_text())
    config["model"]["depth"] = number
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(
        RegardError, match=r"depth: \d+ must be between 1 and 4096|many more parts than there are weights"
    ):
        read_model(folder)


def test_a_config_of_absurd_width_is_one_line(folder):
    config = json.loads((folder / "config.json").read_text())
    config["model"]["dim"] = 2**31 - 1
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(ConfigError, match=r"model\.dim: 2147483647 must be at most 16777216"):
        read_model(folder)


@pytest.mark.parametrize("content", ["[" * 100_000, '{"model":' * 3000, "\ud800"])
def test_a_config_that_cannot_be_read_is_one_line(folder, content):
    (folder / "config.json").write_bytes(content.encode("utf-8", "surrogatepass"))
    with pytest.raises(RegardError, match=r"cannot be read as a model: config\.json: is not valid JSON") as caught:
        read_model(folder)
    assert "\n" not in str(caught.value)
