"""BERT (Devlin et al. 2018): masked tokens, classes, or the pooled vector. RoBERTa shares its layers."""

from regard.config import Table
from regard.hub.activations import ACTIVATIONS, hub_activation
from regard.hub.changes import SAME
from regard.hub.conversion import NotExpressibleError, expect, single_layer
from regard.hub.family import Family, Head, Row, weight_and_bias
from regard.hub.hub_config import HubConfig
from regard.models.encoder import EncoderConfig
from regard.models.head import ClassesConfig, HeadConfig, LogitsConfig, VectorConfig
from regard.models.init import NormalConfig
from regard.models.recipe import ModelConfig
from regard.models.stack import LayerConfig
from regard.parts.absolute_position import LearnedConfig
from regard.parts.attention import AttentionConfig
from regard.parts.embed import EmbedConfig
from regard.parts.feedforward import Activation, MLPConfig
from regard.parts.heads import MultiHeadsConfig
from regard.parts.norm import LayerNormConfig
from regard.parts.pool import FirstConfig

LAYER = "stack.layers.{i}"
HEADS = f"{LAYER}.mixer.heads"
THEIR_LAYER = "encoder.layer.{i}"

TABLE: list[Row] = [
    ("embed.tokens.table.weight", "embeddings.word_embeddings.weight", SAME),
    ("embed.position.table.weight", "embeddings.position_embeddings.weight", SAME),
    ("embed.segments.weight", "embeddings.token_type_embeddings.weight", SAME),
    *weight_and_bias("embed.norm", "embeddings.LayerNorm"),
    *weight_and_bias(f"{HEADS}.to_query", f"{THEIR_LAYER}.attention.self.query"),
    *weight_and_bias(f"{HEADS}.to_key", f"{THEIR_LAYER}.attention.self.key"),
    *weight_and_bias(f"{HEADS}.to_value", f"{THEIR_LAYER}.attention.self.value"),
    *weight_and_bias(f"{HEADS}.output", f"{THEIR_LAYER}.attention.output.dense"),
    *weight_and_bias(f"{LAYER}.residual.norms.mixer", f"{THEIR_LAYER}.attention.output.LayerNorm"),
    *weight_and_bias(f"{LAYER}.feedforward.up", f"{THEIR_LAYER}.intermediate.dense"),
    *weight_and_bias(f"{LAYER}.feedforward.down", f"{THEIR_LAYER}.output.dense"),
    *weight_and_bias(f"{LAYER}.residual.norms.feedforward", f"{THEIR_LAYER}.output.LayerNorm"),
]
MASKED: list[Row] = [
    *weight_and_bias("head.transform.dense", "cls.predictions.transform.dense"),
    *weight_and_bias("head.transform.norm", "cls.predictions.transform.LayerNorm"),
    ("head.unembed.weight", "cls.predictions.decoder.weight", SAME),
    ("head.bias", "cls.predictions.bias", SAME),
]


def read_bert(hub: HubConfig, position: LearnedConfig, head: HeadConfig) -> EncoderConfig:
    """Return our config of a post-norm encoder whose config.json has BERT's keys."""
    why = "only encoders without cross-attention are supported"
    hub.require("is_decoder", False, why)
    hub.require("add_cross_attention", False, why)
    hub.require(
        "position_embedding_type", "absolute", "only position vectors that are added to the tokens are supported"
    )
    norm = LayerNormConfig(hub.read_float("layer_norm_eps", 1e-12))
    dropout = hub.read_float("hidden_dropout_prob", 0.1)
    layer = LayerConfig(
        mixer=AttentionConfig(
            MultiHeadsConfig(hub.read_int("num_attention_heads"), bias="all"),
            dropout=hub.read_float("attention_probs_dropout_prob", 0.1),
        ),
        feedforward=MLPConfig(hub.read_int("intermediate_size"), hub.read_name("hidden_act", ACTIVATIONS, "gelu")),
        residual="post",
        norm=norm,
        dropout=dropout,
    )
    return EncoderConfig(
        vocabulary=hub.read_int("vocab_size"),
        dim=hub.read_int("hidden_size"),
        depth=hub.read_repeats("num_hidden_layers"),
        layers={"block": layer},
        embed=EmbedConfig(position, segments=hub.read_int("type_vocab_size", 2), norm=norm, dropout=dropout),
        head=head,
        init=NormalConfig(hub.read_float("initializer_range", 0.02)),
    )


