"""Llama (Touvron et al. 2023), with the rotary scaling of Llama 3. Mistral and Qwen3 share its table and layers."""

from regard.config import Table
from regard.hub.activations import ACTIVATIONS, hub_activation
from regard.hub.changes import SAME
from regard.hub.conversion import expect, single_layer
from regard.hub.decoders import DecoderConfig, decoder_keys, expect_decoder, read_decoder
from regard.hub.family import Family, Head, Row, weight_and_bias
from regard.hub.hub_config import HubConfig
from regard.hub.rope import read_rope, rope_keys
from regard.models.init import NormalConfig
from regard.models.recipe import ModelConfig
from regard.models.stack import LayerConfig
from regard.parts.attention import AttentionConfig
from regard.parts.embed import EmbedConfig
from regard.parts.feedforward import GLUConfig
from regard.parts.heads import MultiHeadsConfig
from regard.parts.norm import RMSNormConfig
from regard.parts.position import RopeConfig

LAYER = "stack.layers.{i}"
HEADS = f"{LAYER}.mixer.heads"
THEIR_LAYER = "layers.{i}"

TABLE: list[Row] = [
    ("embed.tokens.table.weight", "embed_tokens.weight", SAME),
    *weight_and_bias(f"{LAYER}.residual.norms.mixer", f"{THEIR_LAYER}.input_layernorm"),
    *weight_and_bias(f"{HEADS}.to_query", f"{THEIR_LAYER}.self_attn.q_proj"),
    *weight_and_bias(f"{HEADS}.to_key", f"{THEIR_LAYER}.self_attn.k_proj"),
    *weight_and_bias(f"{HEADS}.to_value", f"{THEIR_LAYER}.self_attn.v_proj"),
    *weight_and_bias(f"{HEADS}.output", f"{THEIR_LAYER}.self_attn.o_proj"),
    *weight_and_bias(f"{HEADS}.query_norm", f"{THEIR_LAYER}.self_attn.q_norm"),
    *weight_and_bias(f"{HEADS}.key_norm", f"{THEIR_LAYER}.self_attn.k_norm"),
    *weight_and_bias(f"{LAYER}.residual.norms.feedforward", f"{THEIR_LAYER}.post_attention_layernorm"),
    *weight_and_bias(f"{LAYER}.feedforward.gate", f"{THEIR_LAYER}.mlp.gate_proj"),
    *weight_and_bias(f"{LAYER}.feedforward.up", f"{THEIR_LAYER}.mlp.up_proj"),
    *weight_and_bias(f"{LAYER}.feedforward.down", f"{THEIR_LAYER}.mlp.down_proj"),
    *weight_and_bias("stack.norm", "norm"),
]
LANGUAGE_HEAD = Head("language", [("head.unembed.weight", "lm_head.weight", SAME)])
CLASSIFIER_HEAD = Head("classification", [("head.classify.weight", "score.weight", SAME)])
TIED = {"lm_head.weight": "model.embed_tokens.weight"}
IGNORED_WEIGHTS = {"*rotary_emb.inv_freq": "the frequencies follow from the config"}


def read_llama(hub: HubConfig, layers: dict[str, LayerConfig], pattern: tuple[str, ...] = ()) -> DecoderConfig:
    """Return our config of a Llama with these layers."""
    norm = next(iter(layers.values())).norm
    assert norm is not None
    return read_decoder(
        hub,
        dim=hub.read_int("hidden_size"),
        depth=hub.read_repeats("num_hidden_layers"),
        layers=layers,
        pattern=pattern,
        norm=norm,
        embed=EmbedConfig(),
        init=NormalConfig(hub.read_float("initializer_range", 0.02), "scaled"),
        tied=False,
    )


