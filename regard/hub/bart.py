"""BART (Lewis et al. 2020): learned positions with two unused rows first, and a norm on each side's embeddings."""

from typing import Any

from regard.config import Table
from regard.hub.changes import SAME
from regard.hub.express import part
from regard.hub.marian import IGNORED_KEYS, NORM, TABLE, TIED, read_head, read_side, their_sides
from regard.hub.table import Family, both
from regard.hub.theirs import Theirs
from regard.models.init import NormalConfig
from regard.models.seq2seq import Seq2SeqConfig
from regard.parts.embed import EmbedConfig
from regard.parts.position import LearnedConfig

OFFSET = 2


def from_hf(theirs: Theirs) -> Seq2SeqConfig:
    """Give our config."""
    theirs.only("normalize_before", False, "BART has its norms behind")
    theirs.only("normalize_embedding", True, "BART has a norm on its embeddings")
    theirs.only("add_final_layer_norm", False, "BART has no norm on top")
    theirs.only("static_position_embeddings", False, "BART has learned positions")
    return Seq2SeqConfig(
        vocabulary=theirs.whole("vocab_size"),
        shared="tokens",
        dim=theirs.whole("d_model"),
        encoder=read_side(theirs, "encoder", "post", None),
        decoder=read_side(theirs, "decoder", "post", None),
        embed=EmbedConfig(
            LearnedConfig(theirs.whole("max_position_embeddings"), OFFSET),
            norm=NORM,
            scale=theirs.flag("scale_embedding", False),
            dropout=theirs.number("dropout", 0.1),
        ),
        head=read_head(theirs),
        init=NormalConfig(theirs.number("init_std", 0.02)),
    )


def to_hf(config: Any) -> Table:
    """Give their config."""
    return their_sides(config) | {
        "architectures": ["BartForConditionalGeneration"],
        "max_position_embeddings": part(config.embed.position, LearnedConfig, "model.embed.position").length,
    }


FAMILY = Family(
    model_type="bart",
    table=[
        *TABLE,
        ("embed.position.table.weight", "model.decoder.embed_positions.weight", SAME),
        ("source_embed.position.table.weight", "model.encoder.embed_positions.weight", SAME),
        *both("embed.norm", "model.decoder.layernorm_embedding"),
        *both("source_embed.norm", "model.encoder.layernorm_embedding"),
    ],
    heads={"BartForConditionalGeneration": []},
    from_hf=from_hf,
    to_hf=to_hf,
    ignored_keys=IGNORED_KEYS | {"add_bias_logits": "there is always a bias, if only zero"},
    tied=TIED,
)
