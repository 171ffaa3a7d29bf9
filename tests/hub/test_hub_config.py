"""Hugging Face configs that cannot be read: the message names the key."""

import json

import pytest

from regard.hub.folder import load_huggingface
from tests.hub.cases import case_named
from tests.hub.spoil import change_config, refused


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"n_hed": 4}, "config.json: n_hed: unknown key; did you mean 'n_head'"),
        ({"n_head": "4"}, "config.json: n_head='4' must be a whole number, at least 1"),
        ({"n_head": 0}, "config.json: n_head=0 must be a whole number, at least 1"),
        ({"n_head": True}, "config.json: n_head=True must be a whole number"),
        (
            {"n_head": 3},
            "no model can be built from it: model.layers.block.mixer.heads: dim=16 must be",
        ),
        ({"activation_function": "quick_gelu"}, "activation_function='quick_gelu' must be one of gelu, .*gelu_new"),
        ({"layer_norm_epsilon": "small"}, "layer_norm_epsilon='small' must be a number"),
        ({"layer_norm_epsilon": 10**400}, "layer_norm_epsilon=10+ must be a number"),
        ({"tie_word_embeddings": 1}, "tie_word_embeddings=1 must be true or false"),
        ({"layer_norm_epsilon": float("nan")}, "no model can be built.*eps=nan must be a finite number"),
        ({"scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx=True is not supported: a scale"),
        ({"quantization_config": {}}, "quantization_config: quantised weights cannot be read"),
        (
            {"architectures": ["GPT2DoubleHeadsModel"]},
            "the architecture .GPT2DoubleHeadsModel. is not supported; supported are ",
        ),
        ({"architectures": None}, "architectures=None must name one class"),
        ({"model_type": "gpt3"}, r"the family 'gpt3' \(model_type\) is not supported; supported are bart, bert"),
        ({"model_type": None}, "has no model_type, which names the family of the model; supported are bart, bert"),
        ({"n_layer": 10**9}, "n_layer=1000000000 is not supported: there are only 28 weights"),
        (
            {"n_embd": 10**8, "n_head": 1},
            "model.layers.block.feedforward.hidden: 400000000 is more than the .* elements of all",
        ),
        ({"n_inner": 24, "n_embd": 10**9}, "model.dim: 1000000000 is more than the"),
        ({"n_positions": 10**9}, "model.embed.position.length: 1000000000 is more than the"),
    ],
)
def test_a_config_that_cannot_be_read(gpt2, values, message) -> None:
    change_config(gpt2, **values)
    refused(gpt2, message)


def test_a_rotary_width_that_would_fill_the_memory(tmp_path) -> None:
    """Frequencies are computed while a model is built, so their number is checked before."""
    case_named("deepseek").save(tmp_path)
    change_config(tmp_path, qk_rope_head_dim=10**9)
    refused(tmp_path, "mixer.heads.turned: 1000000000 is more than the")


def test_experts_that_would_take_forever(tmp_path) -> None:
    case_named("deepseek").save(tmp_path)
    change_config(tmp_path, n_routed_experts=10**6)
    refused(tmp_path, "n_routed_experts=1000000 is not supported: there are only .* weights")


def test_experts_of_another_activation(tmp_path) -> None:
    case_named("deepseek").save(tmp_path)
    change_config(tmp_path, hidden_act="relu")
    refused(tmp_path, "hidden_act='relu' is not supported: experts are computed with silu")


@pytest.mark.parametrize("values", [{"use_sliding_window": False}, {"sliding_window": None}])
def test_layers_with_a_window_that_is_switched_off(tmp_path, values) -> None:
    """Without `layer_types` no layer has a window then; with it, transformers fails in its first pass."""
    case_named("qwen3-windows").save(tmp_path)
    change_config(tmp_path, **values)
    refused(tmp_path, "layer_types=.* is not supported: sliding_attention needs use_sliding_window=true")
    change_config(tmp_path, layer_types=None)
    assert load_huggingface(tmp_path).config.pattern == ()


def test_kinds_of_layers_that_are_not_names(tmp_path) -> None:
    case_named("qwen3-windows").save(tmp_path)
    change_config(tmp_path, layer_types=[["full_attention"], ["full_attention"]])
    refused(tmp_path, "layer_types=.* is not supported: it must be full_attention or sliding_attention for each of 2")


@pytest.mark.parametrize(("key", "value"), [("dense_act_fn", "silu"), ("is_gated_act", True)])
def test_an_activation_that_is_given_twice(tmp_path, key, value) -> None:
    case_named("t5").save(tmp_path)
    change_config(tmp_path, **{key: value})
    refused(tmp_path, f"{key}={value!r} is not supported: it must agree with feed_forward_proj='relu'")


def test_a_number_below_the_limit_is_compared_with_the_weights(gpt2) -> None:
    """Numbers that cost nothing may exceed a tiny model; a wrong size is found by the shapes."""
    change_config(gpt2, n_positions=10**6)
    refused(gpt2, r"transformer.wpe.weight has shape \(32, 16\), but config.json requires \(1000000, 16\)")


def test_a_missing_key_is_named(gpt2) -> None:
    table = json.loads((gpt2 / "config.json").read_text())
    del table["n_embd"]
    (gpt2 / "config.json").write_text(json.dumps(table))
    refused(gpt2, "config.json: n_embd is missing; it must be a whole number")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            {"rope_parameters": {"rope_type": "dynamic"}},
            "rope_parameters='dynamic' is not supported: the supported",
        ),
        (
            {"rope_parameters": {"rope_type": "llama3", "factr": 2}},
            "rope_parameters.factr=2 is not supported: llama3 has no such key",
        ),
        ({"rope_parameters": {"rope_type": "yarn"}}, "rope_parameters: factor is missing; it must be a number"),
        ({"rope_parameters": {"rope_theta": "far"}}, "rope_parameters: rope_theta='far' must be a number"),
        (
            {"rope_parameters": {"rope_type": "yarn", "factor": 2.0, "attention_factor": "x"}},
            "attention_factor='x' must",
        ),
        ({"rope_parameters": 3}, "rope_parameters=3 is not supported: it must be a table"),
        ({"rope_parameters": {"rope_type": ["yarn"]}}, r"rope_parameters=\['yarn'\] is not supported: the supported"),
        (
            {"rope_parameters": {"rope_type": "yarn", "factor": 2.0, "mscale": 1.0, "mscale_all_dim": -1.0}},
            "rope_parameters: mscale_all_dim=-1.0 is not supported: it must be at least 0",
        ),
    ],
)
def test_rotary_positions_that_cannot_be_read(tmp_path, values, message) -> None:
    case_named("llama").save(tmp_path)
    change_config(tmp_path, **values)
    refused(tmp_path, message)


def test_rotary_positions_under_older_names(tmp_path) -> None:
    case_named("llama-3").save(tmp_path)
    config = load_huggingface(tmp_path).config
    table = json.loads((tmp_path / "config.json").read_text())
    scaling = table.pop("rope_parameters")
    table |= {"rope_theta": scaling.pop("rope_theta"), "rope_scaling": {"type": scaling.pop("rope_type"), **scaling}}
    (tmp_path / "config.json").write_text(json.dumps(table))
    assert load_huggingface(tmp_path).config == config


@pytest.mark.parametrize("text", ["", "[]", "3", "{", "\xff", "[" * 100_000])
def test_a_file_that_is_not_a_config(gpt2, text) -> None:
    (gpt2 / "config.json").write_bytes(text.encode("latin-1"))
    refused(gpt2, "config.json: (is not valid JSON|must contain a table)")
