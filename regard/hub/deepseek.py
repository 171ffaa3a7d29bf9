"""DeepSeek-V3 (2024): latent attention, and a mixture of experts above the first layers."""

from typing import Any

from regard.config import Table
from regard.hub.activations import ACTIVATIONS, their_activation
from regard.hub.changes import PER_EXPERT, SAME, TOGETHER
from regard.hub.decoders import their_decoder, with_head
from regard.hub.express import UnlikeError, part
from regard.hub.rope import read_rope, their_rope, their_score_factor
from regard.hub.table import Family, Row
from regard.hub.theirs import Theirs
from regard.models.init import NormalConfig
from regard.models.stack import LayerConfig
from regard.parts.attention import AttentionConfig
from regard.parts.embed import EmbedConfig
from regard.parts.feedforward import GLUConfig, MoEConfig
from regard.parts.heads import LatentHeadsConfig
from regard.parts.norm import RMSNormConfig
from regard.parts.position import RopeConfig
from regard.parts.score import DotConfig

LAYER = "stack.layers.{i}"
HEADS = f"{LAYER}.mixer.heads"
SPARSE = f"{LAYER}.feedforward"
ATTENTION = "layers.{i}.self_attn"
MLP = "layers.{i}.mlp"
LATENT_NORM = RMSNormConfig(1e-6)  # there is no key for that


def _weight(ours: str, theirs: str) -> Row:
    return (f"{ours}.weight", f"{theirs}.weight", SAME)


TABLE: list[Row] = [
    ("embed.tokens.table.weight", "embed_tokens.weight", SAME),
    _weight(f"{LAYER}.residual.norms.mixer", "layers.{i}.input_layernorm"),
    (
        (f"{HEADS}.squeeze_query.weight", f"{HEADS}.query_norm.weight", f"{HEADS}.to_query.weight"),
        f"{ATTENTION}.q_a_proj.weight|{ATTENTION}.q_a_layernorm.weight|{ATTENTION}.q_b_proj.weight",
        TOGETHER,
    ),
    _weight(f"{HEADS}.to_query", f"{ATTENTION}.q_proj"),
    _weight(f"{HEADS}.squeeze", f"{ATTENTION}.kv_a_proj_with_mqa"),
    _weight(f"{HEADS}.norm", f"{ATTENTION}.kv_a_layernorm"),
    _weight(f"{HEADS}.to_key_value", f"{ATTENTION}.kv_b_proj"),
    _weight(f"{HEADS}.output", f"{ATTENTION}.o_proj"),
    _weight(f"{LAYER}.residual.norms.feedforward", "layers.{i}.post_attention_layernorm"),
    *(_weight(f"{SPARSE}.{name}", f"{MLP}.{name}_proj") for name in ("gate", "up", "down")),
    _weight(f"{SPARSE}.router.affinity", f"{MLP}.gate"),
    (f"{SPARSE}.router.bias", f"{MLP}.gate.e_score_correction_bias", SAME),
    *(
        (f"{SPARSE}.experts.{name}", f"{MLP}.experts.{{e}}.{name}_proj.weight", PER_EXPERT)
        for name in ("gate", "up", "down")
    ),
    *(_weight(f"{SPARSE}.shared.{name}", f"{MLP}.shared_experts.{name}_proj") for name in ("gate", "up", "down")),
    _weight("stack.norm", "norm"),
]


def from_hf(theirs: Theirs) -> Any:
    """Give our config."""
    theirs.only("attention_bias", False, "latent attention has no biases here")
    theirs.only("norm_topk_prob", True, "the weights of the chosen experts add up to one here")
    theirs.only("scoring_func", "sigmoid", "the affinity to an expert is a sigmoid here")
    theirs.only("topk_method", "noaux_tc", "experts are chosen with a bias that balances their load here")
    theirs.only("moe_layer_freq", 1, "every layer above the first ones has experts here")
    heads = theirs.whole("num_attention_heads")
    theirs.only("num_key_value_heads", heads, "latent attention has as many keys as queries")
    plain, turned = theirs.whole("qk_nope_head_dim"), theirs.whole("qk_rope_head_dim")
    latent = LatentHeadsConfig(
        heads=heads,
        rank=theirs.whole("kv_lora_rank"),
        plain=plain,
        turned=turned,
        value=theirs.whole("v_head_dim"),
        query_rank=theirs.whole("q_lora_rank", None),
        norm=LATENT_NORM,
    )
    layout = {True: "interleaved", False: "halves"}[theirs.flag("rope_interleave", True)]
    rope, factor = read_rope(theirs, layout)
    score = DotConfig() if factor == 1.0 else DotConfig(scale=factor * (plain + turned) ** -0.5)
    mixer = AttentionConfig(latent, score, rope, dropout=theirs.number("attention_dropout", 0.0))
    norm = RMSNormConfig(theirs.number("rms_norm_eps", 1e-6))
    dense = GLUConfig(theirs.whole("intermediate_size"), theirs.one_of("hidden_act", ACTIVATIONS, "silu"))
    kinds = {
        "dense": LayerConfig(mixer=mixer, feedforward=dense, norm=norm),
        "sparse": LayerConfig(mixer=mixer, feedforward=_experts(theirs), norm=norm),
    }
    depth, first = theirs.depth("num_hidden_layers"), theirs.whole("first_k_dense_replace", 3, least=0)
    counts = {"dense": min(first, depth), "sparse": max(depth - first, 0)}
    return with_head(
        theirs,
        dim=theirs.whole("hidden_size"),
        depth=depth,
        layers={name: kinds[name] for name, count in counts.items() if count},
        pattern=tuple(f"{count}*{name}" for name, count in counts.items() if count),
        norm=norm,
        embed=EmbedConfig(),
        init=NormalConfig(theirs.number("initializer_range", 0.02)),
        tied=False,
    )


