"""RoBERTa (Liu et al. 2019): BERT whose positions begin behind the id of the padding, with heads of its own."""

from typing import Any

from regard.config import Table
from regard.errors import RegardError
from regard.hub.bert import TABLE, read_encoder, read_head, their_encoder
from regard.hub.changes import SAME
from regard.hub.express import UnlikeError, part
from regard.hub.table import Family, both
from regard.hub.theirs import Theirs
from regard.models.encoder import EncoderConfig
from regard.parts.position import LearnedConfig


def from_hf(theirs: Theirs) -> EncoderConfig:
    """Give our config."""
    head = read_head(theirs, "RobertaModel", "gelu", "tanh", "pooler.dense.weight")
    rows, offset = theirs.whole("max_position_embeddings"), theirs.whole("pad_token_id", 1, least=0) + 1
    if rows <= offset:
        raise RegardError(
            f"{theirs.place}: max_position_embeddings={rows} must be above pad_token_id={offset - 1}, by 2"
        )
    return read_encoder(theirs, LearnedConfig(rows - offset, offset), head)


def to_hf(config: Any) -> Table:
    """Give their config."""
    table = their_encoder(config, "RobertaModel", "RobertaForMaskedLM", "RobertaForSequenceClassification")
    position = part(config.embed.position, LearnedConfig, "model.embed.position")
    if position.offset == 0:
        raise UnlikeError("0 where it has the id of the padding, plus 1", "model.embed.position.offset")
    rows = position.length + position.offset
    return table | {"max_position_embeddings": rows, "pad_token_id": position.offset - 1}


FAMILY = Family(
    model_type="roberta",
    table=TABLE,
    prefix="roberta.",
    base="RobertaModel",
    heads={
        "RobertaForMaskedLM": [
            *both("head.transform.dense", "lm_head.dense"),
            *both("head.transform.norm", "lm_head.layer_norm"),
            ("head.unembed.weight", "lm_head.decoder.weight", SAME),
            ("head.bias", "lm_head.bias", SAME),
        ],
        "RobertaForSequenceClassification": [
            *both("head.pooled.transform.dense", "classifier.dense"),
            *both("head.classify", "classifier.out_proj"),
        ],
        "RobertaModel": both("head.transform.dense", "pooler.dense"),
    },
    from_hf=from_hf,
    to_hf=to_hf,
    ignored_weights={
        "*embeddings.position_ids": "they count from behind the padding",
        "roberta.pooler.*": "the pooler, below another head",
    },
    tied={
        "lm_head.decoder.weight": "roberta.embeddings.word_embeddings.weight",
        "lm_head.decoder.bias": "lm_head.bias",
    },
)
