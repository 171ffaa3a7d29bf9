"""Marian (Junczys-Dowmunt et al. 2018), used by OPUS-MT: the Transformer of 2017, with sines before cosines.

BART and Pegasus use the same names for their layers.
"""

from regard.config import Table
from regard.hub.activations import ACTIVATIONS, hub_activation
from regard.hub.changes import RESHAPED, SAME, TOGETHER
from regard.hub.conversion import expect, single_layer
from regard.hub.family import Family, Head, Row, weight_and_bias
from regard.hub.hub_config import HubConfig
from regard.models.head import LogitsConfig
from regard.models.init import NormalConfig
from regard.models.recipe import ModelConfig
from regard.models.seq2seq import Seq2SeqConfig
from regard.models.stack import LayerConfig, StackConfig
from regard.parts.absolute_position import SinusoidalConfig
from regard.parts.attention import AttentionConfig
from regard.parts.embed import EmbedConfig
from regard.parts.feedforward import MLPConfig
from regard.parts.heads import MultiHeadsConfig
from regard.parts.norm import LayerNormConfig
from regard.parts.residual import ResidualName

NORM = LayerNormConfig(1e-5)  # config.json has no key for eps


def _attention(ours: str, theirs: str) -> list[Row]:
    return [
        *weight_and_bias(f"{ours}.heads.to_query", f"{theirs}.q_proj"),
        *weight_and_bias(f"{ours}.heads.to_key", f"{theirs}.k_proj"),
        *weight_and_bias(f"{ours}.heads.to_value", f"{theirs}.v_proj"),
        *weight_and_bias(f"{ours}.heads.output", f"{theirs}.out_proj"),
    ]


def _stack(side: str) -> list[Row]:
    ours, theirs = f"{side}.layers.{{i}}", f"model.{side}.layers.{{i}}"
    return [
        *_attention(f"{ours}.mixer", f"{theirs}.self_attn"),
        *weight_and_bias(f"{ours}.residual.norms.mixer", f"{theirs}.self_attn_layer_norm"),
        *weight_and_bias(f"{ours}.feedforward.up", f"{theirs}.fc1"),
        *weight_and_bias(f"{ours}.feedforward.down", f"{theirs}.fc2"),
        *weight_and_bias(f"{ours}.residual.norms.feedforward", f"{theirs}.final_layer_norm"),
    ]


TABLE: list[Row] = [
    (
        ("embed.tokens.table.weight", "source_embed.tokens.table.weight"),
        "model.decoder.embed_tokens.weight|model.encoder.embed_tokens.weight",
        TOGETHER,
    ),
    ("embed.tokens.table.weight", "model.shared.weight", SAME),
    *_stack("encoder"),
    *_stack("decoder"),
    *_attention("decoder.layers.{i}.cross", "model.decoder.layers.{i}.encoder_attn"),
    *weight_and_bias("decoder.layers.{i}.residual.norms.cross", "model.decoder.layers.{i}.encoder_attn_layer_norm"),
    ("head.unembed.weight", "lm_head.weight", SAME),
    ("head.bias", "final_logits_bias", RESHAPED),
]
TIED = {
    "lm_head.weight": "model.shared.weight",
    "model.encoder.embed_tokens.weight": "model.shared.weight",
    "model.decoder.embed_tokens.weight": "model.shared.weight",
}
IGNORED_KEYS = {
    "num_hidden_layers": "an alias of encoder_layers",
    "encoder_layerdrop": "affects training only",
    "decoder_layerdrop": "affects training only",
    "classif_dropout": "belongs to the classification head",
    "classifier_dropout": "belongs to the classification head",
    "extra_pos_embeddings": "the offset of the positions, fixed by the family",
    "save_step": "affects training only",
    "id2label": "belongs to the classification head",
    "num_labels": "belongs to the classification head",
}


def read_marian_stack(hub: HubConfig, side: str, residual: ResidualName, norm: LayerNormConfig | None) -> StackConfig:
    """Return our config of the `encoder` or the `decoder`; `norm` comes after the last layer."""
    heads = MultiHeadsConfig(hub.read_int(f"{side}_attention_heads"), bias="all")
    attention = AttentionConfig(heads, dropout=hub.read_float("attention_dropout", 0.0))
    layer = LayerConfig(
        mixer=attention,
        cross=attention if side == "decoder" else None,
        feedforward=MLPConfig(
            hub.read_int(f"{side}_ffn_dim"),
            hub.read_name("activation_function", ACTIVATIONS, "gelu"),
            dropout=hub.read_float("activation_dropout", 0.0),
        ),
        residual=residual,
        norm=NORM,
        dropout=hub.read_float("dropout", 0.1),
    )
    return StackConfig(depth=hub.read_repeats(f"{side}_layers"), layers={"block": layer}, norm=norm)


