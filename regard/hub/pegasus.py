"""Pegasus (Zhang et al. 2020): as Marian, with its norms before each sublayer and one on top of either side."""

from typing import Any

import torch
from torch import Tensor

from regard.config import Table
from regard.hub.marian import IGNORED_KEYS, NORM, TABLE, TIED, read_sinusoidal, their_sides
from regard.hub.table import Family, both
from regard.hub.theirs import Theirs
from regard.models.seq2seq import Seq2SeqConfig
from regard.parts.position import Sinusoidal


def from_hf(theirs: Theirs) -> Seq2SeqConfig:
    """Give our config."""
    theirs.only("normalize_before", True, "Pegasus has its norms before")
    theirs.only("normalize_embedding", False, "Pegasus has no norm on its embeddings")
    theirs.only("add_final_layer_norm", True, "Pegasus has a norm on top")
    theirs.only("static_position_embeddings", True, "Pegasus has sinusoidal positions")
    return read_sinusoidal(theirs, "pre", NORM, shared=True)


def to_hf(config: Any) -> Table:
    """Give their config."""
    return their_sides(config) | {"architectures": ["PegasusForConditionalGeneration"], "max_position_embeddings": 1024}


def constants(table: Table) -> dict[str, Tensor]:
    """Give the sines and cosines, which its files hold like weights."""
    places = torch.arange(table["max_position_embeddings"], dtype=torch.float64)[:, None]
    angles = places * Sinusoidal(table["d_model"]).frequencies.exact
    waves = torch.cat((angles.sin(), angles.cos()), 1).float()
    return {f"model.{side}.embed_positions.weight": waves.clone() for side in ("encoder", "decoder")}


FAMILY = Family(
    model_type="pegasus",
    table=[
        *TABLE,
        *both("encoder.norm", "model.encoder.layer_norm"),
        *both("decoder.norm", "model.decoder.layer_norm"),
    ],
    heads={"PegasusForConditionalGeneration": []},
    from_hf=from_hf,
    to_hf=to_hf,
    ignored_keys=IGNORED_KEYS | {"add_bias_logits": "there is always a bias, if only zero"},
    ignored_weights={"model.*.embed_positions.weight": "sines and cosines"},
    tied=TIED,
    constants=constants,
)