def read_llama_layer(
    hub: HubConfig, heads: MultiHeadsConfig, rope: RopeConfig, window: int | None, bias: bool = False
) -> LayerConfig:
    """Return our config of one layer."""
    return LayerConfig(
        mixer=AttentionConfig(heads, position=rope, window=window, dropout=hub.read_float("attention_dropout", 0.0)),
        feedforward=GLUConfig(
            hub.read_int("intermediate_size"), hub.read_name("hidden_act", ACTIVATIONS, "silu"), bias=bias
        ),
        norm=RMSNormConfig(hub.read_float("rms_norm_eps", 1e-6)),
    )


def read_llama_heads(
    hub: HubConfig, bias: bool, qk_norm: bool = False, head_dim: int | None = None
) -> MultiHeadsConfig:
    """Return our config of the heads; `head_dim` is the family's default width of a head."""
    heads = hub.read_int("num_attention_heads")
    kv_heads = hub.read_int("num_key_value_heads", heads)
    norm = RMSNormConfig(hub.read_float("rms_norm_eps", 1e-6)) if qk_norm else None
    head_dim = hub.read_optional_int("head_dim") or head_dim
    if head_dim == hub.read_int("hidden_size") // heads:
        head_dim = None  # the default here
    return MultiHeadsConfig(heads, None if kv_heads == heads else kv_heads, head_dim, "all" if bias else "no", norm)


def _from_hub(hub: HubConfig) -> DecoderConfig:
    hub.require("rope_interleaved", False, "a Llama rotates features that are half a head apart")
    heads = read_llama_heads(hub, hub.read_bool("attention_bias", False))
    layer = read_llama_layer(hub, heads, read_rope(hub)[0], None, hub.read_bool("mlp_bias", False))
    return read_llama(hub, {"block": layer})


def llama_layer_keys(layer: LayerConfig, path: str, dim: int) -> tuple[Table, AttentionConfig, MultiHeadsConfig]:
    """Return the keys of a layer, and its attention and heads, of which the families write more keys."""
    mixer = expect(layer.mixer, AttentionConfig, f"{path}.mixer")
    heads = expect(mixer.heads, MultiHeadsConfig, f"{path}.mixer.heads")
    feedforward = expect(layer.feedforward, GLUConfig, f"{path}.feedforward")
    sizes = heads.resolved(dim)
    table = {
        "intermediate_size": feedforward.hidden,
        "num_attention_heads": heads.heads,
        "num_key_value_heads": sizes.kv_heads,
        "head_dim": sizes.head_dim,
        "hidden_act": hub_activation(feedforward.activation),
        "rms_norm_eps": expect(layer.norm, RMSNormConfig, f"{path}.norm").eps,
        "attention_dropout": mixer.dropout,
        **rope_keys(expect(mixer.position, RopeConfig, f"{path}.mixer.position")),
    }
    return table, mixer, heads


def llama_keys(decoder: DecoderConfig, name: str) -> Table:
    """Return the keys outside the layers; `name` begins the names of the architectures."""
    return {
        **decoder_keys(decoder, f"{name}ForCausalLM", f"{name}ForSequenceClassification"),
        "hidden_size": decoder.dim,
        "num_hidden_layers": decoder.depth,
    }


def _to_hub(config: ModelConfig) -> Table:
    decoder = expect_decoder(config)
    layer, path = single_layer(decoder)
    table, _, heads = llama_layer_keys(layer, path, decoder.dim)
    return {
        **llama_keys(decoder, "Llama"),
        **table,
        "attention_bias": heads.bias != "no",
        "mlp_bias": expect(layer.feedforward, GLUConfig, f"{path}.feedforward").bias,
    }


LLAMA = Family(
    model_type="llama",
    table=TABLE,
    prefix="model.",
    architectures={"LlamaForCausalLM": LANGUAGE_HEAD, "LlamaForSequenceClassification": CLASSIFIER_HEAD},
    from_hub=_from_hub,
    to_hub=_to_hub,
    ignored_keys={"is_llama_config": "documentation only"},
    ignored_weights=IGNORED_WEIGHTS,
    tied=TIED,
)
