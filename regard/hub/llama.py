"""Llama (Touvron et al. 2023), with the rotary scaling of Llama 3. Mistral and Qwen3 share its table and layers."""

from typing import Any

from regard.config import Table
from regard.hub.activations import ACTIVATIONS, their_activation
from regard.hub.changes import SAME
from regard.hub.decoders import their_decoder, with_head
from regard.hub.express import only_layer, part
from regard.hub.rope import read_rope, their_rope
from regard.hub.table import Family, Row, both
from regard.hub.theirs import Theirs
from regard.models.init import NormalConfig
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
    *both(f"{LAYER}.residual.norms.mixer", f"{THEIR_LAYER}.input_layernorm"),
    *both(f"{HEADS}.to_query", f"{THEIR_LAYER}.self_attn.q_proj"),
    *both(f"{HEADS}.to_key", f"{THEIR_LAYER}.self_attn.k_proj"),
    *both(f"{HEADS}.to_value", f"{THEIR_LAYER}.self_attn.v_proj"),
    *both(f"{HEADS}.output", f"{THEIR_LAYER}.self_attn.o_proj"),
    *both(f"{HEADS}.query_norm", f"{THEIR_LAYER}.self_attn.q_norm"),
    *both(f"{HEADS}.key_norm", f"{THEIR_LAYER}.self_attn.k_norm"),
    *both(f"{LAYER}.residual.norms.feedforward", f"{THEIR_LAYER}.post_attention_layernorm"),
    *both(f"{LAYER}.feedforward.gate", f"{THEIR_LAYER}.mlp.gate_proj"),
    *both(f"{LAYER}.feedforward.up", f"{THEIR_LAYER}.mlp.up_proj"),
    *both(f"{LAYER}.feedforward.down", f"{THEIR_LAYER}.mlp.down_proj"),
    *both("stack.norm", "norm"),
]
WRITER_ROWS: list[Row] = [("head.unembed.weight", "lm_head.weight", SAME)]
CLASSIFIER_ROWS: list[Row] = [("head.classify.weight", "score.weight", SAME)]
TIED = {"lm_head.weight": "model.embed_tokens.weight"}
IGNORED_WEIGHTS = {"*rotary_emb.inv_freq": "the frequencies follow from the config"}


def read_llama(theirs: Theirs, layers: dict[str, LayerConfig], pattern: tuple[str, ...] = ()) -> Any:
    """Give our config of a model with these layers."""
    some = next(iter(layers.values()))
    assert some.norm is not None
    return with_head(
        theirs,
        dim=theirs.whole("hidden_size"),
        depth=theirs.depth("num_hidden_layers"),
        layers=layers,
        pattern=pattern,
        norm=some.norm,
        embed=EmbedConfig(),
        init=NormalConfig(theirs.number("initializer_range", 0.02), "scaled"),
        tied=False,
    )


def read_layer(
    theirs: Theirs, heads: MultiHeadsConfig, rope: RopeConfig, window: int | None, bias: bool = False
) -> LayerConfig:
    """Give our config of one layer."""
    return LayerConfig(
        mixer=AttentionConfig(heads, position=rope, window=window, dropout=theirs.number("attention_dropout", 0.0)),
        feedforward=GLUConfig(
            theirs.whole("intermediate_size"), theirs.one_of("hidden_act", ACTIVATIONS, "silu"), bias=bias
        ),
        norm=RMSNormConfig(theirs.number("rms_norm_eps", 1e-6)),
    )


def read_heads(theirs: Theirs, bias: bool, normed: bool, wide: int | None) -> MultiHeadsConfig:
    """Give our config of the heads, `wide` features each unless given."""
    heads = theirs.whole("num_attention_heads")
    kv_heads = theirs.whole("num_key_value_heads", heads)
    norm = RMSNormConfig(theirs.number("rms_norm_eps", 1e-6)) if normed else None
    head_dim = theirs.whole("head_dim", wide)
    return MultiHeadsConfig(
        heads,
        None if kv_heads == heads else kv_heads,
        None if head_dim == theirs.whole("hidden_size") // heads else head_dim,  # as we write it
        "all" if bias else "no",
        norm,
    )


def from_hf(theirs: Theirs) -> Any:
    """Give our config of a Llama."""
    theirs.only("rope_interleaved", False, "a Llama turns features half a head apart")
    heads = read_heads(theirs, theirs.flag("attention_bias", False), False, None)
    layer = read_layer(theirs, heads, read_rope(theirs)[0], None, theirs.flag("mlp_bias", False))
    return read_llama(theirs, {"block": layer})


def their_layer(layer: LayerConfig, path: str, dim: int) -> tuple[Table, AttentionConfig, MultiHeadsConfig]:
    """Give the keys of a layer, and what of it the families write differently."""
    mixer = part(layer.mixer, AttentionConfig, f"{path}.mixer")
    heads = part(mixer.heads, MultiHeadsConfig, f"{path}.mixer.heads")
    feedforward = part(layer.feedforward, GLUConfig, f"{path}.feedforward")
    table = {
        "intermediate_size": feedforward.hidden,
        "num_attention_heads": heads.heads,
        "num_key_value_heads": heads.kv_heads or heads.heads,
        "head_dim": heads.head_dim or dim // heads.heads,
        "hidden_act": their_activation(feedforward.activation),
        "rms_norm_eps": part(layer.norm, RMSNormConfig, f"{path}.norm").eps,
        "attention_dropout": mixer.dropout,
        **their_rope(part(mixer.position, RopeConfig, f"{path}.mixer.position")),
    }
    return table, mixer, heads


def to_hf(config: Any) -> Table:
    """Give the config of a Llama."""
    decoder = their_decoder(config, "LlamaForCausalLM", "LlamaForSequenceClassification")
    layer, path = only_layer(config)
    table, _, heads = their_layer(layer, path, config.dim)
    return {
        **decoder,
        "hidden_size": config.dim,
        "num_hidden_layers": config.depth,
        **table,
        "attention_bias": heads.bias != "no",
        "mlp_bias": layer.feedforward.bias,
    }


FAMILY = Family(
    model_type="llama",
    table=TABLE,
    prefix="model.",
    heads={"LlamaForCausalLM": WRITER_ROWS, "LlamaForSequenceClassification": CLASSIFIER_ROWS},
    from_hf=from_hf,
    to_hf=to_hf,
    ignored_keys={"is_llama_config": "says what it is"},
    ignored_weights=IGNORED_WEIGHTS,
    tied=TIED,
)
