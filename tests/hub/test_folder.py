"""What is written for Hugging Face, and what is rejected because no family can express it."""

import json

import pytest
import torch
import transformers
from safetensors.torch import load_file

import regard
from regard.config import to_table
from regard.errors import RegardError
from regard.hub import folder as hub
from regard.hub.details import Details, read_details
from regard.hub.folder import find_conversion, huggingface_obstacle, is_huggingface, load_huggingface, save_huggingface
from tests.hub.cases import GPT2, ask_ours, ask_theirs, batch, case_named, compare
from tests.hub.spoil import WEIGHTS, change_config

TINY = ["model.vocabulary=29", "model.dim=16", "model.depth=2"]


def test_large_models_are_written_as_several_files(gpt2, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(hub, "MAX_FILE_BYTES", 4000)
    model = load_huggingface(gpt2).eval()
    save_huggingface(model, tmp_path / "out")
    assert len(list((tmp_path / "out").glob("model-*-of-*.safetensors"))) > 2
    theirs = transformers.GPT2LMHeadModel.from_pretrained(tmp_path / "out").eval()
    case, data = case_named("gpt2"), batch()
    compare(ask_theirs(theirs, case, data), ask_ours(model, case, data), data, 1e-5)
    assert load_huggingface(tmp_path / "out").config == model.config


@pytest.mark.parametrize(
    ("recipe", "changes", "reason"),
    [
        ("lstm", [], "mixer: lstm instead of attention"),
        ("rnn-attention", [], "this model, of kind recurrent-seq2seq; regard writes gpt2, llama,"),
        ("gpt2", ["model.head.cap=30.0"], "the nearest is gpt2: model.head.cap: 30.0 instead of none"),
        (
            "gpt2",
            ["model.layers.block.mixer.score.kind=cosine"],
            "model.layers.block.mixer.score: cosine instead of dot",
        ),
        ("gpt2", ["model.layers.block.mixer.window=5"], "gpt2: model.layers.block.mixer.window: 5 instead of none"),
        ("gpt2", ["model.layers.block.residual=post"], "gpt2: model.layers.block.residual: post instead of pre"),
        ("llama-like", ["model.norm.eps=1e-3"], "llama: model.norm.eps: 0.001 instead of 1e-05"),
        (
            "bert",
            ["model.head.kind=classes", "model.head.pool.kind=mean"],
            "bert: model.head.pool: mean instead",
        ),
        (
            "deepseek-like",
            ["model.layers.dense.feedforward.activation=relu"],
            "deepseek_v3: model.layers.dense.feedforward.activation: relu instead of silu",
        ),
        ("transformer-base", [], "marian: model.embed.position.layout: interleaved instead of halves"),
        (
            "vit",
            ["model.head.pool.kind=mean", "model.position.length=196"],
            "vit: model.head.pool: mean instead",
        ),
    ],
)
def test_models_that_no_family_expresses_are_rejected_with_the_reason(recipe, changes, reason, tmp_path) -> None:
    config = regard.load_recipe(recipe, *changes).model
    assert reason in (huggingface_obstacle(config) or "")
    small = [] if recipe == "vit" else ["model.vocabulary=29"]
    model = regard.build(recipe, *changes, *small, device="meta")
    with pytest.raises(RegardError, match="no Hugging Face architecture can express this model[;,] (the ne|of k)"):
        save_huggingface(model, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("recipe", ["gpt2", "bert", "vit", "llama-like", "deepseek-like"])
def test_recipes_can_be_written(recipe) -> None:
    assert huggingface_obstacle(regard.load_recipe(recipe).model) is None


def test_settings_of_training_do_not_matter() -> None:
    config = regard.load_recipe("llama-like", "model.layers.block.dropout=0.3", "model.embed.dropout=0.2").model
    assert find_conversion(config).family.model_type == "llama"


def test_a_missing_bias_is_written_as_zeros(tmp_path) -> None:
    """GPT-2 without biases, also in its norms, equals one whose biases are zero."""
    changes = [*TINY, "model.layers.block.mixer.heads.heads=4", "model.layers.block.mixer.heads.bias=no"]
    changes += [
        "model.layers.block.feedforward.bias=false",
        "model.norm.bias=false",
        "model.layers.block.norm.bias=false",
    ]
    model = regard.build("gpt2", *changes, seed=0).eval()
    save_huggingface(model, tmp_path)
    weights = load_file(tmp_path / WEIGHTS)
    assert not weights["transformer.h.0.attn.c_attn.bias"].any()
    theirs = transformers.GPT2LMHeadModel.from_pretrained(tmp_path).eval()
    case, data = case_named("gpt2"), batch()
    compare(ask_theirs(theirs, case, data), ask_ours(model, case, data), data, 1e-5)


def test_a_model_by_hand_cannot_be_written(tmp_path) -> None:
    model = regard.build("gpt2", *TINY, "model.layers.block.mixer.heads.heads=4")
    model.config = None
    with pytest.raises(RegardError, match="has no config"):
        save_huggingface(model, tmp_path)


def test_a_compiled_model_is_written_as_it_was(gpt2, tmp_path) -> None:
    model = load_huggingface(gpt2)
    save_huggingface(torch.compile(model), tmp_path / "out")
    assert load_file(tmp_path / "out" / WEIGHTS).keys() == load_file(gpt2 / WEIGHTS).keys()


def test_auto_classes_load_it(tmp_path) -> None:
    changes = [*TINY, "model.layers.block.mixer.heads.heads=4", "model.layers.block.mixer.heads.kv_heads=2"]
    model = regard.build("llama-like", *changes, "model.layers.block.feedforward.hidden=24", seed=0).eval()
    details = Details(length=77, start=2, end=(3, 4), pad=1, generation={"temperature": 0.5, "do_sample": True})
    save_huggingface(model, tmp_path, details)
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path)
    assert theirs.generation_config.eos_token_id == [3, 4]
    assert theirs.generation_config.temperature == 0.5
    assert theirs.config.max_position_embeddings == 77
    assert read_details(tmp_path) == details
    assert is_huggingface(tmp_path)


def test_the_padding_of_roberta_follows_from_its_positions(tmp_path) -> None:
    case_named("roberta").save(tmp_path)
    model = load_huggingface(tmp_path)
    with pytest.raises(RegardError, match="roberta with these positions pads with token 1, but the padding is token 0"):
        save_huggingface(model, tmp_path / "out", Details(pad=0))
    assert not (tmp_path / "out").exists()


def test_images_have_no_tokens(tmp_path) -> None:
    case_named("vit").save(tmp_path)
    save_huggingface(load_huggingface(tmp_path), tmp_path / "out")
    assert not [key for key in json.loads((tmp_path / "out" / "config.json").read_text()) if "token" in key]


def test_a_feed_forward_of_one_layer_is_refused() -> None:
    config = regard.load_recipe("bert", "model.layers.block.feedforward.hidden=none").model
    assert "the nearest is" in (huggingface_obstacle(config) or "")


def test_classes_keep_their_names(tmp_path) -> None:
    case_named("bert-classes").save(tmp_path)
    model = load_huggingface(tmp_path)
    save_huggingface(model, tmp_path / "out", Details(labels=("bad", "good", "so so")))
    theirs = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "out")
    assert theirs.config.id2label == {0: "bad", 1: "good", 2: "so so"}
    assert read_details(tmp_path / "out").labels == ("bad", "good", "so so")
    with pytest.raises(RegardError, match="2 labels were given for 3 classes"):
        save_huggingface(model, tmp_path / "more", Details(labels=("bad", "good")))
    assert not (tmp_path / "more").exists()


