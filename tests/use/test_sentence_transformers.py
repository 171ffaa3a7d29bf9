"""Folders of sentence-transformers: vectors as that package computes them, written out here step by step.

The reference was itself compared with sentence-transformers 6.2 (96 folders: four families, eight poolings, dense
layers, normalisation, prompts, cut texts; the largest difference was 1.4e-6).
"""

import json
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import regard
from regard.errors import RegardError

from .theirs import LINES, theirs, write

REFERENCE = {
    "cls": lambda x: x[0],
    "max": lambda x: x.max(0).values,
    "mean": lambda x: x.sum(0) / len(x),
    "mean_sqrt_len_tokens": lambda x: x.sum(0) / len(x) ** 0.5,
    "weightedmean": lambda x: sum(n * row for n, row in enumerate(x, 1)) / sum(range(len(x) + 1)),
    "lasttoken": lambda x: x[-1],
}
LONG = " ".join(["the red dog sleeps and two blue cats run"] * 5)
DIM = 16


@pytest.fixture(scope="module")
def plain(tmp_path_factory) -> Path:
    return write("bert-vector", tmp_path_factory.mktemp("theirs") / "bert")


@pytest.fixture
def folder(plain, tmp_path) -> Path:
    made = tmp_path / "sentences"
    made.mkdir()
    for path in plain.iterdir():
        (made / path.name).symlink_to(path)
    return made


def put(path: Path, content: Any) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(content))


def describe(folder: Path, pooling: dict[str, Any], *further: str, old: bool = False) -> Path:
    """Write modules.json and the settings of the pooling."""
    package = "sentence_transformers.models" if old else "sentence_transformers.base.modules.any"
    names = ["Transformer", "Pooling", *further]
    put(
        folder / "modules.json",
        [
            {"idx": n, "name": str(n), "path": f"{n}_{name}" if n else "", "type": f"{package}.{name}"}
            for n, name in enumerate(names)
        ],
    )
    put(folder / "1_Pooling" / "config.json", pooling)
    return folder


def dense(folder: Path, pickled: bool = False) -> dict[str, torch.Tensor]:
    """Write a dense layer from DIM to 5."""
    generator = torch.Generator().manual_seed(1)
    shapes = {"linear.weight": (5, DIM), "linear.bias": (5,)}
    weights = {name: torch.randn(shape, generator=generator) for name, shape in shapes.items()}
    name = "torch.nn.modules.activation.Tanh"
    put(
        folder / "2_Dense" / "config.json",
        {"in_features": DIM, "out_features": 5, "bias": True, "activation_function": name},
    )
    if pickled:
        torch.save(weights, folder / "2_Dense" / "pytorch_model.bin")
    else:
        save_file(weights, folder / "2_Dense" / "model.safetensors")
    return weights


def token_vectors(folder: Path, text: str, length: int | None = None) -> torch.Tensor:
    """The vectors of a text by `transformers`."""
    model, tokenizer = theirs("bert-vector", folder)
    inputs = tokenizer([text], return_tensors="pt", truncation=length is not None, max_length=length)
    with torch.no_grad():
        return model(**inputs).last_hidden_state[0]


@pytest.mark.parametrize("names", [*([name] for name in REFERENCE), ["mean", "max"]], ids="+".join)
def test_every_pooling(names, folder, plain):
    describe(folder, {"embedding_dimension": DIM, "pooling_mode": names if len(names) > 1 else names[0]})
    wanted = [torch.cat([REFERENCE[name](token_vectors(plain, line)) for name in names]).tolist() for line in LINES]
    np.testing.assert_allclose(regard.load(folder, "cpu").embed(LINES), wanted, atol=1e-5)


def test_the_flags_of_older_folders(folder, plain):
    flags = {f"pooling_mode_{name}": name in ("mean_tokens", "cls_token") for name in ("cls_token", "mean_tokens")}
    describe(folder, {"word_embedding_dimension": DIM, **flags, "pooling_mode_max_tokens": False}, old=True)
    rows = [token_vectors(plain, line) for line in LINES]
    wanted = [torch.cat([row[0], row.mean(0)]).tolist() for row in rows]  # in the order of the modes, not of the file
    np.testing.assert_allclose(regard.load(folder, "cpu").embed(LINES), wanted, atol=1e-5)


def test_dense_layers_normalisation_prompts_and_lengths(folder, plain):
    describe(folder, {"pooling_mode": "mean"}, "Dense", "Normalize")
    weights = dense(folder)
    put(folder / "sentence_bert_config.json", {"max_seq_length": 9, "do_lower_case": True})
    put(folder / "config_sentence_transformers.json", {"prompts": {"query": "RED "}, "default_prompt_name": "query"})
    texts = ["Two CATS", LONG]
    wanted = []
    for text in texts:
        pooled = token_vectors(plain, "red " + text.lower(), 9).mean(0)
        made = torch.tanh(weights["linear.weight"] @ pooled + weights["linear.bias"])
        wanted.append((made / made.norm()).tolist())
    loaded = regard.load(folder, "cpu")
    with pytest.warns(UserWarning, match="1 line was cut at the end, being over 7 tokens"):
        found = loaded.embed(texts)
    np.testing.assert_allclose(found, wanted, atol=1e-5)
    assert [line for line, _ in loaded.embed_lines(["Two CATS", "", "Red"])] == ["Two CATS", "", "Red"]
    assert np.isnan(loaded.embed(["Red", " "])[1]).all(), "a prompt does not make a text of a blank line"
    rows = [token_vectors(plain, text) for text in ("Two CATS",)]
    np.testing.assert_allclose(loaded.embed(["Two CATS"], pool="mean"), [rows[0].mean(0).tolist()], atol=1e-5)
    put(folder / "config_sentence_transformers.json", {"truncate_dim": 3})
    assert regard.load(folder, "cpu").embed(["Red"]).shape == (1, 3)


