"""DistilBERT (Sanh et al. 2019): BERT with half as many layers, without segments and pooler."""

from regard.config import Table
from regard.hub.activations import ACTIVATIONS, hub_activation
from regard.hub.bert import bert_head_keys
from regard.hub.changes import SAME
from regard.hub.conversion import expect, single_layer
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
from regard.parts.feedforward import MLPConfig
from regard.parts.heads import MultiHeadsConfig
from regard.parts.norm import LayerNormConfig
from regard.parts.pool import FirstConfig

LAYER = "stack.layers.{i}"
HEADS = f"{LAYER}.mixer.heads"
THEIR_LAYER = "transformer.layer.{i}"
NORM = LayerNormConfig(1e-12)  # config.json has no key for eps

TABLE: list[Row] = [
    ("embed.tokens.table.weight", "embeddings.word_embeddings.weight", SAME),
    ("embed.position.table.weight", "embeddings.position_embeddings.weight", SAME),
    *weight_and_bias("embed.norm", "embeddings.LayerNorm"),
    *weight_and_bias(f"{HEADS}.to_query", f"{THEIR_LAYER}.attention.q_lin"),
    *weight_and_bias(f"{HEADS}.to_key", f"{THEIR_LAYER}.attention.k_lin"),
    *weight_and_bias(f"{HEADS}.to_value", f"{THEIR_LAYER}.attention.v_lin"),
    *weight_and_bias(f"{HEADS}.output", f"{THEIR_LAYER}.attention.out_lin"),
    *weight_and_bias(f"{LAYER}.residual.norms.mixer", f"{THEIR_LAYER}.sa_layer_norm"),
    *weight_and_bias(f"{LAYER}.feedforward.up", f"{THEIR_LAYER}.ffn.lin1"),
    *weight_and_bias(f"{LAYER}.feedforward.down", f"{THEIR_LAYER}.ffn.lin2"),
    *weight_and_bias(f"{LAYER}.residual.norms.feedforward", f"{THEIR_LAYER}.output_layer_norm"),
]


def _from_hub(hub: HubConfig) -> EncoderConfig:
    dropout = hub.read_float("dropout", 0.1)
    hub.read_bool("sinusoidal_pos_embds", False)  # how the position table was initialised
    layer = LayerConfig(
        mixer=AttentionConfig(
            MultiHeadsConfig(hub.read_int("n_heads"), bias="all"), dropout=hub.read_float("attention_dropout", 0.1)
        ),
        feedforward=MLPConfig(
            hub.read_int("hidden_dim"), hub.read_name("activation", ACTIVATIONS, "gelu"), dropout=dropout
        ),
        residual="post",
        norm=NORM,
    )
    return EncoderConfig(
        vocabulary=hub.read_int("vocab_size"),
        dim=hub.read_int("dim"),
        depth=hub.read_repeats("n_layers"),
        layers={"block": layer},
        embed=EmbedConfig(LearnedConfig(hub.read_int("max_position_embeddings")), norm=NORM, dropout=dropout),
        head=_head(hub),
        init=NormalConfig(hub.read_float("initializer_range", 0.02)),
    )


def _head(hub: HubConfig) -> HeadConfig:
    classes, tied = hub.read_classes(), hub.read_bool("tie_word_embeddings", True)
    dropout = hub.read_float("seq_classif_dropout", 0.2)
    if hub.task == "features":
        return VectorConfig(FirstConfig())
    if hub.task == "classification":
        return ClassesConfig(FirstConfig(), "relu", classes=classes, dropout=dropout)
    return LogitsConfig(tied=tied, bias=True, transform=hub.read_name("activation", ACTIVATIONS, "gelu"), norm=NORM)


def _to_hub(config: ModelConfig) -> Table:
    encoder = expect(config, EncoderConfig, "model")
    layer, path = single_layer(encoder)
    mixer = expect(layer.mixer, AttentionConfig, f"{path}.mixer")
    heads = expect(mixer.heads, MultiHeadsConfig, f"{path}.mixer.heads")
    feedforward = expect(layer.feedforward, MLPConfig, f"{path}.feedforward")
    architectures = ("DistilBertModel", "DistilBertForMaskedLM", "DistilBertForSequenceClassification")
    head = bert_head_keys(encoder.head, architectures)
    if "classifier_dropout" in head:
        head["seq_classif_dropout"] = head.pop("classifier_dropout")
    return {
        **head,
        "vocab_size": encoder.vocabulary,
        "max_position_embeddings": expect(encoder.embed.position, LearnedConfig, "model.embed.position").length,
        "n_layers": encoder.depth,
        "n_heads": heads.heads,
        "dim": encoder.dim,
        "hidden_dim": feedforward.hidden,
        "dropout": feedforward.dropout,
        "attention_dropout": mixer.dropout,
        "activation": hub_activation(feedforward.activation),
    }


DISTILBERT = Family(
    model_type="distilbert",
    table=TABLE,
    prefix="distilbert.",
    base="DistilBertModel",
    architectures={
        "DistilBertForMaskedLM": Head(
            "masked",
            [
                *weight_and_bias("head.transform.dense", "vocab_transform"),
                *weight_and_bias("head.transform.norm", "vocab_layer_norm"),
                ("head.unembed.weight", "vocab_projector.weight", SAME),
                ("head.bias", "vocab_projector.bias", SAME),
            ],
        ),
        "DistilBertForSequenceClassification": Head(
            "classification",
            [
                *weight_and_bias("head.pooled.transform.dense", "pre_classifier"),
                *weight_and_bias("head.classify", "classifier"),
            ],
        ),
        "DistilBertModel": Head("features"),
    },
    from_hub=_from_hub,
    to_hub=_to_hub,
    ignored_keys={
        "qa_dropout": "belongs to the question-answering head",
        "tie_weights_": "an older name of tie_word_embeddings",
    },
    ignored_weights={"*embeddings.position_ids": "0, 1, 2, ..."},
    tied={"vocab_projector.weight": "distilbert.embeddings.word_embeddings.weight"},
)
