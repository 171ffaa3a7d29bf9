"""GPT-2 (Radford et al. 2019): matrices stored as (in, out), queries, keys and values in one of them."""

from typing import Any

from regard.config import Table
from regard.hub.activations import ACTIVATIONS, their_activation
from regard.hub.changes import SAME, STACKED, STACKED_TRANSPOSED, TRANSPOSED
from regard.hub.decoders import their_decoder, with_head
from regard.hub.express import only_layer, part
from regard.hub.table import Family, Row, both
from regard.hub.theirs import Theirs
from regard.models.init import NormalConfig
from regard.models.stack import LayerConfig
from regard.parts.attention import AttentionConfig
from regard.parts.embed import EmbedConfig
from regard.parts.feedforward import MLPConfig
from regard.parts.heads import MultiHeadsConfig
from regard.parts.norm import LayerNormConfig
from regard.parts.position import LearnedConfig

LAYER = "stack.layers.{i}"
HEADS = f"{LAYER}.mixer.heads"


def _three(part: str) -> tuple[str, ...]:
    return tuple(f"{HEADS}.to_{name}.{part}" for name in ("query", "key", "value"))


TABLE: list[Row] = [
    ("embed.tokens.table.weight", "wte.weight", SAME),
    ("embed.position.table.weight", "wpe.weight", SAME),
    *both(f"{LAYER}.residual.norms.mixer", "h.{i}.ln_1"),
    (_three("weight"), "h.{i}.attn.c_attn.weight", STACKED_TRANSPOSED),
    (_three("bias"), "h.{i}.attn.c_attn.bias", STACKED),
    (f"{HEADS}.output.weight", "h.{i}.attn.c_proj.weight", TRANSPOSED),
    (f"{HEADS}.output.bias", "h.{i}.attn.c_proj.bias", SAME),
    *both(f"{LAYER}.residual.norms.feedforward", "h.{i}.ln_2"),
    (f"{LAYER}.feedforward.up.weight", "h.{i}.mlp.c_fc.weight", TRANSPOSED),
    (f"{LAYER}.feedforward.up.bias", "h.{i}.mlp.c_fc.bias", SAME),
    (f"{LAYER}.feedforward.down.weight", "h.{i}.mlp.c_proj.weight", TRANSPOSED),
    (f"{LAYER}.feedforward.down.bias", "h.{i}.mlp.c_proj.bias", SAME),
    *both("stack.norm", "ln_f"),
]


def from_hf(theirs: Theirs) -> Any:
    """Give our config."""
    dim = theirs.whole("n_embd")
    theirs.only("scale_attn_weights", True, "scores are always scaled here")
    theirs.only("scale_attn_by_inverse_layer_idx", False, "no layer has a scale of its own here")
    theirs.only("add_cross_attention", False, "a language model has no source to look at")
    norm = LayerNormConfig(theirs.number("layer_norm_epsilon", 1e-5))
    dropout = theirs.number("resid_pdrop", 0.1)
    layer = LayerConfig(
        mixer=AttentionConfig(
            MultiHeadsConfig(theirs.whole("n_head"), bias="all"), dropout=theirs.number("attn_pdrop", 0.1)
        ),
        feedforward=MLPConfig(
            theirs.whole("n_inner", 4 * dim), theirs.one_of("activation_function", ACTIVATIONS, "gelu_new")
        ),
        norm=norm,
        dropout=dropout,
    )
    return with_head(
        theirs,
        dim=dim,
        depth=theirs.depth("n_layer"),
        layers={"block": layer},
        norm=norm,
        embed=EmbedConfig(LearnedConfig(theirs.whole("n_positions")), dropout=theirs.number("embd_pdrop", 0.1)),
        init=NormalConfig(theirs.number("initializer_range", 0.02), "scaled"),
        tied=True,
    )


def to_hf(config: Any) -> Table:
    """Give their config."""
    decoder = their_decoder(config, "GPT2LMHeadModel", "GPT2ForSequenceClassification")
    layer, path = only_layer(config)
    mixer = part(layer.mixer, AttentionConfig, f"{path}.mixer")
    heads = part(mixer.heads, MultiHeadsConfig, f"{path}.mixer.heads")
    feedforward = part(layer.feedforward, MLPConfig, f"{path}.feedforward")
    return {
        **decoder,
        "n_positions": part(config.embed.position, LearnedConfig, "model.embed.position").length,
        "n_embd": config.dim,
        "n_layer": config.depth,
        "n_head": heads.heads,
        "n_inner": feedforward.hidden,
        "activation_function": their_activation(feedforward.activation),
        "layer_norm_epsilon": part(layer.norm, LayerNormConfig, f"{path}.norm").eps,
        "embd_pdrop": config.embed.dropout,
        "attn_pdrop": mixer.dropout,
        "resid_pdrop": layer.dropout,
    }


FAMILY = Family(
    model_type="gpt2",
    table=TABLE,
    prefix="transformer.",
    heads={
        "GPT2LMHeadModel": [("head.unembed.weight", "lm_head.weight", SAME)],
        "GPT2ForSequenceClassification": [("head.classify.weight", "score.weight", SAME)],
    },
    from_hf=from_hf,
    to_hf=to_hf,
    ignored_keys={
        "n_ctx": "n_positions by an older name",
        "reorder_and_upcast_attn": "how it is computed, not what",
        **dict.fromkeys(
            (
                "summary_type",
                "summary_use_proj",
                "summary_activation",
                "summary_proj_to_labels",
                "summary_first_dropout",
            ),
            "of a head for multiple choice",
        ),
    },
    ignored_weights={
        "transformer.h.*.attn.bias": "the causal mask",
        "transformer.h.*.attn.masked_bias": "the causal mask",
        "h.*.attn.bias": "the causal mask",
        "h.*.attn.masked_bias": "the causal mask",
    },
    tied={"lm_head.weight": "transformer.wte.weight"},
)
