"""DeepSeek-V3 (2024): latent attention, and a mixture of experts above the first layers."""

from typing import Literal

from regard.config import Table
from regard.hub.activations import ACTIVATIONS, hub_activation
from regard.hub.changes import PER_EXPERT, SAME, TOGETHER
from regard.hub.conversion import expect
from regard.hub.decoders import DecoderConfig, decoder_keys, expect_decoder, read_decoder
from regard.hub.family import Family, Head, Row
from regard.hub.hub_config import HubConfig
from regard.hub.rope import read_rope, rope_keys, score_scale_keys
from regard.models.init import NormalConfig
from regard.models.recipe import ModelConfig
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
LATENT_NORM = RMSNormConfig(1e-6)  # config.json has no key for eps
UNUSED = MoEConfig(experts=1, chosen=1, hidden=1, shared=1)  # written where no layer has experts


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


def _from_hub(hub: HubConfig) -> DecoderConfig:
    hub.require("attention_bias", False, "latent attention with biases is not supported")
    hub.require("norm_topk_prob", True, "the weights of the chosen experts must add up to one")
    hub.require("scoring_func", "sigmoid", "only sigmoid affinities are supported")
    hub.require("topk_method", "noaux_tc", "only selection with a load-balancing bias is supported")
    hub.require("moe_layer_freq", 1, "every layer after the dense ones must have experts")
    heads = hub.read_int("num_attention_heads")
    hub.require("num_key_value_heads", heads, "latent attention has one key head per query head")
    plain, turned = hub.read_int("qk_nope_head_dim"), hub.read_int("qk_rope_head_dim")
    latent = LatentHeadsConfig(
        heads=heads,
        rank=hub.read_int("kv_lora_rank"),
        plain=plain,
        turned=turned,
        value=hub.read_int("v_head_dim"),
        query_rank=hub.read_optional_int("q_lora_rank"),
        norm=LATENT_NORM,
    )
    layout: Literal["interleaved", "halves"] = "interleaved" if hub.read_bool("rope_interleave", True) else "halves"
    rope, factor = read_rope(hub, layout)
    score = DotConfig() if factor == 1.0 else DotConfig(scale=factor * (plain + turned) ** -0.5)
    mixer = AttentionConfig(latent, score, rope, dropout=hub.read_float("attention_dropout", 0.0))
    norm = RMSNormConfig(hub.read_float("rms_norm_eps", 1e-6))
    activation = hub.read_name("hidden_act", ACTIVATIONS, "silu")
    dense = GLUConfig(hub.read_int("intermediate_size"), activation)
    kinds = {
        "dense": LayerConfig(mixer=mixer, feedforward=dense, norm=norm),
        "sparse": LayerConfig(mixer=mixer, feedforward=_experts(hub), norm=norm),
    }
    depth, first = hub.read_repeats("num_hidden_layers"), hub.read_int("first_k_dense_replace", 3, least=0)
    counts = {"dense": min(first, depth), "sparse": max(depth - first, 0)}
    if counts["sparse"] and activation != "silu":
        raise hub.error("hidden_act", hub.table["hidden_act"], "experts are computed with silu")
    return read_decoder(
        hub,
        dim=hub.read_int("hidden_size"),
        depth=depth,
        layers={name: kinds[name] for name, count in counts.items() if count},
        pattern=tuple(f"{count}*{name}" for name, count in counts.items() if count),
        norm=norm,
        embed=EmbedConfig(),
        init=NormalConfig(hub.read_float("initializer_range", 0.02)),
        tied=False,
    )


def _experts(hub: HubConfig) -> MoEConfig:
    return MoEConfig(
        experts=hub.read_repeats("n_routed_experts"),
        chosen=hub.read_int("num_experts_per_tok"),
        hidden=hub.read_int("moe_intermediate_size"),
        shared=hub.read_int("n_shared_experts"),
        groups=hub.read_int("n_group"),
        chosen_groups=hub.read_int("topk_group"),
        scale=hub.read_float("routed_scaling_factor"),
    )


def _to_hub(config: ModelConfig) -> Table:
    decoder = expect_decoder(config)
    layers = {name: decoder.layers[name] for name in decoder.names()}
    sparse = next((name for name, layer in layers.items() if isinstance(layer.feedforward, MoEConfig)), None)
    dense = next((layer for name, layer in layers.items() if name != sparse), None)
    name = sparse or next(iter(layers))
    layer, path = layers[name], f"model.layers.{name}"
    mixer = expect(layer.mixer, AttentionConfig, f"{path}.mixer")
    heads = expect(mixer.heads, LatentHeadsConfig, f"{path}.mixer.heads")
    rope = expect(mixer.position, RopeConfig, f"{path}.mixer.position")
    experts = layer.feedforward if isinstance(layer.feedforward, MoEConfig) else UNUSED
    mlp = GLUConfig(experts.hidden)
    if dense is not None:
        mlp = expect(dense.feedforward, GLUConfig, "model.layers.feedforward")
    positions = rope_keys(rope)
    if positions["rope_scaling"] is not None:
        score = expect(mixer.score, DotConfig, f"{path}.mixer.score")
        positions["rope_scaling"] |= score_scale_keys(score, rope, heads.plain + heads.turned)
    return {
        **decoder_keys(decoder, "DeepseekV3ForCausalLM", "DeepseekV3ForSequenceClassification"),
        "hidden_size": decoder.dim,
        "num_hidden_layers": decoder.depth,
        "first_k_dense_replace": decoder.depth if sparse is None else decoder.names().index(sparse),
        "intermediate_size": mlp.hidden,
        # that of experts is silu, and the dense layers beside them must have the same
        "hidden_act": hub_activation(mlp.activation) if sparse is None else "silu",
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
        "rms_norm_eps": expect(layer.norm, RMSNormConfig, f"{path}.norm").eps,
        "attention_dropout": mixer.dropout,
    }


DEEPSEEK_V3 = Family(
    model_type="deepseek_v3",
    table=TABLE,
    prefix="model.",
    architectures={
        "DeepseekV3ForCausalLM": Head("language", [("head.unembed.weight", "lm_head.weight", SAME)]),
        "DeepseekV3ForSequenceClassification": Head("classification", [("head.classify.weight", "score.weight", SAME)]),
    },
    from_hub=_from_hub,
    to_hub=_to_hub,
    ignored_keys={
        "head_dim": "equals qk_rope_head_dim",
        "qk_head_dim": "the sum of qk_nope_head_dim and qk_rope_head_dim",
        "num_nextn_predict_layers": "heads that predict further tokens, which are not read",
        "aux_loss_alpha": "affects training only",
        "seq_aux": "affects training only",
        "ep_size": "affects training only",
        "output_router_logits": "affects the output format only",
    },
    ignored_weights={"*rotary_emb.inv_freq": "the frequencies follow from the config"},
    tied={"lm_head.weight": "model.embed_tokens.weight"},
    own=("*.router.load",),
)
