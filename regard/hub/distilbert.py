"""DistilBERT (Sanh et al. 2019): BERT in half as many layers, without segments and pooler."""

from typing import Any

from regard.config import Table
from regard.hub.activations import ACTIVATIONS, their_activation
from regard.hub.bert import their_head
from regard.hub.changes import SAME
from regard.hub.express import only_layer, part
from regard.hub.table import Family, Row, both
from regard.hub.theirs import Theirs
from regard.models.encoder import EncoderConfig
from regard.models.head import ClassesConfig, HeadConfig, LogitsConfig, VectorConfig
from regard.models.init import NormalConfig
from regard.models.stack import LayerConfig
from regard.parts.attention import AttentionConfig
from regard.parts.embed import EmbedConfig
from regard.parts.feedforward import MLPConfig
from regard.parts.heads import MultiHeadsConfig
from regard.parts.norm import LayerNormConfig
from regard.parts.pool import FirstConfig
from regard.parts.position import LearnedConfig

LAYER = "stack.layers.{i}"
HEADS = f"{LAYER}.mixer.heads"
THEIR_LAYER = "transformer.layer.{i}"
NORM = LayerNormConfig(1e-12)  # it has no key for that

TABLE: list[Row] = [
    ("embed.tokens.table.weight", "embeddings.word_embeddings.weight", SAME),
    ("embed.position.table.weight", "embeddings.position_embeddings.weight", SAME),
    *both("embed.norm", "embeddings.LayerNorm"),
    *both(f"{HEADS}.to_query", f"{THEIR_LAYER}.attention.q_lin"),
    *both(f"{HEADS}.to_key", f"{THEIR_LAYER}.attention.k_lin"),
    *both(f"{HEADS}.to_value", f"{THEIR_LAYER}.attention.v_lin"),
    *both(f"{HEADS}.output", f"{THEIR_LAYER}.attention.out_lin"),
    *both(f"{LAYER}.residual.norms.mixer", f"{THEIR_LAYER}.sa_layer_norm"),
    *both(f"{LAYER}.feedforward.up", f"{THEIR_LAYER}.ffn.lin1"),
    *both(f"{LAYER}.feedforward.down", f"{THEIR_LAYER}.ffn.lin2"),
    *both(f"{LAYER}.residual.norms.feedforward", f"{THEIR_LAYER}.output_layer_norm"),
]


def from_hf(theirs: Theirs) -> EncoderConfig:
    """Give our config."""
    dropout = theirs.number("dropout", 0.1)
    theirs.flag("sinusoidal_pos_embds", False)  # how the table began; it is a table all the same
    layer = LayerConfig(
        mixer=AttentionConfig(
            MultiHeadsConfig(theirs.whole("n_heads"), bias="all"), dropout=theirs.number("attention_dropout", 0.1)
        ),
        feedforward=MLPConfig(
            theirs.whole("hidden_dim"), theirs.one_of("activation", ACTIVATIONS, "gelu"), dropout=dropout
        ),
        residual="post",
        norm=NORM,
    )
    return EncoderConfig(
        vocabulary=theirs.whole("vocab_size"),
        dim=theirs.whole("dim"),
        depth=theirs.depth("n_layers"),
        layers={"block": layer},
        embed=EmbedConfig(LearnedConfig(theirs.whole("max_position_embeddings")), norm=NORM, dropout=dropout),
        head=_head(theirs),
        init=NormalConfig(theirs.number("initializer_range", 0.02)),
    )


def _head(theirs: Theirs) -> HeadConfig:
    classes, tied = theirs.classes(), theirs.flag("tie_word_embeddings", True)
    dropout = theirs.number("seq_classif_dropout", 0.2)
    if theirs.architecture == "DistilBertModel":
        return VectorConfig(FirstConfig())
    if theirs.architecture == "DistilBertForSequenceClassification":
        return ClassesConfig(FirstConfig(), "relu", classes=classes, dropout=dropout)
    return LogitsConfig(tied=tied, bias=True, transform=theirs.one_of("activation", ACTIVATIONS, "gelu"), norm=NORM)


def to_hf(config: Any) -> Table:
    """Give their config."""
    encoder = part(config, EncoderConfig, "model")
    layer, path = only_layer(encoder)
    mixer = part(layer.mixer, AttentionConfig, f"{path}.mixer")
    heads = part(mixer.heads, MultiHeadsConfig, f"{path}.mixer.heads")
    feedforward = part(layer.feedforward, MLPConfig, f"{path}.feedforward")
    head = their_head(encoder.head, "DistilBertModel", "DistilBertForMaskedLM", "DistilBertForSequenceClassification")
    if "classifier_dropout" in head:
        head["seq_classif_dropout"] = head.pop("classifier_dropout")
    return {
        **head,
        "vocab_size": encoder.vocabulary,
        "max_position_embeddings": part(encoder.embed.position, LearnedConfig, "model.embed.position").length,
        "n_layers": encoder.depth,
        "n_heads": heads.heads,
        "dim": encoder.dim,
        "hidden_dim": feedforward.hidden,
        "dropout": feedforward.dropout,
        "attention_dropout": mixer.dropout,
        "activation": their_activation(feedforward.activation),
    }


FAMILY = Family(
    model_type="distilbert",
    table=TABLE,
    prefix="distilbert.",
    base="DistilBertModel",
    heads={
        "DistilBertForMaskedLM": [
            *both("head.transform.dense", "vocab_transform"),
            *both("head.transform.norm", "vocab_layer_norm"),
            ("head.unembed.weight", "vocab_projector.weight", SAME),
            ("head.bias", "vocab_projector.bias", SAME),
        ],
        "DistilBertForSequenceClassification": [
            *both("head.pooled.transform.dense", "pre_classifier"),
            *both("head.classify", "classifier"),
        ],
        "DistilBertModel": [],
    },
    from_hf=from_hf,
    to_hf=to_hf,
    ignored_keys={"qa_dropout": "of a head for answers", "tie_weights_": "tie_word_embeddings by an older name"},
    ignored_weights={"*embeddings.position_ids": "they count from 0"},
    tied={"vocab_projector.weight": "distilbert.embeddings.word_embeddings.weight"},
)