def _experts(theirs: Theirs) -> MoEConfig:
    return MoEConfig(
        experts=theirs.whole("n_routed_experts"),
        chosen=theirs.whole("num_experts_per_tok"),
        hidden=theirs.whole("moe_intermediate_size"),
        shared=theirs.whole("n_shared_experts"),
        groups=theirs.whole("n_group"),
        chosen_groups=theirs.whole("topk_group"),
        scale=theirs.number("routed_scaling_factor"),
    )


def to_hf(config: Any) -> Table:
    """Give their config."""
    decoder = their_decoder(config, "DeepseekV3ForCausalLM", "DeepseekV3ForSequenceClassification")
    layers = {name: config.layers[name] for name in config.names()}
    sparse = next((name for name, layer in layers.items() if isinstance(layer.feedforward, MoEConfig)), None)
    if sparse is None:
        raise UnlikeError("no layer with experts", "model.layers")
    dense = next((layer for name, layer in layers.items() if name != sparse), None)
    layer, path = layers[sparse], f"model.layers.{sparse}"
    mixer = part(layer.mixer, AttentionConfig, f"{path}.mixer")
    heads = part(mixer.heads, LatentHeadsConfig, f"{path}.mixer.heads")
    rope = part(mixer.position, RopeConfig, f"{path}.mixer.position")
    experts = part(layer.feedforward, MoEConfig, f"{path}.feedforward")
    wide = (
        GLUConfig(experts.hidden) if dense is None else part(dense.feedforward, GLUConfig, "model.layers.feedforward")
    )
    positions = their_rope(rope)
    if positions["rope_scaling"] is not None:
        score = part(mixer.score, DotConfig, f"{path}.mixer.score")
        positions["rope_scaling"] |= their_score_factor(score, rope, heads.plain + heads.turned)
    return {
        **decoder,
        "hidden_size": config.dim,
        "num_hidden_layers": config.depth,
        "first_k_dense_replace": config.names().index(sparse),
        "intermediate_size": wide.hidden,
        "hidden_act": their_activation(wide.activation),
        "num_attention_heads": heads.heads,
        "num_key_value_heads": heads.heads,
        "q_lora_rank": heads.query_rank,
        "kv_lora_rank": heads.rank,
        "qk_nope_head_dim": heads.plain,
        "qk_rope_head_dim": heads.turned,
        "v_head_dim": heads.value,
        "rope_interleave": rope.layout == "interleaved",
        **positions,
        "n_routed_experts": experts.experts,
        "num_experts_per_tok": experts.chosen,
        "moe_intermediate_size": experts.hidden,
        "n_shared_experts": experts.shared or 0,
        "n_group": experts.groups,
        "topk_group": experts.chosen_groups,
        "routed_scaling_factor": experts.scale,
        "norm_topk_prob": True,
        "rms_norm_eps": part(layer.norm, RMSNormConfig, f"{path}.norm").eps,
        "attention_dropout": mixer.dropout,
    }


FAMILY = Family(
    model_type="deepseek_v3",
    table=TABLE,
    prefix="model.",
    heads={
        "DeepseekV3ForCausalLM": [("head.unembed.weight", "lm_head.weight", SAME)],
        "DeepseekV3ForSequenceClassification": [("head.classify.weight", "score.weight", SAME)],
    },
    from_hf=from_hf,
    to_hf=to_hf,
    ignored_keys={
        "head_dim": "the turned part, which qk_rope_head_dim says",
        "qk_head_dim": "the sum of both parts",
        "num_nextn_predict_layers": "further heads for tokens to come, which are not read",
        "aux_loss_alpha": "how it was trained",
        "seq_aux": "how it was trained",
        "ep_size": "how it was trained",
        "output_router_logits": "the form of an answer",
    },
    ignored_weights={"*rotary_emb.inv_freq": "the frequencies follow from the config"},
    tied={"lm_head.weight": "model.embed_tokens.weight"},
    own=("*.router.load",),
)
