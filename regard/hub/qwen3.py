"""Qwen3 (2025): a Llama with norms on queries and keys, and optionally a window in some layers."""

from regard.config import Table
from regard.hub.conversion import NotExpressibleError
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
    heads = read_llama_heads(hub, hub.read_bool("attention_bias", False), qk_norm=True, head_dim=128)
    window = hub.read_optional_int("sliding_window") if "sliding_window" in hub.table else 4096  # null: no window
    depth, first = hub.read_repeats("num_hidden_layers"), hub.read_int("max_window_layers", 28, least=0)
    windowed = hub.read_bool("use_sliding_window", False) and window is not None
    meanings = {"full_attention": "block", "sliding_attention": "local"}
    default = [list(meanings)[windowed and layer >= first] for layer in range(depth)]
    kinds = hub.read_any("layer_types", default)
    known = isinstance(kinds, list) and all(kind in list(meanings) for kind in kinds)  # lists: some are unhashable
    if not known or len(kinds) != depth:
        raise hub.error("layer_types", kinds, f"it must be {' or '.join(meanings)} for each of {depth} layers")
    if "sliding_attention" in kinds and not windowed:  # transformers builds such a model, but cannot run it
        raise hub.error("layer_types", kinds, "sliding_attention needs use_sliding_window=true and a sliding_window")
    pattern = tuple(meanings[kind] for kind in kinds)
    rope = read_rope(hub)[0]
    windows = {"block": None, "local": window}
    layers = {name: read_llama_layer(hub, heads, rope, windows[name]) for name in dict.fromkeys(pattern)}
    return read_llama(hub, layers, pattern if len(layers) > 1 else ())


def _to_hub(config: ModelConfig) -> Table:
    decoder = expect_decoder(config)
    names = decoder.names()
    parts = {
        name: llama_layer_keys(decoder.layers[name], f"model.layers.{name}", decoder.dim)
        for name in dict.fromkeys(names)
    }
    windows = {name: mixer.window for name, (_, mixer, _) in parts.items()}
    sizes = {window for window in windows.values() if window is not None}
    if len(sizes) > 1:
        raise NotExpressibleError(f"windows of {len(sizes)} sizes instead of one", "model.layers")
    table, _, heads = next(iter(parts.values()))
    return {
        **llama_keys(decoder, "Qwen3"),
        **table,
        "attention_bias": heads.bias != "no",
        "use_sliding_window": bool(sizes),
        "sliding_window": next(iter(sizes), None),
        "layer_types": ["full_attention" if windows[name] is None else "sliding_attention" for name in names],
    }


QWEN3 = Family(
    model_type="qwen3",
    table=TABLE,
    prefix="model.",
    architectures={"Qwen3ForCausalLM": LANGUAGE_HEAD, "Qwen3ForSequenceClassification": CLASSIFIER_HEAD},
    from_hub=_from_hub,
    to_hub=_to_hub,
    ignored_weights=IGNORED_WEIGHTS,
    tied=TIED,
)
