"""What a model costs: parameters, FLOPs and cache bytes, without building it in memory.

A multiplication and an addition are two FLOPs. Attention is counted over all keys, or a window of them, also where a
mask hides some, as the papers do. Counts are for one row of `length` tokens on every side (source and target), or one
image.
"""

from copy import deepcopy
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

import torch
from torch import Tensor, nn

from regard.errors import InputError
from regard.models.encoder import Encoder
from regard.models.head import Classes, Logits, Pooled
from regard.models.language import LanguageModel
from regard.models.model import Model, StepModel
from regard.models.stack import Stack
from regard.models.vision import VisionTransformer
from regard.parts.attention import Attention
from regard.parts.embed import Patches
from regard.parts.moe import MixtureOfExperts
from regard.parts.recurrent import Fused, Recurrent
from regard.parts.score import Additive

CONTAINERS = ("ModuleList", "ModuleDict")


@dataclass(frozen=True)
class Node:
    """A module in the tree of a model, with what it and everything below it costs."""

    name: str
    kind: str
    shape: str
    parameters: int
    flops: int
    children: tuple["Node", ...] = ()
    repeated: int = 1


@dataclass(frozen=True)
class Cost:
    """What a whole model costs at `length` tokens."""

    length: int
    parameters: int
    flops: int  # forward, for the whole row
    cache_bytes: int  # per row of `length` tokens, in 16-bit numbers
    tree: Node = field(repr=False)

    @property
    def flops_per_token(self) -> int:
        """Forward FLOPs for one token at this length."""
        return self.flops // self.length


def parameters(module: nn.Module) -> int:
    """Count the trained numbers, shared ones once."""
    return sum(parameter.numel() for parameter in module.parameters())


def cost(model: Model, length: int | None = None) -> Cost:
    """Count everything; `length` is the longest the model can take, or 1024, unless given."""
    natural = natural_length(model)
    if isinstance(model, VisionTransformer) and length not in (None, natural):
        raise InputError(f"an image always has {natural} vectors here, not {length}; change the patches instead")
    length = length or natural
    tree = describe(model, "", length, length)
    return Cost(length, parameters(model), tree.flops, cache_bytes(model, length), tree)


def natural_length(model: Model) -> int:
    """The number of tokens to count for: what the position table allows, else 1024."""
    if isinstance(model, VisionTransformer):
        return model.patches.count + (model.class_token is not None)
    return model.longest() or 1024


def describe(module: nn.Module, name: str, tokens: int, length: int, table: Tensor | None = None) -> Node:
    """Walk the tree; `tokens` vectors pass through this module, and attention sees `length` keys."""
    if isinstance(module, StepModel | Encoder):
        table = module.embed.tokens.table.weight
    children = [
        describe(child, child_name, _tokens(module, child_name, tokens, length), length, table)
        for child_name, child in module.named_children()
        if not isinstance(child, nn.Dropout | nn.Identity)
    ]
    if isinstance(module, nn.ModuleList | nn.ModuleDict):
        children = _merge_equal(children)
    flops = own_flops(module, tokens, length, table) + sum(child.flops * child.repeated for child in children)
    visible = tuple(child for child in children if child.parameters or child.flops)
    return _shorten(Node(name, type(module).__name__, shape(module), parameters(module), flops, visible))


def _shorten(node: Node) -> Node:
    """Leave out levels that say nothing: lists, and single children, whose shape and children the parent takes over."""
    children = tuple(
        inner for child in node.children for inner in (child.children if child.kind in CONTAINERS else (child,))
    )
    if node.kind in (*CONTAINERS, "Stack", "Layer") or len(children) != 1:
        return replace(node, children=children)
    (only,) = children
    times = f"{only.repeated} x {only.kind} " if only.repeated > 1 else ""
    return replace(node, shape=node.shape or f"{times}{only.shape}", children=only.children)


