"""BERT (Devlin et al. 2018): masked tokens, classes, or the pooled vector. RoBERTa shares its body."""

from typing import Any

from regard.config import Table
from regard.hub.activations import ACTIVATIONS, their_activation
from regard.hub.changes import SAME
from regard.hub.express import UnlikeError, only_layer, part
from regard.hub.table import Family, Row, both
from regard.hub.theirs import Theirs
from regard.models.encoder import EncoderConfig
from regard.models.head import ClassesConfig, HeadConfig, LogitsConfig, VectorConfig
from regard.models.init import NormalConfig
from regard.models.stack import LayerConfig
from regard.parts.attention import AttentionConfig
from regard.parts.embed import EmbedConfig
from regard.parts.feedforward import Activation, MLPConfig
from regard.parts.heads import MultiHeadsConfig
from regard.parts.norm import LayerNormConfig
from regard.parts.pool import FirstConfig
from regard.parts.position import LearnedConfig

LAYER = "stack.layers.{i}"
HEADS = f"{LAYER}.mixer.heads"
THEIR_LAYER = "encoder.layer.{i}"

TABLE: list[Row] = [
    ("embed.tokens.table.weight", "embeddings.word_embeddings.weight", SAME),
    ("embed.position.table.weight", "embeddings.position_embeddings.weight", SAME),
    ("embed.segments.weight", "embeddings.token_type_embeddings.weight", SAME),
    *both("embed.norm", "embeddings.LayerNorm"),
    *both(f"{HEADS}.to_query", f"{THEIR_LAYER}.attention.self.query"),
    *both(f"{HEADS}.to_key", f"{THEIR_LAYER}.attention.self.key"),
    *both(f"{HEADS}.to_value", f"{THEIR_LAYER}.attention.self.value"),
    *both(f"{HEADS}.output", f"{THEIR_LAYER}.attention.output.dense"),
    *both(f"{LAYER}.residual.norms.mixer", f"{THEIR_LAYER}.attention.output.LayerNorm"),
    *both(f"{LAYER}.feedforward.up", f"{THEIR_LAYER}.intermediate.dense"),
    *both(f"{LAYER}.feedforward.down", f"{THEIR_LAYER}.output.dense"),
    *both(f"{LAYER}.residual.norms.feedforward", f"{THEIR_LAYER}.output.LayerNorm"),
]
MASKED: list[Row] = [
    *both("head.transform.dense", "cls.predictions.transform.dense"),
    *both("head.transform.norm", "cls.predictions.transform.LayerNorm"),
    ("head.unembed.weight", "cls.predictions.decoder.weight", SAME),
    ("head.bias", "cls.predictions.bias", SAME),
]


def read_encoder(theirs: Theirs, position: LearnedConfig, head: HeadConfig) -> EncoderConfig:
    """Give our config of a post-norm encoder with the names that BERT's config has."""
    why = "an encoder sees the whole text, and no other"
    theirs.only("is_decoder", False, why)
    theirs.only("add_cross_attention", False, why)
    theirs.only("position_embedding_type", "absolute", "positions are added to the tokens here")
    norm = LayerNormConfig(theirs.number("layer_norm_eps", 1e-12))
    dropout = theirs.number("hidden_dropout_prob", 0.1)
    layer = LayerConfig(
        mixer=AttentionConfig(
            MultiHeadsConfig(theirs.whole("num_attention_heads"), bias="all"),
            dropout=theirs.number("attention_probs_dropout_prob", 0.1),
        ),
        feedforward=MLPConfig(theirs.whole("intermediate_size"), theirs.one_of("hidden_act", ACTIVATIONS, "gelu")),
        residual="post",
        norm=norm,
        dropout=dropout,
    )
    return EncoderConfig(
        vocabulary=theirs.whole("vocab_size"),
        dim=theirs.whole("hidden_size"),
        depth=theirs.depth("num_hidden_layers"),
        layers={"block": layer},
        embed=EmbedConfig(position, segments=theirs.whole("type_vocab_size", 2), norm=norm, dropout=dropout),
        head=head,
        init=NormalConfig(theirs.number("initializer_range", 0.02)),
    )


