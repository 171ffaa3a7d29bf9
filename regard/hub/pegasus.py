"""Pegasus (Zhang et al. 2020): Marian with norms before each sublayer and after the last layer."""

import torch
from torch import Tensor

from regard.config import Table
from regard.hub.conversion import expect
from regard.hub.family import Family, Head, weight_and_bias
from regard.hub.hub_config import HubConfig
from regard.hub.marian import IGNORED_KEYS, NORM, TABLE, TIED, marian_keys, read_sinusoidal_marian
from regard.models.recipe import ModelConfig
from regard.models.seq2seq import Seq2SeqConfig
from regard.parts.absolute_position import Sinusoidal


def _from_hub(hub: HubConfig) -> Seq2SeqConfig:
    hub.require("normalize_before", True, "Pegasus is pre-norm")
    hub.require("normalize_embedding", False, "Pegasus has no norm on its embeddings")
    hub.require("add_final_layer_norm", True, "Pegasus has a norm after the last layer")
    hub.require("static_position_embeddings", True, "Pegasus has sinusoidal positions")
    return read_sinusoidal_marian(hub, "pre", NORM, shared=True)


def _to_hub(config: ModelConfig) -> Table:
    keys = marian_keys(expect(config, Seq2SeqConfig, "model"))
    return keys | {"architectures": ["PegasusForConditionalGeneration"], "max_position_embeddings": 1024}


def _constants(table: Table) -> dict[str, Tensor]:
    """Return the sines and cosines, which Pegasus files contain like weights."""
    positions = torch.arange(table["max_position_embeddings"], dtype=torch.float64)[:, None]
    angles = positions * Sinusoidal(table["d_model"]).frequencies.exact
    waves = torch.cat((angles.sin(), angles.cos()), 1).float()
    return {f"model.{side}.embed_positions.weight": waves.clone() for side in ("encoder", "decoder")}


PEGASUS = Family(
    model_type="pegasus",
    table=[
        *TABLE,
        *weight_and_bias("encoder.norm", "model.encoder.layer_norm"),
        *weight_and_bias("decoder.norm", "model.decoder.layer_norm"),
    ],
    architectures={"PegasusForConditionalGeneration": Head("translation")},
    from_hub=_from_hub,
    to_hub=_to_hub,
    ignored_keys=IGNORED_KEYS | {"add_bias_logits": "the logits always have a bias, perhaps of zeros"},
    ignored_weights={"model.*.embed_positions.weight": "sines and cosines"},
    tied=TIED,
    constants=_constants,
)