def test_our_own_folder_is_not_a_hugging_face_folder(tmp_path) -> None:
    regard.save_model(regard.build("elman", "model.vocabulary=9", "model.dim=4"), tmp_path)
    assert not is_huggingface(tmp_path)
    assert not is_huggingface(tmp_path / "nowhere")


def test_classes_that_an_old_file_counts_but_does_not_label(tmp_path) -> None:
    """Like files of 2020: id2label has two labels, whatever the number of classes."""
    case_named("bert-classes").save(tmp_path)
    change_config(tmp_path, num_labels=3, id2label={"0": "LABEL_0", "1": "LABEL_1"}, eos_token_ids=0)
    assert load_huggingface(tmp_path).config.head.classes == 3
    assert read_details(tmp_path).labels == ()


def test_details_that_cannot_be_read(gpt2) -> None:
    (gpt2 / "generation_config.json").write_text('{"eos_token_id": "x"}')
    with pytest.raises(RegardError, match="eos_token_id='x' must be a token id"):
        read_details(gpt2)
    (gpt2 / "generation_config.json").write_text('{"eos_token_id": [5, 6], "top_k": null}')
    change_config(gpt2, id2label={"0": "a", "2": "b"})
    with pytest.raises(RegardError, match="id2label must name the classes 0, 1, 2"):
        read_details(gpt2)
    change_config(gpt2, id2label={"1": "b", "0": "a"})
    found = read_details(gpt2)
    assert (found.end, found.start, found.pad, found.length, found.labels) == (
        (5, 6),
        2,
        1,
        GPT2["n_positions"],
        ("a", "b"),
    )
    assert found.generation == {}


def test_a_config_without_its_weights(tmp_path) -> None:
    """With another head of the family, if it has one for the task."""
    case_named("bert").save(tmp_path)
    assert hub.read_huggingface_config(tmp_path) == load_huggingface(tmp_path).config
    assert hub.read_huggingface_config(tmp_path, "masked") == load_huggingface(tmp_path).config
    assert hub.read_huggingface_config(tmp_path, "language") == load_huggingface(tmp_path).config
    table = to_table(hub.read_huggingface_config(tmp_path, "classification").head)
    assert (table["kind"], table["transform"]) == ("classes", "tanh")
