"""RWKV-4 (Peng et al. 2023). The norm of the embedding belongs to their first block; mixtures have shape (1, 1, D)."""

from regard.config import Table
from regard.hub.changes import RESHAPED_TWICE, SAME
from regard.hub.conversion import NotExpressibleError, expect, single_layer
from regard.hub.family import Family, Head, Row, weight_and_bias
from regard.hub.hub_config import HubConfig
from regard.models.head import LogitsConfig
from regard.models.init import XavierConfig
from regard.models.language import LanguageConfig
from regard.models.recipe import ModelConfig
from regard.models.stack import LayerConfig
from regard.parts.embed import EmbedConfig
from regard.parts.feedforward import ChannelMixConfig
from regard.parts.norm import LayerNormConfig
from regard.parts.rwkv import RWKV4Config

LAYER, BLOCK = "stack.layers.{i}", "blocks.{i}"

TABLE: list[Row] = [
    ("embed.tokens.table.weight", "embeddings.weight", SAME),
    *weight_and_bias("embed.norm", "blocks.0.pre_ln"),
    *weight_and_bias(f"{LAYER}.residual.norms.mixer", f"{BLOCK}.ln1"),
    (f"{LAYER}.mixer.decay", f"{BLOCK}.attention.time_decay", SAME),
    (f"{LAYER}.mixer.bonus", f"{BLOCK}.attention.time_first", SAME),
    (f"{LAYER}.mixer.mix_k", f"{BLOCK}.attention.time_mix_key", RESHAPED_TWICE),
    (f"{LAYER}.mixer.mix_v", f"{BLOCK}.attention.time_mix_value", RESHAPED_TWICE),
    (f"{LAYER}.mixer.mix_r", f"{BLOCK}.attention.time_mix_receptance", RESHAPED_TWICE),
    (f"{LAYER}.mixer.to_key.weight", f"{BLOCK}.attention.key.weight", SAME),
    (f"{LAYER}.mixer.to_value.weight", f"{BLOCK}.attention.value.weight", SAME),
    (f"{LAYER}.mixer.to_gate.weight", f"{BLOCK}.attention.receptance.weight", SAME),
    (f"{LAYER}.mixer.to_output.weight", f"{BLOCK}.attention.output.weight", SAME),
    *weight_and_bias(f"{LAYER}.residual.norms.feedforward", f"{BLOCK}.ln2"),
    (f"{LAYER}.feedforward.mix_k", f"{BLOCK}.feed_forward.time_mix_key", RESHAPED_TWICE),
    (f"{LAYER}.feedforward.mix_r", f"{BLOCK}.feed_forward.time_mix_receptance", RESHAPED_TWICE),
    (f"{LAYER}.feedforward.up.weight", f"{BLOCK}.feed_forward.key.weight", SAME),
    (f"{LAYER}.feedforward.to_gate.weight", f"{BLOCK}.feed_forward.receptance.weight", SAME),
    (f"{LAYER}.feedforward.down.weight", f"{BLOCK}.feed_forward.value.weight", SAME),
    *weight_and_bias("stack.norm", "ln_out"),
]


def _from_hub(hub: HubConfig) -> LanguageConfig:
    dim = hub.read_int("hidden_size")
    hub.require("attention_hidden_size", dim, "the recurrence has the width of the model")
    norm = LayerNormConfig(hub.read_float("layer_norm_epsilon", 1e-5))
    layer = LayerConfig(
        mixer=RWKV4Config(), feedforward=ChannelMixConfig(hub.read_int("intermediate_size", 4 * dim)), norm=norm
    )
    return LanguageConfig(
        vocabulary=hub.read_int("vocab_size"),
        dim=dim,
        depth=hub.read_repeats("num_hidden_layers"),
        layers={"block": layer},
        norm=LayerNormConfig(1e-5),
        embed=EmbedConfig(norm=norm),
        head=LogitsConfig(tied=hub.read_bool("tie_word_embeddings", False)),
        init=XavierConfig(),
    )


def _to_hub(config: ModelConfig) -> Table:
    if not isinstance(config, LanguageConfig):
        raise NotExpressibleError("RWKV is a language model", "model")
    layer, path = single_layer(config)
    expect(layer.mixer, RWKV4Config, f"{path}.mixer")
    return {
        "architectures": ["RwkvForCausalLM"],
        "vocab_size": config.vocabulary,
        "hidden_size": config.dim,
        "attention_hidden_size": config.dim,
        "num_hidden_layers": config.depth,
        "intermediate_size": expect(layer.feedforward, ChannelMixConfig, f"{path}.feedforward").hidden,
        "layer_norm_epsilon": expect(layer.norm, LayerNormConfig, f"{path}.norm").eps,
        "tie_word_embeddings": config.head.tied,
        "rescale_every": 0,
    }


RWKV = Family(
    model_type="rwkv",
    table=TABLE,
    prefix="rwkv.",
    architectures={"RwkvForCausalLM": Head("language", [("head.unembed.weight", "head.weight", SAME)])},
    from_hub=_from_hub,
    to_hub=_to_hub,
    ignored_keys={
        "rescale_every": "halves hidden states for float16; the norms divide that out, all but their epsilon",
        "context_length": "the length of training; the recurrence has no limit",
    },
    tied={"head.weight": "rwkv.embeddings.weight"},
)
