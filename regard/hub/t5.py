"""T5 (Raffel et al. 2020) and T5 1.1: relative position bias in every layer, unscaled scores, RMS norms."""

from regard.config import Table
from regard.errors import RegardError
from regard.hub.activations import ACTIVATIONS, hub_activation
from regard.hub.changes import SAME, TOGETHER
from regard.hub.conversion import expect, single_layer
from regard.hub.family import Family, Head, Row
from regard.hub.hub_config import HubConfig
from regard.models.head import LogitsConfig
from regard.models.init import NormalConfig
from regard.models.recipe import ModelConfig
from regard.models.seq2seq import Seq2SeqConfig
from regard.models.stack import LayerConfig, StackConfig
from regard.parts.attention import AttentionConfig
from regard.parts.embed import EmbedConfig
from regard.parts.feedforward import Activation, GLUConfig, MLPConfig
from regard.parts.heads import MultiHeadsConfig
from regard.parts.norm import RMSNormConfig
from regard.parts.position import RelativeBiasConfig
from regard.parts.score import DotConfig


def _attention(ours: str, theirs: str) -> list[Row]:
    pairs = {"to_query": "q", "to_key": "k", "to_value": "v", "output": "o"}
    return [(f"{ours}.heads.{mine}.weight", f"{theirs}.{other}.weight", SAME) for mine, other in pairs.items()]


def _side(side: str, last: int) -> list[Row]:
    """Return the rows of one side; `last` is the index of the feed-forward, after one attention or two."""
    ours, theirs = f"{side}.layers.{{i}}", f"{side}.block.{{i}}.layer"
    dense = f"{theirs}.{last}.DenseReluDense"
    bias = f"{side}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
    gated = (f"{ours}.feedforward.gate.weight", f"{ours}.feedforward.up.weight")
    return [
        *_attention(f"{ours}.mixer", f"{theirs}.0.SelfAttention"),
        (f"{side}.layers.0.mixer.position.table.weight", bias, SAME),
        (f"{ours}.residual.norms.mixer.weight", f"{theirs}.0.layer_norm.weight", SAME),
        (gated, f"{dense}.wi_0.weight|{dense}.wi_1.weight", TOGETHER),
        (f"{ours}.feedforward.up.weight", f"{dense}.wi.weight", SAME),
        (f"{ours}.feedforward.down.weight", f"{dense}.wo.weight", SAME),
        (f"{ours}.residual.norms.feedforward.weight", f"{theirs}.{last}.layer_norm.weight", SAME),
        (f"{side}.norm.weight", f"{side}.final_layer_norm.weight", SAME),
    ]


TABLE: list[Row] = [
    ("embed.tokens.table.weight", "shared.weight", SAME),
    *_side("encoder", last=1),
    *_side("decoder", last=2),
    *_attention("decoder.layers.{i}.cross", "decoder.block.{i}.layer.1.EncDecAttention"),
    ("decoder.layers.{i}.residual.norms.cross.weight", "decoder.block.{i}.layer.1.layer_norm.weight", SAME),
    ("head.unembed.weight", "lm_head.weight", SAME),
]


def _from_hub(hub: HubConfig) -> Seq2SeqConfig:
    # Older configs have one key for tying and scaling, newer ones two. If outputs are not scaled, the weights in the
    # folder decide whether the head is tied.
    tied = hub.read_bool("tie_word_embeddings", True)
    scaled = hub.read_bool("scale_decoder_outputs", tied)
    if hub.weights and not scaled:
        tied = "lm_head.weight" not in hub.weights
    return Seq2SeqConfig(
        vocabulary=hub.read_int("vocab_size"),
        dim=hub.read_int("d_model"),
        encoder=_read_stack(hub, hub.read_repeats("num_layers")),
        decoder=_read_stack(hub, None),
        embed=EmbedConfig(dropout=hub.read_float("dropout_rate", 0.1)),
        head=LogitsConfig(tied=tied, scale=scaled),
        init=NormalConfig(),
    )


