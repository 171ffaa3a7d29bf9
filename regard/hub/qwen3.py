"""Qwen3 (2025): a Llama with normed queries and keys, and perhaps a window in some layers."""

from typing import Any

from regard.config import Table
from regard.hub.decoders import their_decoder
from regard.hub.express import UnlikeError
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
    """Give our config of a Qwen3: normed queries and keys, and perhaps windows in some layers."""
    heads = read_heads(theirs, theirs.flag("attention_bias", False), True, 128)
    window, depth = theirs.whole("sliding_window", 4096), theirs.depth("num_hidden_layers")
    windowed, first = theirs.flag("use_sliding_window", False), theirs.whole("max_window_layers", 28, least=0)
    meanings = {"full_attention": "block", "sliding_attention": "local"}
    default = [list(meanings)[windowed and layer >= first] for layer in range(depth)]
    kinds = theirs.anything("layer_types", default)
    if not isinstance(kinds, list) or len(kinds) != depth or not set(kinds) <= set(meanings):
        raise theirs.refuse("layer_types", kinds, f"it must say {' or '.join(meanings)} for each of {depth} layers")
    pattern = tuple(meanings[kind] for kind in kinds)
    rope = read_rope(theirs)[0]
    windows = {"block": None, "local": window}
    layers = {name: read_layer(theirs, heads, rope, windows[name]) for name in dict.fromkeys(pattern)}
    return read_llama(theirs, layers, pattern if len(layers) > 1 else ())


def to_hf(config: Any) -> Table:
    """Give the config of a Qwen3."""
    decoder = their_decoder(config, "Qwen3ForCausalLM", "Qwen3ForSequenceClassification")
    names = config.names()
    parts = {
        name: their_layer(config.layers[name], f"model.layers.{name}", config.dim) for name in dict.fromkeys(names)
    }
    windows = {name: mixer.window for name, (_, mixer, _) in parts.items()}
    sizes = {window for window in windows.values() if window is not None}
    if len(sizes) > 1:
        raise UnlikeError(f"windows of {len(sizes)} sizes where it has one", "model.layers")
    table, _, heads = next(iter(parts.values()))
    return {
        **decoder,
        "hidden_size": config.dim,
        "num_hidden_layers": config.depth,
        **table,
        "attention_bias": heads.bias != "no",
        "use_sliding_window": bool(sizes),
        "sliding_window": next(iter(sizes), None),
        "layer_types": ["full_attention" if windows[name] is None else "sliding_attention" for name in names],
    }


FAMILY = Family(
    model_type="qwen3",
    table=TABLE,
    prefix="model.",
    heads={"Qwen3ForCausalLM": WRITER_ROWS, "Qwen3ForSequenceClassification": CLASSIFIER_ROWS},
    from_hf=from_hf,
    to_hf=to_hf,
    ignored_weights=IGNORED_WEIGHTS,
    tied=TIED,
)
