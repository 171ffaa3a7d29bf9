"""Marian (Junczys-Dowmunt et al. 2018), the models of OPUS-MT: the Transformer of 2017, sines first, then cosines.

BART and Pegasus name their layers alike.
"""

from typing import Any

from regard.config import Table
from regard.hub.activations import ACTIVATIONS, their_activation
from regard.hub.changes import RESHAPED, SAME, TOGETHER
from regard.hub.express import only_layer, part
from regard.hub.table import Family, Row, both
from regard.hub.theirs import Theirs
from regard.models.head import LogitsConfig
from regard.models.init import NormalConfig
from regard.models.seq2seq import Seq2SeqConfig
from regard.models.stack import LayerConfig, StackConfig
from regard.parts.attention import AttentionConfig
from regard.parts.embed import EmbedConfig
from regard.parts.feedforward import MLPConfig
from regard.parts.heads import MultiHeadsConfig
from regard.parts.norm import LayerNormConfig
from regard.parts.position import SinusoidalConfig
from regard.parts.residual import ResidualName

NORM = LayerNormConfig(1e-5)  # there is no key for that


def _attention(ours: str, theirs: str) -> list[Row]:
    return [
        *both(f"{ours}.heads.to_query", f"{theirs}.q_proj"),
        *both(f"{ours}.heads.to_key", f"{theirs}.k_proj"),
        *both(f"{ours}.heads.to_value", f"{theirs}.v_proj"),
        *both(f"{ours}.heads.output", f"{theirs}.out_proj"),
    ]


def _side(side: str) -> list[Row]:
    ours, theirs = f"{side}.layers.{{i}}", f"model.{side}.layers.{{i}}"
    return [
        *_attention(f"{ours}.mixer", f"{theirs}.self_attn"),
        *both(f"{ours}.residual.norms.mixer", f"{theirs}.self_attn_layer_norm"),
        *both(f"{ours}.feedforward.up", f"{theirs}.fc1"),
        *both(f"{ours}.feedforward.down", f"{theirs}.fc2"),
        *both(f"{ours}.residual.norms.feedforward", f"{theirs}.final_layer_norm"),
    ]


TABLE: list[Row] = [
    (
        ("embed.tokens.table.weight", "source_embed.tokens.table.weight"),
        "model.decoder.embed_tokens.weight|model.encoder.embed_tokens.weight",
        TOGETHER,
    ),
    ("embed.tokens.table.weight", "model.shared.weight", SAME),
    *_side("encoder"),
    *_side("decoder"),
    *_attention("decoder.layers.{i}.cross", "model.decoder.layers.{i}.encoder_attn"),
    *both("decoder.layers.{i}.residual.norms.cross", "model.decoder.layers.{i}.encoder_attn_layer_norm"),
    ("head.unembed.weight", "lm_head.weight", SAME),
    ("head.bias", "final_logits_bias", RESHAPED),
]
TIED = {
    "lm_head.weight": "model.shared.weight",
    "model.encoder.embed_tokens.weight": "model.shared.weight",
    "model.decoder.embed_tokens.weight": "model.shared.weight",
}
IGNORED_KEYS = {
    "num_hidden_layers": "encoder_layers by another name",
    "encoder_layerdrop": "how it was trained",
    "decoder_layerdrop": "how it was trained",
    "classif_dropout": "of a head for classes",
    "classifier_dropout": "of a head for classes",
    "extra_pos_embeddings": "the offset of the positions, which the family has",
    "save_step": "how it was trained",
    "id2label": "of a head for classes",
    "num_labels": "of a head for classes",
}


def read_side(theirs: Theirs, side: str, residual: ResidualName, top: LayerNormConfig | None) -> StackConfig:
    """Give our config of the `encoder` or the `decoder`."""
    heads = MultiHeadsConfig(theirs.whole(f"{side}_attention_heads"), bias="all")
    attention = AttentionConfig(heads, dropout=theirs.number("attention_dropout", 0.0))
    layer = LayerConfig(
        mixer=attention,
        cross=attention if side == "decoder" else None,
        feedforward=MLPConfig(
            theirs.whole(f"{side}_ffn_dim"),
            theirs.one_of("activation_function", ACTIVATIONS, "gelu"),
            dropout=theirs.number("activation_dropout", 0.0),
        ),
        residual=residual,
        norm=NORM,
        dropout=theirs.number("dropout", 0.1),
    )
    return StackConfig(depth=theirs.depth(f"{side}_layers"), layers={"block": layer}, norm=top)


