"""BART (Lewis et al. 2020): learned positions after two unused rows, and a norm on the embeddings of either side."""

from regard.config import Table
from regard.hub.changes import SAME
from regard.hub.conversion import expect
from regard.hub.family import Family, Head, weight_and_bias
from regard.hub.hub_config import HubConfig
from regard.hub.marian import IGNORED_KEYS, NORM, TABLE, TIED, marian_keys, read_marian_head, read_marian_stack
from regard.models.init import NormalConfig
from regard.models.recipe import ModelConfig
from regard.models.seq2seq import Seq2SeqConfig
from regard.parts.absolute_position import LearnedConfig
from regard.parts.embed import EmbedConfig

OFFSET = 2


def _from_hub(hub: HubConfig) -> Seq2SeqConfig:
    hub.require("normalize_before", False, "BART is post-norm")
    hub.require("normalize_embedding", True, "BART has a norm on its embeddings")
    hub.require("add_final_layer_norm", False, "BART has no norm after the last layer")
    hub.require("static_position_embeddings", False, "BART has learned positions")
    return Seq2SeqConfig(
        vocabulary=hub.read_int("vocab_size"),
        shared="tokens",
        dim=hub.read_int("d_model"),
        encoder=read_marian_stack(hub, "encoder", "post", None),
        decoder=read_marian_stack(hub, "decoder", "post", None),
        embed=EmbedConfig(
            LearnedConfig(hub.read_int("max_position_embeddings"), OFFSET),
            norm=NORM,
            scale=hub.read_bool("scale_embedding", False),
            dropout=hub.read_float("dropout", 0.1),
        ),
        head=read_marian_head(hub),
        init=NormalConfig(hub.read_float("init_std", 0.02)),
    )


def _to_hub(config: ModelConfig) -> Table:
    model = expect(config, Seq2SeqConfig, "model")
    return marian_keys(model) | {
        "architectures": ["BartForConditionalGeneration"],
        "max_position_embeddings": expect(model.embed.position, LearnedConfig, "model.embed.position").length,
    }


BART = Family(
    model_type="bart",
    table=[
        *TABLE,
        ("embed.position.table.weight", "model.decoder.embed_positions.weight", SAME),
        ("source_embed.position.table.weight", "model.encoder.embed_positions.weight", SAME),
        *weight_and_bias("embed.norm", "model.decoder.layernorm_embedding"),
        *weight_and_bias("source_embed.norm", "model.encoder.layernorm_embedding"),
    ],
    architectures={"BartForConditionalGeneration": Head("translation")},
    from_hub=_from_hub,
    to_hub=_to_hub,
    ignored_keys=IGNORED_KEYS | {"add_bias_logits": "the logits always have a bias, perhaps of zeros"},
    tied=TIED,
)
