"""Mistral (Jiang et al. 2023): a Llama with a sliding window."""

from regard.config import Table
from regard.hub.conversion import single_layer
from regard.hub.decoders import DecoderConfig, expect_decoder
from regard.hub.family import Family
from regard.hub.hub_config import HubConfig
from regard.hub.llama import (
    CLASSIFIER_HEAD,
    IGNORED_WEIGHTS,
    LANGUAGE_HEAD,
    TABLE,
    TIED,
    llama_keys,
    llama_layer_keys,
    read_llama,
    read_llama_heads,
    read_llama_layer,
)
from regard.hub.rope import read_rope
from regard.models.recipe import ModelConfig


def _from_hub(hub: HubConfig) -> DecoderConfig:
    window = hub.read_optional_int("sliding_window") if "sliding_window" in hub.table else 4096  # null: no window
    layer = read_llama_layer(hub, read_llama_heads(hub, bias=False), read_rope(hub)[0], window)
    return read_llama(hub, {"block": layer})


def _to_hub(config: ModelConfig) -> Table:
    decoder = expect_decoder(config)
    layer, path = single_layer(decoder)
    table, mixer, _ = llama_layer_keys(layer, path, decoder.dim)
    return {**llama_keys(decoder, "Mistral"), **table, "sliding_window": mixer.window}


MISTRAL = Family(
    model_type="mistral",
    table=TABLE,
    prefix="model.",
    architectures={"MistralForCausalLM": LANGUAGE_HEAD, "MistralForSequenceClassification": CLASSIFIER_HEAD},
    from_hub=_from_hub,
    to_hub=_to_hub,
    ignored_weights=IGNORED_WEIGHTS,
    tied=TIED,
)