def _read_stack(hub: HubConfig, depth: int | None) -> StackConfig:
    """Return our config of the encoder, which has `depth` layers, or of the decoder if `depth` is None."""
    heads = MultiHeadsConfig(hub.read_int("num_heads"), head_dim=hub.read_int("d_kv"))
    buckets = hub.read_int("relative_attention_num_buckets", 32)
    distance = hub.read_int("relative_attention_max_distance", 128)
    dropout, norm = hub.read_float("dropout_rate", 0.1), RMSNormConfig(hub.read_float("layer_norm_epsilon", 1e-6))
    cross = AttentionConfig(heads, DotConfig(scale=1.0), dropout=dropout)
    mixer = AttentionConfig(
        heads, DotConfig(scale=1.0), RelativeBiasConfig(buckets, distance, depth is not None), dropout=dropout
    )
    gated, activation = _activation(hub)
    feedforward = GLUConfig if gated else MLPConfig
    layer = LayerConfig(
        mixer=mixer,
        cross=cross if depth is None else None,
        feedforward=feedforward(hub.read_int("d_ff"), activation, bias=False, dropout=dropout),
        norm=norm,
        dropout=dropout,
    )
    if depth is None:
        depth = hub.read_repeats("num_decoder_layers", hub.read_repeats("num_layers"))
    return StackConfig(depth=depth, layers={"block": layer}, norm=norm)


def _activation(hub: HubConfig) -> tuple[bool, Activation]:
    """Read `relu`, `gated-gelu`, ...; the gated GELU is the tanh approximation."""
    text = hub.read_any("feed_forward_proj", "relu")
    gate, _, name = str(text).rpartition("-")
    name = "gelu_new" if text == "gated-gelu" else name
    if gate not in ("", "gated") or name not in ACTIVATIONS:
        raise RegardError(
            f"{hub.place}: feed_forward_proj={text!r} must be an activation, optionally prefixed by gated-"
        )
    agree = f"it must agree with feed_forward_proj={text!r}"
    hub.require("is_gated_act", gate == "gated", agree)
    hub.require("dense_act_fn", name, agree)
    return gate == "gated", ACTIVATIONS[name]


def _to_hub(config: ModelConfig) -> Table:
    model = expect(config, Seq2SeqConfig, "model")
    layer, path = single_layer(model.encoder, "model.encoder")
    mixer = expect(layer.mixer, AttentionConfig, f"{path}.mixer")
    heads = expect(mixer.heads, MultiHeadsConfig, f"{path}.mixer.heads")
    bias = expect(mixer.position, RelativeBiasConfig, f"{path}.mixer.position")
    feedforward = layer.feedforward
    gated = isinstance(feedforward, GLUConfig)
    if not isinstance(feedforward, GLUConfig):
        feedforward = expect(feedforward, MLPConfig, f"{path}.feedforward")
    name = hub_activation(feedforward.activation)
    return {
        "architectures": ["T5ForConditionalGeneration"],
        "vocab_size": model.vocabulary,
        "d_model": model.dim,
        "d_kv": heads.resolved(model.dim).head_dim,
        "d_ff": feedforward.hidden,
        "num_layers": model.encoder.depth,
        "num_decoder_layers": model.decoder.depth,
        "num_heads": heads.heads,
        "relative_attention_num_buckets": bias.buckets,
        "relative_attention_max_distance": bias.distance,
        "dropout_rate": layer.dropout,
        "layer_norm_epsilon": expect(layer.norm, RMSNormConfig, f"{path}.norm").eps,
        "feed_forward_proj": ("gated-" if gated else "") + ("gelu" if gated and name == "gelu_new" else name),
        "tie_word_embeddings": model.head.tied,
        "scale_decoder_outputs": model.head.scale,
        "is_encoder_decoder": True,
    }


T5 = Family(
    model_type="t5",
    table=TABLE,
    architectures={"T5ForConditionalGeneration": Head("translation")},
    from_hub=_from_hub,
    to_hub=_to_hub,
    ignored_keys={
        "n_positions": "T5 has no position table",
        "classifier_dropout": "belongs to the classification head",
        "id2label": "belongs to the classification head",
        "num_labels": "belongs to the classification head",
    },
    ignored_weights={"decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight": "never used"},
    tied={
        "lm_head.weight": "shared.weight",
        "encoder.embed_tokens.weight": "shared.weight",
        "decoder.embed_tokens.weight": "shared.weight",
    },
)
