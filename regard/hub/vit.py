"""ViT (Dosovitskiy et al. 2020): classes of images, or the pooled vector."""

from typing import Any

from regard.config import Table
from regard.errors import RegardError
from regard.hub.activations import ACTIVATIONS, their_activation
from regard.hub.changes import RESHAPED, SAME
from regard.hub.express import only_layer, part
from regard.hub.table import Family, Row, both
from regard.hub.theirs import Theirs
from regard.models.head import ClassesConfig, VectorConfig
from regard.models.init import NormalConfig
from regard.models.stack import LayerConfig
from regard.models.vision import VisionConfig
from regard.parts.attention import AttentionConfig
from regard.parts.embed import PatchesConfig
from regard.parts.feedforward import MLPConfig
from regard.parts.heads import MultiHeadsConfig
from regard.parts.norm import LayerNormConfig
from regard.parts.pool import FirstConfig
from regard.parts.position import LearnedConfig

LAYER = "stack.layers.{i}"
HEADS = f"{LAYER}.mixer.heads"
THEIR_LAYER = "encoder.layer.{i}"

TABLE: list[Row] = [
    ("class_token", "embeddings.cls_token", SAME),
    ("position.table.weight", "embeddings.position_embeddings", RESHAPED),
    *both("patches.conv", "embeddings.patch_embeddings.projection"),
    *both(f"{LAYER}.residual.norms.mixer", f"{THEIR_LAYER}.layernorm_before"),
    *both(f"{HEADS}.to_query", f"{THEIR_LAYER}.attention.attention.query"),
    *both(f"{HEADS}.to_key", f"{THEIR_LAYER}.attention.attention.key"),
    *both(f"{HEADS}.to_value", f"{THEIR_LAYER}.attention.attention.value"),
    *both(f"{HEADS}.output", f"{THEIR_LAYER}.attention.output.dense"),
    *both(f"{LAYER}.residual.norms.feedforward", f"{THEIR_LAYER}.layernorm_after"),
    *both(f"{LAYER}.feedforward.up", f"{THEIR_LAYER}.intermediate.dense"),
    *both(f"{LAYER}.feedforward.down", f"{THEIR_LAYER}.output.dense"),
    *both("stack.norm", "layernorm"),
]


def from_hf(theirs: Theirs) -> VisionConfig:
    """Give our config."""
    height, width = _sides(theirs, "image_size")
    patch, other = _sides(theirs, "patch_size")
    if patch != other:
        raise theirs.refuse("patch_size", [patch, other], "patches are square here")
    theirs.only("qkv_bias", True, "queries, keys and values have a bias whenever the output has one")
    norm = LayerNormConfig(theirs.number("layer_norm_eps", 1e-12))
    dropout = theirs.number("hidden_dropout_prob", 0.0)
    dim, classes = theirs.whole("hidden_size"), theirs.classes()
    layer = LayerConfig(
        mixer=AttentionConfig(
            MultiHeadsConfig(theirs.whole("num_attention_heads"), bias="all"),
            dropout=theirs.number("attention_probs_dropout_prob", 0.0),
        ),
        feedforward=MLPConfig(theirs.whole("intermediate_size"), theirs.one_of("hidden_act", ACTIVATIONS, "gelu")),
        norm=norm,
        dropout=dropout,
    )
    pooled = theirs.one_of("pooler_act", ACTIVATIONS, "tanh")
    if theirs.architecture == "ViTModel":
        theirs.only("pooler_output_size", dim, "the pooled vector is as wide as the others here")
        has_pooler = not theirs.weights or "pooler.dense.weight" in theirs.weights
        head = VectorConfig(FirstConfig(), pooled if has_pooler else None)
    else:
        theirs.anything("pooler_output_size", None)
        head = ClassesConfig(FirstConfig(), classes=classes)
    return VisionConfig(
        dim=dim,
        depth=theirs.depth("num_hidden_layers"),
        layers={"block": layer},
        norm=norm,
        patches=PatchesConfig(height, width, patch, theirs.whole("num_channels", 3)),
        position=LearnedConfig((height // patch) * (width // patch) + 1),
        head=head,
        dropout=dropout,
        init=NormalConfig(theirs.number("initializer_range", 0.02)),
    )


def _sides(theirs: Theirs, key: str) -> tuple[int, int]:
    """Read a size: of a square, or height and width."""
    size = theirs.anything(key)
    sides = size if isinstance(size, list) else [size, size]
    if len(sides) != 2 or not all(type(side) is int and side > 0 for side in sides):
        raise RegardError(f"{theirs.place}: {key}={size!r} must be a whole number, or a height and a width")
    return sides[0], sides[1]


def to_hf(config: Any) -> Table:
    """Give their config."""
    vision = part(config, VisionConfig, "model")
    layer, path = only_layer(vision)
    mixer = part(layer.mixer, AttentionConfig, f"{path}.mixer")
    feedforward = part(layer.feedforward, MLPConfig, f"{path}.feedforward")
    patches, head = vision.patches, vision.head
    table: Table = {"architectures": ["ViTModel"]}
    if isinstance(head, ClassesConfig):
        table = {"architectures": ["ViTForImageClassification"], "num_labels": head.classes}
    elif head.transform is not None:
        table |= {"pooler_act": their_activation(head.transform), "pooler_output_size": vision.dim}
    return {
        **table,
        "image_size": patches.height if patches.height == patches.width else [patches.height, patches.width],
        "patch_size": patches.patch,
        "num_channels": patches.channels,
        "hidden_size": vision.dim,
        "num_hidden_layers": vision.depth,
        "num_attention_heads": part(mixer.heads, MultiHeadsConfig, f"{path}.mixer.heads").heads,
        "intermediate_size": feedforward.hidden,
        "hidden_act": their_activation(feedforward.activation),
        "layer_norm_eps": part(layer.norm, LayerNormConfig, f"{path}.norm").eps,
        "hidden_dropout_prob": layer.dropout,
        "attention_probs_dropout_prob": mixer.dropout,
    }


FAMILY = Family(
    model_type="vit",
    table=TABLE,
    prefix="vit.",
    base="ViTModel",
    heads={
        "ViTForImageClassification": both("head.classify", "classifier"),
        "ViTModel": both("head.transform.dense", "pooler.dense"),
    },
    from_hf=from_hf,
    to_hf=to_hf,
    ignored_keys={"encoder_stride": "of a head that paints hidden patches"},
    ignored_weights={"vit.pooler.*": "the pooler, below another head"},
)