def read_bert_head(hub: HubConfig, masked: Activation) -> HeadConfig:
    """Return the head of the task; `masked` is the activation of the head for masked tokens."""
    count = hub.read_classes()
    hub.require("tie_word_embeddings", True, "an untied head has two biases, one of them unused")
    dropout = hub.read_float("classifier_dropout", hub.read_float("hidden_dropout_prob", 0.1))
    if hub.task == "features":
        has_pooler = not hub.weights or "pooler.dense.weight" in hub.weights
        return VectorConfig(FirstConfig(), "tanh" if has_pooler else None)
    if hub.task == "classification":
        return ClassesConfig(FirstConfig(), "tanh", classes=count, dropout=dropout)
    return LogitsConfig(bias=True, transform=masked, norm=LayerNormConfig(hub.read_float("layer_norm_eps", 1e-12)))


def bert_keys(encoder: EncoderConfig, architectures: tuple[str, str, str]) -> Table:
    """Return the keys of a post-norm encoder in BERT's names.

    `architectures` are the classes for a vector per text, masked tokens and classes.
    """
    layer, path = single_layer(encoder)
    mixer = expect(layer.mixer, AttentionConfig, f"{path}.mixer")
    heads = expect(mixer.heads, MultiHeadsConfig, f"{path}.mixer.heads")
    feedforward = expect(layer.feedforward, MLPConfig, f"{path}.feedforward")
    if isinstance(encoder.head, LogitsConfig) and not encoder.head.tied:
        raise NotExpressibleError("false instead of true", "model.head.tied")
    if encoder.embed.segments is None:
        raise NotExpressibleError("none instead of a segment table", "model.embed.segments")
    return {
        **bert_head_keys(encoder.head, architectures),
        "vocab_size": encoder.vocabulary,
        "hidden_size": encoder.dim,
        "num_hidden_layers": encoder.depth,
        "num_attention_heads": heads.heads,
        "intermediate_size": feedforward.hidden,
        "hidden_act": hub_activation(feedforward.activation),
        "hidden_dropout_prob": layer.dropout,
        "attention_probs_dropout_prob": mixer.dropout,
        "type_vocab_size": encoder.embed.segments,
        "layer_norm_eps": expect(layer.norm, LayerNormConfig, f"{path}.norm").eps,
    }


def bert_head_keys(head: HeadConfig, architectures: tuple[str, str, str]) -> Table:
    """Return the keys of the head; `architectures` as in `bert_keys`."""
    features, masked, classes = architectures
    if isinstance(head, ClassesConfig):
        return {"architectures": [classes], "num_labels": head.classes, "classifier_dropout": head.dropout}
    if isinstance(head, VectorConfig):
        return {"architectures": [features]}
    return {"architectures": [masked], "tie_word_embeddings": expect(head, LogitsConfig, "model.head").tied}


def _from_hub(hub: HubConfig) -> EncoderConfig:
    head = read_bert_head(hub, hub.read_name("hidden_act", ACTIVATIONS, "gelu"))
    return read_bert(hub, LearnedConfig(hub.read_int("max_position_embeddings")), head)


def _to_hub(config: ModelConfig) -> Table:
    encoder = expect(config, EncoderConfig, "model")
    table = bert_keys(encoder, ("BertModel", "BertForMaskedLM", "BertForSequenceClassification"))
    position = expect(encoder.embed.position, LearnedConfig, "model.embed.position")
    return table | {"max_position_embeddings": position.length}


BERT = Family(
    model_type="bert",
    table=TABLE,
    prefix="bert.",
    base="BertModel",
    architectures={
        "BertForMaskedLM": Head("masked", MASKED),
        "BertForPreTraining": Head("masked", MASKED),
        "BertForSequenceClassification": Head(
            "classification",
            [
                *weight_and_bias("head.pooled.transform.dense", "bert.pooler.dense"),
                *weight_and_bias("head.classify", "classifier"),
            ],
        ),
        "BertModel": Head("features", weight_and_bias("head.transform.dense", "pooler.dense")),
    },
    from_hub=_from_hub,
    to_hub=_to_hub,
    ignored_weights={
        "*embeddings.position_ids": "0, 1, 2, ...",
        "bert.pooler.*": "the pooler, which the head does not use",
        "cls.seq_relationship.*": "the next-sentence head",
    },
    tied={
        "cls.predictions.decoder.weight": "bert.embeddings.word_embeddings.weight",
        "cls.predictions.decoder.bias": "cls.predictions.bias",
    },
    old_names={".LayerNorm.gamma": ".LayerNorm.weight", ".LayerNorm.beta": ".LayerNorm.bias"},
)