def read_head(theirs: Theirs, base: str, masked: Activation, classes: Activation | None, pooler: str) -> HeadConfig:
    """Give the head that an architecture has: what `masked` and `classes` transform by, and the body's `pooler`."""
    count = theirs.classes()
    theirs.only("tie_word_embeddings", True, "an untied head has two biases there, of which one does nothing")
    dropout = theirs.number("classifier_dropout", theirs.number("hidden_dropout_prob", 0.1))
    if theirs.architecture == base:
        has_pooler = not theirs.weights or pooler in theirs.weights
        return VectorConfig(FirstConfig(), "tanh" if has_pooler else None)
    if theirs.architecture.endswith("ForSequenceClassification"):
        return ClassesConfig(FirstConfig(), classes, classes=count, dropout=dropout)
    return LogitsConfig(bias=True, transform=masked, norm=LayerNormConfig(theirs.number("layer_norm_eps", 1e-12)))


def their_encoder(config: Any, base: str, masked: str, classes: str) -> Table:
    """Give the keys of a post-norm encoder, by the names that BERT's config has."""
    encoder = part(config, EncoderConfig, "model")
    layer, path = only_layer(encoder)
    mixer = part(layer.mixer, AttentionConfig, f"{path}.mixer")
    heads = part(mixer.heads, MultiHeadsConfig, f"{path}.mixer.heads")
    feedforward = part(layer.feedforward, MLPConfig, f"{path}.feedforward")
    if isinstance(encoder.head, LogitsConfig) and not encoder.head.tied:
        raise UnlikeError("false where it is true", "model.head.tied")
    if encoder.embed.segments is None:
        raise UnlikeError("nothing where it has a table of segments", "model.embed.segments")
    return {
        **their_head(encoder.head, base, masked, classes),
        "vocab_size": encoder.vocabulary,
        "hidden_size": encoder.dim,
        "num_hidden_layers": encoder.depth,
        "num_attention_heads": heads.heads,
        "intermediate_size": feedforward.hidden,
        "hidden_act": their_activation(feedforward.activation),
        "hidden_dropout_prob": layer.dropout,
        "attention_probs_dropout_prob": mixer.dropout,
        "type_vocab_size": encoder.embed.segments,
        "layer_norm_eps": part(layer.norm, LayerNormConfig, f"{path}.norm").eps,
    }


def their_head(head: HeadConfig, base: str, masked: str, classes: str) -> Table:
    """Give the keys that say which head it is."""
    if isinstance(head, ClassesConfig):
        return {"architectures": [classes], "num_labels": head.classes, "classifier_dropout": head.dropout}
    if isinstance(head, VectorConfig):
        return {"architectures": [base]}
    logits = part(head, LogitsConfig, "model.head")
    return {"architectures": [masked], "tie_word_embeddings": logits.tied}


def from_hf(theirs: Theirs) -> EncoderConfig:
    """Give our config."""
    head = read_head(
        theirs, "BertModel", theirs.one_of("hidden_act", ACTIVATIONS, "gelu"), "tanh", "pooler.dense.weight"
    )
    return read_encoder(theirs, LearnedConfig(theirs.whole("max_position_embeddings")), head)


def to_hf(config: Any) -> Table:
    """Give their config."""
    table = their_encoder(config, "BertModel", "BertForMaskedLM", "BertForSequenceClassification")
    return table | {
        "max_position_embeddings": part(config.embed.position, LearnedConfig, "model.embed.position").length
    }


FAMILY = Family(
    model_type="bert",
    table=TABLE,
    prefix="bert.",
    base="BertModel",
    heads={
        "BertForMaskedLM": MASKED,
        "BertForPreTraining": MASKED,
        "BertForSequenceClassification": [
            *both("head.pooled.transform.dense", "bert.pooler.dense"),
            *both("head.classify", "classifier"),
        ],
        "BertModel": both("head.transform.dense", "pooler.dense"),
    },
    from_hf=from_hf,
    to_hf=to_hf,
    ignored_weights={
        "*embeddings.position_ids": "they count from 0",
        "bert.pooler.*": "the pooler, below another head",
        "cls.seq_relationship.*": "the head for the next sentence, beside that for masked tokens",
    },
    tied={
        "cls.predictions.decoder.weight": "bert.embeddings.word_embeddings.weight",
        "cls.predictions.decoder.bias": "cls.predictions.bias",
    },
    old_names={".LayerNorm.gamma": ".LayerNorm.weight", ".LayerNorm.beta": ".LayerNorm.bias"},
)
