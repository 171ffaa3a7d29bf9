"""ViT (Dosovitskiy et al. 2020): classes of images, or the pooled vector."""

from regard.config import Table
from regard.errors import RegardError
from regard.hub.activations import ACTIVATIONS, hub_activation
from regard.hub.changes import RESHAPED, SAME
from regard.hub.conversion import expect, single_layer
from regard.hub.family import Family, Head, Row, weight_and_bias
from regard.hub.hub_config import HubConfig
from regard.models.head import ClassesConfig, PooledHeadConfig, VectorConfig
from regard.models.init import NormalConfig
from regard.models.recipe import ModelConfig
from regard.models.stack import LayerConfig
from regard.models.vision import VisionConfig
from regard.parts.absolute_position import LearnedConfig
from regard.parts.attention import AttentionConfig
from regard.parts.embed import PatchesConfig
from regard.parts.feedforward import MLPConfig
from regard.parts.heads import MultiHeadsConfig
from regard.parts.norm import LayerNormConfig
from regard.parts.pool import FirstConfig

LAYER = "stack.layers.{i}"
HEADS = f"{LAYER}.mixer.heads"
THEIR_LAYER = "encoder.layer.{i}"

TABLE: list[Row] = [
    ("class_token", "embeddings.cls_token", SAME),
    ("position.table.weight", "embeddings.position_embeddings", RESHAPED),
    *weight_and_bias("patches.conv", "embeddings.patch_embeddings.projection"),
    *weight_and_bias(f"{LAYER}.residual.norms.mixer", f"{THEIR_LAYER}.layernorm_before"),
    *weight_and_bias(f"{HEADS}.to_query", f"{THEIR_LAYER}.attention.attention.query"),
    *weight_and_bias(f"{HEADS}.to_key", f"{THEIR_LAYER}.attention.attention.key"),
    *weight_and_bias(f"{HEADS}.to_value", f"{THEIR_LAYER}.attention.attention.value"),
    *weight_and_bias(f"{HEADS}.output", f"{THEIR_LAYER}.attention.output.dense"),
    *weight_and_bias(f"{LAYER}.residual.norms.feedforward", f"{THEIR_LAYER}.layernorm_after"),
    *weight_and_bias(f"{LAYER}.feedforward.up", f"{THEIR_LAYER}.intermediate.dense"),
    *weight_and_bias(f"{LAYER}.feedforward.down", f"{THEIR_LAYER}.output.dense"),
    *weight_and_bias("stack.norm", "layernorm"),
]


def _from_hub(hub: HubConfig) -> VisionConfig:
    height, width = _sides(hub, "image_size")
    patch, other = _sides(hub, "patch_size")
    if patch != other:
        raise hub.error("patch_size", [patch, other], "only square patches are supported")
    hub.require("qkv_bias", True, "queries, keys and values must have a bias, as the output has one")
    norm = LayerNormConfig(hub.read_float("layer_norm_eps", 1e-12))
    dropout = hub.read_float("hidden_dropout_prob", 0.0)
    dim, classes = hub.read_int("hidden_size"), hub.read_classes()
    layer = LayerConfig(
        mixer=AttentionConfig(
            MultiHeadsConfig(hub.read_int("num_attention_heads"), bias="all"),
            dropout=hub.read_float("attention_probs_dropout_prob", 0.0),
        ),
        feedforward=MLPConfig(hub.read_int("intermediate_size"), hub.read_name("hidden_act", ACTIVATIONS, "gelu")),
        norm=norm,
        dropout=dropout,
    )
    pooled = hub.read_name("pooler_act", ACTIVATIONS, "tanh")
    head: PooledHeadConfig
    if hub.task == "features":
        hub.require("pooler_output_size", dim, "the pooled vector must have the width of the model")
        has_pooler = not hub.weights or "pooler.dense.weight" in hub.weights
        head = VectorConfig(FirstConfig(), pooled if has_pooler else None)
    else:
        hub.read_optional("pooler_output_size")
        head = ClassesConfig(FirstConfig(), classes=classes)
    return VisionConfig(
        dim=dim,
        depth=hub.read_repeats("num_hidden_layers"),
        layers={"block": layer},
        norm=norm,
        patches=PatchesConfig(height, width, patch, hub.read_int("num_channels", 3)),
        position=LearnedConfig((height // patch) * (width // patch) + 1),
        head=head,
        dropout=dropout,
        init=NormalConfig(hub.read_float("initializer_range", 0.02)),
    )


def _sides(hub: HubConfig, key: str) -> tuple[int, int]:
    """Read the side of a square, or height and width."""
    size = hub.read_any(key)
    sides = size if isinstance(size, list) else [size, size]
    if len(sides) != 2 or not all(type(side) is int and side > 0 for side in sides):
        raise RegardError(f"{hub.place}: {key}={size!r} must be a whole number, or a height and a width")
    return sides[0], sides[1]


def _to_hub(config: ModelConfig) -> Table:
    vision = expect(config, VisionConfig, "model")
    layer, path = single_layer(vision)
    mixer = expect(layer.mixer, AttentionConfig, f"{path}.mixer")
    feedforward = expect(layer.feedforward, MLPConfig, f"{path}.feedforward")
    patches, head = vision.patches, vision.head
    table: Table = {"architectures": ["ViTModel"]}
    if isinstance(head, ClassesConfig):
        table = {"architectures": ["ViTForImageClassification"], "num_labels": head.classes}
    elif head.transform is not None:
        table |= {"pooler_act": hub_activation(head.transform), "pooler_output_size": vision.dim}
    return {
        **table,
        "image_size": patches.height if patches.height == patches.width else [patches.height, patches.width],
        "patch_size": patches.patch,
        "num_channels": patches.channels,
        "hidden_size": vision.dim,
        "num_hidden_layers": vision.depth,
        "num_attention_heads": expect(mixer.heads, MultiHeadsConfig, f"{path}.mixer.heads").heads,
        "intermediate_size": feedforward.hidden,
        "hidden_act": hub_activation(feedforward.activation),
        "layer_norm_eps": expect(layer.norm, LayerNormConfig, f"{path}.norm").eps,
        "hidden_dropout_prob": layer.dropout,
        "attention_probs_dropout_prob": mixer.dropout,
    }


VIT = Family(
    model_type="vit",
    table=TABLE,
    prefix="vit.",
    base="ViTModel",
    architectures={
        "ViTForImageClassification": Head("vision", weight_and_bias("head.classify", "classifier")),
        "ViTModel": Head("features", weight_and_bias("head.transform.dense", "pooler.dense")),
    },
    from_hub=_from_hub,
    to_hub=_to_hub,
    ignored_keys={"encoder_stride": "belongs to the head for masked image modelling"},
    ignored_weights={"vit.pooler.*": "the pooler, which the head does not use"},
)
