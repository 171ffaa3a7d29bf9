"""GPT-2 (Radford et al. 2019): matrices stored as (in, out); queries, keys and values in one matrix."""

from regard.config import Table
from regard.hub.activations import ACTIVATIONS, hub_activation
from regard.hub.changes import SAME, STACKED, STACKED_TRANSPOSED, TRANSPOSED
from regard.hub.conversion import expect, single_layer
from regard.hub.decoders import DecoderConfig, decoder_keys, expect_decoder, read_decoder
from regard.hub.family import Family, Head, Row, weight_and_bias
from regard.hub.hub_config import HubConfig
from regard.models.init import NormalConfig
from regard.models.recipe import ModelConfig
from regard.models.stack import LayerConfig
from regard.parts.absolute_position import LearnedConfig
from regard.parts.attention import AttentionConfig
from regard.parts.embed import EmbedConfig
from regard.parts.feedforward import MLPConfig
from regard.parts.heads import MultiHeadsConfig
from regard.parts.norm import LayerNormConfig

LAYER = "stack.layers.{i}"
HEADS = f"{LAYER}.mixer.heads"


def _query_key_value(part: str) -> tuple[str, ...]:
    return tuple(f"{HEADS}.to_{name}.{part}" for name in ("query", "key", "value"))


TABLE: list[Row] = [
    ("embed.tokens.table.weight", "wte.weight", SAME),
    ("embed.position.table.weight", "wpe.weight", SAME),
    *weight_and_bias(f"{LAYER}.residual.norms.mixer", "h.{i}.ln_1"),
    (_query_key_value("weight"), "h.{i}.attn.c_attn.weight", STACKED_TRANSPOSED),
    (_query_key_value("bias"), "h.{i}.attn.c_attn.bias", STACKED),
    (f"{HEADS}.output.weight", "h.{i}.attn.c_proj.weight", TRANSPOSED),
    (f"{HEADS}.output.bias", "h.{i}.attn.c_proj.bias", SAME),
    *weight_and_bias(f"{LAYER}.residual.norms.feedforward", "h.{i}.ln_2"),
    (f"{LAYER}.feedforward.up.weight", "h.{i}.mlp.c_fc.weight", TRANSPOSED),
    (f"{LAYER}.feedforward.up.bias", "h.{i}.mlp.c_fc.bias", SAME),
    (f"{LAYER}.feedforward.down.weight", "h.{i}.mlp.c_proj.weight", TRANSPOSED),
    (f"{LAYER}.feedforward.down.bias", "h.{i}.mlp.c_proj.bias", SAME),
    *weight_and_bias("stack.norm", "ln_f"),
]


def _from_hub(hub: HubConfig) -> DecoderConfig:
    dim = hub.read_int("n_embd")
    hub.require("scale_attn_weights", True, "only scaled scores are supported")
    hub.require("scale_attn_by_inverse_layer_idx", False, "a scale per layer is not supported")
    hub.require("add_cross_attention", False, "a language model has no cross-attention")
    norm = LayerNormConfig(hub.read_float("layer_norm_epsilon", 1e-5))
    dropout = hub.read_float("resid_pdrop", 0.1)
    layer = LayerConfig(
        mixer=AttentionConfig(
            MultiHeadsConfig(hub.read_int("n_head"), bias="all"), dropout=hub.read_float("attn_pdrop", 0.1)
        ),
        feedforward=MLPConfig(
            hub.read_int("n_inner", 4 * dim), hub.read_name("activation_function", ACTIVATIONS, "gelu_new")
        ),
        norm=norm,
        dropout=dropout,
    )
    return read_decoder(
        hub,
        dim=dim,
        depth=hub.read_repeats("n_layer"),
        layers={"block": layer},
        norm=norm,
        embed=EmbedConfig(LearnedConfig(hub.read_int("n_positions")), dropout=hub.read_float("embd_pdrop", 0.1)),
        init=NormalConfig(hub.read_float("initializer_range", 0.02), "scaled"),
        tied=True,
    )


def _to_hub(config: ModelConfig) -> Table:
    decoder = expect_decoder(config)
    layer, path = single_layer(decoder)
    mixer = expect(layer.mixer, AttentionConfig, f"{path}.mixer")
    heads = expect(mixer.heads, MultiHeadsConfig, f"{path}.mixer.heads")
    feedforward = expect(layer.feedforward, MLPConfig, f"{path}.feedforward")
    return {
        **decoder_keys(decoder, "GPT2LMHeadModel", "GPT2ForSequenceClassification"),
        "n_positions": expect(decoder.embed.position, LearnedConfig, "model.embed.position").length,
        "n_embd": decoder.dim,
        "n_layer": decoder.depth,
        "n_head": heads.heads,
        "n_inner": feedforward.hidden,
        "activation_function": hub_activation(feedforward.activation),
        "layer_norm_epsilon": expect(layer.norm, LayerNormConfig, f"{path}.norm").eps,
        "embd_pdrop": decoder.embed.dropout,
        "attn_pdrop": mixer.dropout,
        "resid_pdrop": layer.dropout,
    }


GPT2 = Family(
    model_type="gpt2",
    table=TABLE,
    prefix="transformer.",
    architectures={
        "GPT2LMHeadModel": Head("language", [("head.unembed.weight", "lm_head.weight", SAME)]),
        "GPT2ForSequenceClassification": Head("classification", [("head.classify.weight", "score.weight", SAME)]),
    },
    from_hub=_from_hub,
    to_hub=_to_hub,
    ignored_keys={
        "n_ctx": "an older name of n_positions",
        "reorder_and_upcast_attn": "affects the computation, not the result",
        **dict.fromkeys(
            (
                "summary_type",
                "summary_use_proj",
                "summary_activation",
                "summary_proj_to_labels",
                "summary_first_dropout",
            ),
            "belongs to the multiple-choice head",
        ),
    },
    ignored_weights={
        "transformer.h.*.attn.bias": "the causal mask",
        "transformer.h.*.attn.masked_bias": "the causal mask",
        "h.*.attn.bias": "the causal mask",
        "h.*.attn.masked_bias": "the causal mask",
    },
    tied={"lm_head.weight": "transformer.wte.weight"},
)
