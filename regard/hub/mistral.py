"""Mistral (Jiang et al. 2023): a Llama that sees a window."""

from typing import Any

from regard.config import Table
from regard.hub.decoders import their_decoder
from regard.hub.express import only_layer
from regard.hub.llama import (
    CLASSIFIER_ROWS,
    IGNORED_WEIGHTS,
    TABLE,
    TIED,
    WRITER_ROWS,
    read_heads,
    read_layer,
    read_llama,
    their_layer,
)
from regard.hub.rope import read_rope
from regard.hub.table import Family
from regard.hub.theirs import Theirs


def from_hf(theirs: Theirs) -> Any:
    """Give our config of a Mistral."""
    window = theirs.whole("sliding_window", None) if "sliding_window" in theirs.table else 4096
    layer = read_layer(theirs, read_heads(theirs, False, False, None), read_rope(theirs)[0], window)
    return read_llama(theirs, {"block": layer})


def to_hf(config: Any) -> Table:
    """Give the config of a Mistral."""
    decoder = their_decoder(config, "MistralForCausalLM", "MistralForSequenceClassification")
    layer, path = only_layer(config)
    table, mixer, _ = their_layer(layer, path, config.dim)
    sizes = {"hidden_size": config.dim, "num_hidden_layers": config.depth}
    return {**decoder, **sizes, **table, "sliding_window": mixer.window}


FAMILY = Family(
    model_type="mistral",
    table=TABLE,
    prefix="model.",
    heads={"MistralForCausalLM": WRITER_ROWS, "MistralForSequenceClassification": CLASSIFIER_ROWS},
    from_hf=from_hf,
    to_hf=to_hf,
    ignored_weights=IGNORED_WEIGHTS,
    tied=TIED,
)