def read_head(theirs: Theirs) -> LogitsConfig:
    """Give our config of the head; the bias is there even if it is zero."""
    return LogitsConfig(tied=theirs.flag("tie_word_embeddings", True), bias=True)


def their_sides(config: Any) -> Table:
    """Give the keys of encoder and decoder, and of the embedding."""
    model = part(config, Seq2SeqConfig, "model")
    table: Table = {
        "vocab_size": model.vocabulary,
        "d_model": model.dim,
        "scale_embedding": model.embed.scale,
        "dropout": model.embed.dropout,
        "tie_word_embeddings": model.head.tied,
        "is_encoder_decoder": True,
    }
    for side, stack in (("encoder", model.encoder), ("decoder", model.decoder)):
        layer, path = only_layer(stack, f"model.{side}")
        mixer = part(layer.mixer, AttentionConfig, f"{path}.mixer")
        feedforward = part(layer.feedforward, MLPConfig, f"{path}.feedforward")
        table |= {
            f"{side}_layers": stack.depth,
            f"{side}_attention_heads": part(mixer.heads, MultiHeadsConfig, f"{path}.mixer.heads").heads,
            f"{side}_ffn_dim": feedforward.hidden,
            "attention_dropout": mixer.dropout,
            "activation_dropout": feedforward.dropout,
            "activation_function": their_activation(feedforward.activation),
        }
    return table


def read_sinusoidal(theirs: Theirs, residual: ResidualName, top: LayerNormConfig | None, shared: bool) -> Seq2SeqConfig:
    """Give our config of a model with sinusoidal positions."""
    vocabulary = theirs.whole("vocab_size")
    theirs.whole("max_position_embeddings", 1024)  # positions are computed, so there is no last one here
    return Seq2SeqConfig(
        vocabulary=vocabulary if shared else theirs.whole("decoder_vocab_size", vocabulary),
        source_vocabulary=None if shared else vocabulary,
        dim=theirs.whole("d_model"),
        encoder=read_side(theirs, "encoder", residual, top),
        decoder=read_side(theirs, "decoder", residual, top),
        embed=EmbedConfig(
            SinusoidalConfig("halves"),
            scale=theirs.flag("scale_embedding", False),
            dropout=theirs.number("dropout", 0.1),
        ),
        head=read_head(theirs),
        init=NormalConfig(theirs.number("init_std", 0.02)),
    )


def from_hf(theirs: Theirs) -> Seq2SeqConfig:
    """Give our config."""
    shared = theirs.flag("share_encoder_decoder_embeddings", True)
    theirs.whole("decoder_vocab_size", None)
    theirs.only("normalize_before", False, "Marian has its norms behind")
    theirs.only("normalize_embedding", False, "Marian has no norm on its embeddings")
    theirs.only("add_final_layer_norm", False, "Marian has no norm on top")
    theirs.only("static_position_embeddings", True, "Marian has sinusoidal positions")
    return read_sinusoidal(theirs, "post", None, shared)


def to_hf(config: Any) -> Table:
    """Give their config."""
    table = their_sides(config)
    source = config.source_vocabulary
    return table | {
        "architectures": ["MarianMTModel"],
        "vocab_size": config.vocabulary if source is None else source,
        "decoder_vocab_size": config.vocabulary,
        "share_encoder_decoder_embeddings": source is None,
        "max_position_embeddings": 1024,
    }


FAMILY = Family(
    model_type="marian",
    table=TABLE,
    heads={"MarianMTModel": []},
    from_hf=from_hf,
    to_hf=to_hf,
    ignored_keys=IGNORED_KEYS | {"add_bias_logits": "there is always a bias, if only zero"},
    ignored_weights={"model.*.embed_positions.weight": "sines and cosines"},
    tied=TIED,
)
