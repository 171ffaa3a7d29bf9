"""RoBERTa (Liu et al. 2019): BERT with positions that start after the padding id, and heads of its own."""

from regard.config import Table
from regard.errors import RegardError
from regard.hub.bert import TABLE, bert_keys, read_bert, read_bert_head
from regard.hub.changes import SAME
from regard.hub.conversion import NotExpressibleError, expect
from regard.hub.family import Family, Head, weight_and_bias
from regard.hub.hub_config import HubConfig
from regard.models.encoder import EncoderConfig
from regard.models.recipe import ModelConfig
from regard.parts.absolute_position import LearnedConfig


def _from_hub(hub: HubConfig) -> EncoderConfig:
    head = read_bert_head(hub, "gelu")
    rows, offset = hub.read_int("max_position_embeddings"), hub.read_int("pad_token_id", 1, least=0) + 1
    if rows <= offset:
        raise RegardError(
            f"{hub.place}: max_position_embeddings={rows} must be at least pad_token_id={offset - 1} plus 2"
        )
    return read_bert(hub, LearnedConfig(rows - offset, offset), head)


def _to_hub(config: ModelConfig) -> Table:
    encoder = expect(config, EncoderConfig, "model")
    table = bert_keys(encoder, ("RobertaModel", "RobertaForMaskedLM", "RobertaForSequenceClassification"))
    position = expect(encoder.embed.position, LearnedConfig, "model.embed.position")
    if position.offset == 0:
        raise NotExpressibleError("0 instead of the padding id plus 1", "model.embed.position.offset")
    rows = position.length + position.offset
    return table | {"max_position_embeddings": rows, "pad_token_id": position.offset - 1}


ROBERTA = Family(
    model_type="roberta",
    table=TABLE,
    prefix="roberta.",
    base="RobertaModel",
    architectures={
        "RobertaForMaskedLM": Head(
            "masked",
            [
                *weight_and_bias("head.transform.dense", "lm_head.dense"),
                *weight_and_bias("head.transform.norm", "lm_head.layer_norm"),
                ("head.unembed.weight", "lm_head.decoder.weight", SAME),
                ("head.bias", "lm_head.bias", SAME),
            ],
        ),
        "RobertaForSequenceClassification": Head(
            "classification",
            [
                *weight_and_bias("head.pooled.transform.dense", "classifier.dense"),
                *weight_and_bias("head.classify", "classifier.out_proj"),
            ],
        ),
        "RobertaModel": Head("features", weight_and_bias("head.transform.dense", "pooler.dense")),
    },
    from_hub=_from_hub,
    to_hub=_to_hub,
    ignored_weights={
        "*embeddings.position_ids": "counted from the padding id",
        "roberta.pooler.*": "the pooler, which the head does not use",
    },
    tied={
        "lm_head.decoder.weight": "roberta.embeddings.word_embeddings.weight",
        "lm_head.decoder.bias": "lm_head.bias",
    },
)