def _tokens(module: nn.Module, child: str, tokens: int, length: int) -> int:
    """How many vectors pass through a child: one where a row was pooled, else as many as through the parent."""
    if isinstance(module, Additive) and child == "energy":  # asked for every pair of query and key
        return tokens * length
    pooled = (isinstance(module, Classes) and child == "classify") or (
        isinstance(module, Pooled) and child == "transform"
    )
    if isinstance(module, VisionTransformer) and child == "patches":
        return module.patches.count
    return 1 if pooled or child == "bridge" else tokens


def _merge_equal(children: list[Node]) -> list[Node]:
    """Join runs of layers that are alike into one node that says how often it is repeated."""
    merged: list[Node] = []
    for child in children:
        before = merged[-1] if merged else None
        if before is not None and _alike(before, child):
            first = before.name.partition("-")[0]
            merged[-1] = replace(before, name=f"{first}-{child.name}", repeated=before.repeated + 1)
        else:
            merged.append(child)
    return merged


def _alike(a: Node, b: Node) -> bool:
    return replace(a, name=b.name, repeated=b.repeated) == b


def own_flops(module: nn.Module, tokens: int, length: int, table: Tensor | None) -> int:
    """Count the FLOPs of this module itself, without its children."""
    if isinstance(module, nn.Linear | nn.Conv1d | nn.Conv2d):
        return 2 * tokens * module.weight.numel()
    if isinstance(module, Fused):
        return 2 * tokens * (module.W_x.numel() + module.W_h.numel())
    if isinstance(module, Attention):
        keys = length if module.window is None else min(length, module.window)
        heads = module.heads
        if isinstance(module.score, Additive):
            return 2 * tokens * keys * heads.value_dim
        return 2 * tokens * keys * heads.heads * (heads.query_dim + heads.value_dim)
    if isinstance(module, MixtureOfExperts):
        each = sum(p[0].numel() for p in module.experts.parameters())
        return 2 * tokens * module.router.chosen * each
    if isinstance(module, Logits) and module.unembed is None and table is not None:
        return 2 * tokens * table.numel()
    return 0


def shape(module: nn.Module) -> str:
    """Say the size of a module as a person would."""
    if isinstance(module, nn.Linear):
        return f"{module.in_features} -> {module.out_features}"
    if isinstance(module, nn.Embedding):
        return f"{module.num_embeddings} x {module.embedding_dim}"
    if isinstance(module, Recurrent):
        return f"{module.input_dim} -> {module.hidden}"
    if isinstance(module, nn.Conv1d | nn.Conv2d):
        return f"{module.in_channels} -> {module.out_channels}, kernel {'x'.join(map(str, module.kernel_size))}"
    if isinstance(module, Attention):
        window = "" if module.window is None else f", window {module.window}"
        return f"{plural(module.heads.heads, 'head')} of {module.heads.query_dim}{window}"
    if isinstance(module, MixtureOfExperts):
        return f"{module.router.chosen} of {module.router.experts} experts"
    if isinstance(module, Stack):
        return plural(len(module.layers), "layer")
    if isinstance(module, Patches):
        return f"{module.count} patches of {module.patch} x {module.patch}"
    if isinstance(module, Logits) and module.unembed is None:
        return "tied to embed"
    if isinstance(module, Model):
        return ""
    own = [tuple(parameter.shape) for parameter in module.parameters(recurse=False)]
    return " x ".join(map(str, max(own, key=prod))) if own else ""


def plural(count: int, thing: str) -> str:
    """Say how many."""
    return f"{count} {thing}" if count == 1 else f"{count} {thing}s"


def cache_bytes(model: Model, length: int) -> int:
    """Count the bytes of the state after `length` tokens (and a source as long), in 16-bit numbers; 0 if none."""
    if not isinstance(model, StepModel):
        return 0
    with torch.device("meta"), torch.no_grad():
        built: Any = deepcopy(model) if model.config is None else model.config.build()
        empty = built.to("meta", torch.bfloat16).eval()
        tokens = torch.zeros(1, length, dtype=torch.long)
        source = () if isinstance(model, LanguageModel) else (tokens,)
        state = empty.start(*source, capacity=length) if source else empty.start(1, capacity=length)
        empty.step(tokens[:, :1], state)
    return int(state.nbytes())
