"""T5 (Raffel et al. 2020) and T5 1.1: a bias by distance in every layer, unscaled scores, RMS norms."""

from typing import Any

from regard.config import Table
from regard.errors import RegardError
from regard.hub.activations import ACTIVATIONS, their_activation
from regard.hub.changes import SAME, TOGETHER
from regard.hub.express import only_layer, part
from regard.hub.table import Family, Row
from regard.hub.theirs import Theirs
from regard.models.head import LogitsConfig
from regard.models.init import NormalConfig
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
    """The rows of one side; `last` is the number of the feed-forward, behind one attention or two."""
    ours, theirs = f"{side}.layers.{{i}}", f"{side}.block.{{i}}.layer"
    wide = f"{theirs}.{last}.DenseReluDense"
    bias = f"{side}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
    gated = (f"{ours}.feedforward.gate.weight", f"{ours}.feedforward.up.weight")
    return [
        *_attention(f"{ours}.mixer", f"{theirs}.0.SelfAttention"),
        (f"{side}.layers.0.mixer.position.table.weight", bias, SAME),
        (f"{ours}.residual.norms.mixer.weight", f"{theirs}.0.layer_norm.weight", SAME),
        (gated, f"{wide}.wi_0.weight|{wide}.wi_1.weight", TOGETHER),
        (f"{ours}.feedforward.up.weight", f"{wide}.wi.weight", SAME),
        (f"{ours}.feedforward.down.weight", f"{wide}.wo.weight", SAME),
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


def from_hf(theirs: Theirs) -> Seq2SeqConfig:
    """Give our config."""
    # What one key said once, two say now; and whether there is a matrix for the logits is left to the file.
    tied = theirs.flag("tie_word_embeddings", True)
    scaled = theirs.flag("scale_decoder_outputs", tied)
    if theirs.weights and not scaled:
        tied = "lm_head.weight" not in theirs.weights
    return Seq2SeqConfig(
        vocabulary=theirs.whole("vocab_size"),
        dim=theirs.whole("d_model"),
        encoder=_read_side(theirs, theirs.depth("num_layers")),
        decoder=_read_side(theirs, None),
        embed=EmbedConfig(dropout=theirs.number("dropout_rate", 0.1)),
        head=LogitsConfig(tied=tied, scale=scaled),
        init=NormalConfig(),
    )


def _read_side(theirs: Theirs, depth: int | None) -> StackConfig:
    """Give our config of the encoder, `depth` layers of it, or of the decoder."""
    heads = MultiHeadsConfig(theirs.whole("num_heads"), head_dim=theirs.whole("d_kv"))
    buckets = theirs.whole("relative_attention_num_buckets", 32)
    distance = theirs.whole("relative_attention_max_distance", 128)
    dropout, norm = theirs.number("dropout_rate", 0.1), RMSNormConfig(theirs.number("layer_norm_epsilon", 1e-6))
    cross = AttentionConfig(heads, DotConfig(scale=1.0), dropout=dropout)
    mixer = AttentionConfig(
        heads, DotConfig(scale=1.0), RelativeBiasConfig(buckets, distance, depth is not None), dropout=dropout
    )
    gated, activation = _activation(theirs)
    unit = GLUConfig if gated else MLPConfig
    layer = LayerConfig(
        mixer=mixer,
        cross=cross if depth is None else None,
        feedforward=unit(theirs.whole("d_ff"), activation, bias=False, dropout=dropout),
        norm=norm,
        dropout=dropout,
    )
    deep = theirs.depth("num_decoder_layers", theirs.depth("num_layers")) if depth is None else depth
    return StackConfig(depth=deep, layers={"block": layer}, norm=norm)


def _activation(theirs: Theirs) -> tuple[bool, Activation]:
    """Read `relu`, `gated-gelu` and the like; the gated gelu is that by tanh."""
    text = theirs.anything("feed_forward_proj", "relu")
    gate, _, name = str(text).rpartition("-")
    name = "gelu_new" if text == "gated-gelu" else name
    if gate not in ("", "gated") or name not in ACTIVATIONS:
        raise RegardError(f"{theirs.place}: feed_forward_proj={text!r} must be an activation, or gated- and one")
    return gate == "gated", ACTIVATIONS[name]


def to_hf(config: Any) -> Table:
    """Give their config."""
    model = part(config, Seq2SeqConfig, "model")
    layer, path = only_layer(model.encoder, "model.encoder")
    mixer = part(layer.mixer, AttentionConfig, f"{path}.mixer")
    heads = part(mixer.heads, MultiHeadsConfig, f"{path}.mixer.heads")
    bias = part(mixer.position, RelativeBiasConfig, f"{path}.mixer.position")
    feedforward = layer.feedforward
    gated = isinstance(feedforward, GLUConfig)
    unit = feedforward if gated else part(feedforward, MLPConfig, f"{path}.feedforward")
    name = their_activation(unit.activation)
    return {
        "architectures": ["T5ForConditionalGeneration"],
        "vocab_size": model.vocabulary,
        "d_model": model.dim,
        "d_kv": heads.head_dim or model.dim // heads.heads,
        "d_ff": unit.hidden,
        "num_layers": model.encoder.depth,
        "num_decoder_layers": model.decoder.depth,
        "num_heads": heads.heads,
        "relative_attention_num_buckets": bias.buckets,
        "relative_attention_max_distance": bias.distance,
        "dropout_rate": layer.dropout,
        "layer_norm_epsilon": part(layer.norm, RMSNormConfig, f"{path}.norm").eps,
        "feed_forward_proj": ("gated-" if gated else "") + ("gelu" if gated and name == "gelu_new" else name),
        "tie_word_embeddings": model.head.tied,
        "scale_decoder_outputs": model.head.scale,
        "is_encoder_decoder": True,
    }


FAMILY = Family(
    model_type="t5",
    table=TABLE,
    heads={"T5ForConditionalGeneration": []},
    from_hf=from_hf,
    to_hf=to_hf,
    ignored_keys={
        "n_positions": "there is no table of positions",
        "dense_act_fn": "follows from feed_forward_proj",
        "is_gated_act": "follows from feed_forward_proj",
        "classifier_dropout": "of a head for classes",
        "id2label": "of a head for classes",
        "num_labels": "of a head for classes",
    },
    ignored_weights={"decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight": "never used"},
    tied={
        "lm_head.weight": "shared.weight",
        "encoder.embed_tokens.weight": "shared.weight",
        "decoder.embed_tokens.weight": "shared.weight",
    },
)