def read_marian_head(hub: HubConfig) -> LogitsConfig:
    """Return our config of the head, which always has a bias, perhaps of zeros."""
    return LogitsConfig(tied=hub.read_bool("tie_word_embeddings", True), bias=True)


def marian_keys(model: Seq2SeqConfig) -> Table:
    """Return the keys of embedding, encoder and decoder."""
    table: Table = {
        "vocab_size": model.vocabulary,
        "d_model": model.dim,
        "scale_embedding": model.embed.scale,
        "dropout": model.embed.dropout,
        "tie_word_embeddings": model.head.tied,
        "is_encoder_decoder": True,
    }
    for side, stack in (("encoder", model.encoder), ("decoder", model.decoder)):
        layer, path = single_layer(stack, f"model.{side}")
        mixer = expect(layer.mixer, AttentionConfig, f"{path}.mixer")
        feedforward = expect(layer.feedforward, MLPConfig, f"{path}.feedforward")
        table |= {
            f"{side}_layers": stack.depth,
            f"{side}_attention_heads": expect(mixer.heads, MultiHeadsConfig, f"{path}.mixer.heads").heads,
            f"{side}_ffn_dim": feedforward.hidden,
            "attention_dropout": mixer.dropout,
            "activation_dropout": feedforward.dropout,
            "activation_function": hub_activation(feedforward.activation),
        }
    return table


def read_sinusoidal_marian(
    hub: HubConfig, residual: ResidualName, norm: LayerNormConfig | None, shared: bool
) -> Seq2SeqConfig:
    """Return our config of a model with sinusoidal positions; `shared`: one vocabulary for both sides."""
    vocabulary = hub.read_int("vocab_size")
    hub.read_int("max_position_embeddings", 1024)  # positions are computed here, without a limit
    return Seq2SeqConfig(
        vocabulary=vocabulary if shared else hub.read_int("decoder_vocab_size", vocabulary),
        source_vocabulary=None if shared else vocabulary,
        dim=hub.read_int("d_model"),
        encoder=read_marian_stack(hub, "encoder", residual, norm),
        decoder=read_marian_stack(hub, "decoder", residual, norm),
        embed=EmbedConfig(
            SinusoidalConfig("halves"),
            scale=hub.read_bool("scale_embedding", False),
            dropout=hub.read_float("dropout", 0.1),
        ),
        head=read_marian_head(hub),
        init=NormalConfig(hub.read_float("init_std", 0.02)),
    )


def _from_hub(hub: HubConfig) -> Seq2SeqConfig:
    shared = hub.read_bool("share_encoder_decoder_embeddings", True)
    hub.read_optional_int("decoder_vocab_size")
    hub.require("normalize_before", False, "Marian is post-norm")
    hub.require("normalize_embedding", False, "Marian has no norm on its embeddings")
    hub.require("add_final_layer_norm", False, "Marian has no norm after the last layer")
    hub.require("static_position_embeddings", True, "Marian has sinusoidal positions")
    return read_sinusoidal_marian(hub, "post", None, shared)


def _to_hub(config: ModelConfig) -> Table:
    model = expect(config, Seq2SeqConfig, "model")
    source = model.source_vocabulary
    return marian_keys(model) | {
        "architectures": ["MarianMTModel"],
        "vocab_size": model.vocabulary if source is None else source,
        "decoder_vocab_size": model.vocabulary,
        "share_encoder_decoder_embeddings": source is None,
        "max_position_embeddings": 1024,
    }


MARIAN = Family(
    model_type="marian",
    table=TABLE,
    architectures={"MarianMTModel": Head("translation")},
    from_hub=_from_hub,
    to_hub=_to_hub,
    ignored_keys=IGNORED_KEYS | {"add_bias_logits": "the logits always have a bias, perhaps of zeros"},
    ignored_weights={"model.*.embed_positions.weight": "sines and cosines"},
    tied=TIED,
)