def test_a_folder_is_written_again_with_its_modules(folder, tmp_path):
    describe(folder, {"pooling_mode": "weightedmean"}, "Dense", "Normalize")
    weights = dense(folder, pickled=True)
    put(folder / "config_sentence_transformers.json", {"prompts": {"query": "red "}, "default_prompt_name": None})
    put(folder / "sentence_bert_config.json", {"max_seq_length": 12})
    with pytest.raises(RegardError, match=r"2_Dense/pytorch_model.bin: is a pickle"):
        regard.convert(folder, "huggingface", tmp_path / "again")
    regard.convert(folder, "huggingface", tmp_path / "again", allow_pickle=True)
    for name in ("modules.json", "1_Pooling/config.json", "2_Dense/config.json"):
        assert (tmp_path / "again" / name).read_text() == (folder / name).read_text()
    for name in ("config_sentence_transformers.json", "sentence_bert_config.json"):
        assert (tmp_path / "again" / name).read_text() == (folder / name).read_text()
    assert (tmp_path / "again" / "3_Normalize").is_dir()
    found = load_file(tmp_path / "again" / "2_Dense" / "model.safetensors")
    assert {name: tensor.tolist() for name, tensor in found.items()} == {
        name: tensor.tolist() for name, tensor in weights.items()
    }
    before = regard.load(folder, "cpu", allow_pickle=True).embed(LINES)
    np.testing.assert_array_equal(regard.load(tmp_path / "again", "cpu").embed(LINES), before)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("modules.json", {}, "modules.json: must contain a list of modules"),
        ("modules.json", [{"type": 3}], "modules.json: module 0 must have a type and a path"),
        ("modules.json", [], "modules.json: names 0 modules; a Transformer and a Pooling are needed"),
        (
            "modules.json",
            [{"type": "sentence_transformers.models.StaticEmbedding", "path": ""}],
            "modules.json: module 0 is 'sentence_transformers.models.StaticEmbedding'; a Transformer, a Pooling, then",
        ),
        (
            "modules.json",
            [{"type": "sentence_transformers.models.Transformer", "path": "0_Transformer"}],
            "modules.json: the model is in '0_Transformer'; move its files into",
        ),
        (
            "modules.json",
            [
                {"type": "sentence_transformers.models.Transformer", "path": ""},
                {"type": "sentence_transformers.models.Pooling", "path": "../elsewhere"},
            ],
            "modules.json: the path '../elsewhere' must be a folder in this folder",
        ),
        (
            "1_Pooling/config.json",
            {"pooling_mode": "median"},
            "config.json: unknown pooling_mode 'median'; did you mean",
        ),
        (
            "1_Pooling/config.json",
            {"pooling_mode": [["mean"]]},
            r"config.json: unknown pooling_mode \['mean'\]; did you",
        ),
        (
            "1_Pooling/config.json",
            {"embedding_dimension": 99},
            "config.json: is for vectors of width 99, but those before it have 16",
        ),
        (
            "2_Dense/config.json",
            {"in_features": DIM, "out_features": 4},
            r"model.safetensors: holds .* requires .*linear.weight",
        ),
        (
            "2_Dense/config.json",
            {"in_features": DIM, "activation_function": "os.system"},
            "activation_function='os.system' is not supported; only torch.nn",
        ),
        ("config_sentence_transformers.json", {"truncate_dim": 0}, "truncate_dim=0 must be a whole number, at least 1"),
        ("config_sentence_transformers.json", {"default_prompt_name": "x"}, "default_prompt_name='x' must be the name"),
        (
            "config_sentence_transformers.json",
            {"default_prompt_name": []},
            r"default_prompt_name=\[\] must be the name",
        ),
        ("sentence_bert_config.json", {"max_seq_length": "long"}, "max_seq_length='long' must be a number of tokens"),
        ("sentence_bert_config.json", {"max_seq_length": inf}, "max_seq_length=inf must be a number of tokens"),
        (
            "sentence_bert_config.json",
            {"transformer_task": "fill-mask"},
            "transformer_task='fill-mask' is not supported",
        ),
    ],
)
def test_what_is_not_understood_is_an_error(name, content, message, folder):
    describe(folder, {"pooling_mode": "mean"}, "Dense")
    dense(folder)
    put(folder / name, content)
    with pytest.raises(RegardError, match=message) as error:
        regard.load(folder, "cpu")
    assert "\n" not in str(error.value)


def test_a_language_model_can_be_pooled(tmp_path):
    folder = describe(write("gpt2", tmp_path / "gpt2"), {"pooling_mode": "lasttoken"}, "Normalize")
    model, tokenizer = theirs("gpt2", folder)
    with torch.no_grad():
        rows = [model.transformer(**tokenizer([line], return_tensors="pt")).last_hidden_state[0, -1] for line in LINES]
    wanted = [(row / row.norm()).tolist() for row in rows]
    np.testing.assert_allclose(regard.load(folder, "cpu").embed(LINES), wanted, atol=1e-5)
