"""What a model costs: parameters, FLOPs and cache bytes, without allocating its weights.

A multiplication and an addition are two FLOPs. Attention is counted over all keys, or a window of them, also where a
mask hides some, as in the papers. Counts are for one row of `length` tokens on every side (source and target), or one
image; a model of alignments is counted with all the rows that it should be given.

A part describes itself with up to three methods, all optional:

- `flops(tokens, keys) -> int | None`: the FLOPs of the part itself, without its children, when `tokens` vectors pass
  through it and each can see `keys` others; None if that is not known.
- `tokens_through(child, tokens, keys) -> int`: how many vectors pass through a child, if not `tokens`.
- `summary() -> str`: its size in a few words.

Torch's linear layers, convolutions and embeddings are known here. A part of any other kind that has matrices of its
own, or lets tokens interact, and does not count itself is listed as `uncounted`.
"""

from copy import deepcopy
from dataclasses import replace
from math import prod
from typing import Any

import torch
from torch import nn

from regard.arguments import check_count
from regard.errors import InputError
from regard.models.cost import Cost, Node
from regard.models.init import without_memory
from regard.models.model import Model, writes
from regard.parts.mixer import Mixer

CONTAINERS = ("ModuleList", "ModuleDict")
PRODUCTS = (nn.Linear, nn.Conv1d, nn.Conv2d)  # their weight is multiplied by every vector
LOOKUPS = (nn.Embedding,)  # their weight is only read
MOST_TOKENS = 2**31  # of a row whose costs are counted; caches of much longer rows have too many bytes for torch


def parameters(module: nn.Module) -> int:
    """Count the trained numbers, shared ones once."""
    return sum(parameter.numel() for parameter in module.parameters())


def cost(model: Model, length: int | None = None) -> Cost:
    """Count everything for `length` tokens; by default for the longest input of the model, or 1024."""
    length = counted_length(model, length)
    tree = _node(model, "", length, length)
    return Cost(length, parameters(model), tree.flops, cache_bytes(model, length), tree)


def flops_per_token(model: Model, length: int | None = None) -> int:
    """Count the forward FLOPs for one token at `length` tokens, as `cost` does."""
    length = counted_length(model, length)
    return _node(model, "", length, length).flops // length


def counted_length(model: Model, length: int | None) -> int:
    """Return the tokens for which a model is counted; by default its longest input, or 1024."""
    longest = model.longest() or 1024
    if model.image is not None:
        longest = model.image.vectors
        if length not in (None, longest):
            raise InputError(f"an image always has {longest} vectors here, not {length}; change the patches instead")
    length = longest if length is None else check_count(length, "length")
    if length > MOST_TOKENS:
        raise InputError(f"{length:,} tokens cannot be counted; use at most {MOST_TOKENS:,}")
    return length


def forward_flops(model: nn.Module, length: int) -> int | None:
    """Count the FLOPs of a forward pass over one row of `length` tokens, or one image; None if not all are known."""
    if not isinstance(model, Model):
        return None
    length = length if model.image is None else model.image.vectors
    tree = _node(model, "", length, length)
    return None if tree.uncounted else tree.flops


def _node(module: nn.Module, name: str, tokens: int, keys: int) -> Node:
    """Count a module and all below it; `tokens` vectors pass through it, and attention sees `keys`."""
    through = getattr(module, "tokens_through", lambda child, tokens, keys: tokens)
    children = [
        _node(child, child_name, through(child, tokens, keys), keys)
        for child_name, child in module.named_children()
        if not isinstance(child, nn.Dropout | nn.Identity)
    ]
    if isinstance(module, nn.ModuleList | nn.ModuleDict):
        children = _merge_equal(children)
    own, kind = own_flops(module, tokens, keys), type(module).__name__
    uncounted = {kind} if own is None else set()
    return _shorten(
        Node(
            name,
            kind,
            summary(module),
            parameters(module),
            (own or 0) + sum(child.flops * child.repeated for child in children),
            tuple(child for child in children if child.parameters or child.flops or child.uncounted),
            uncounted=tuple(sorted(uncounted.union(*(child.uncounted for child in children)))),
        )
    )


def own_flops(module: nn.Module, tokens: int, keys: int) -> int | None:
    """Count the FLOPs of this module itself, without its children; None if they are not known."""
    count = getattr(module, "flops", None)
    if count is not None:
        found: int | None = count(tokens, keys)
        return found
    if isinstance(module, PRODUCTS):
        return 2 * tokens * module.weight.numel()
    computes = isinstance(module, Mixer) or any(weight.ndim > 1 for weight in module.parameters(recurse=False))
    return None if computes and not isinstance(module, LOOKUPS) else 0


def summary(module: nn.Module) -> str:
    """Describe the size of a module: as it does itself, or by the shape of its largest parameter."""
    own = getattr(module, "summary", None)
    if own is not None:
        return str(own())
    if isinstance(module, nn.Linear):
        return f"{module.in_features} -> {module.out_features}"
    if isinstance(module, nn.Embedding):
        return f"{module.num_embeddings} x {module.embedding_dim}"
    if isinstance(module, nn.Conv1d | nn.Conv2d):
        return f"{module.in_channels} -> {module.out_channels}, kernel {'x'.join(map(str, module.kernel_size))}"
    shapes = [tuple(parameter.shape) for parameter in module.parameters(recurse=False)]
    return " x ".join(map(str, max(shapes, key=prod))) if shapes else ""


def _shorten(node: Node) -> Node:
    """Leave out levels without information: lists, and single children, whose shape and children the parent takes."""
    children = tuple(
        inner for child in node.children for inner in (child.children if child.kind in CONTAINERS else (child,))
    )
    if node.kind in (*CONTAINERS, "Stack", "Layer") or len(children) != 1:
        return replace(node, children=children)
    (only,) = children
    times = f"{only.repeated} x {only.kind} " if only.repeated > 1 else ""
    return replace(node, shape=node.shape or f"{times}{only.shape}", children=only.children)


def _merge_equal(children: list[Node]) -> list[Node]:
    """Merge neighbouring layers that are equal into one node that says how often it is repeated."""
    merged: list[Node] = []
    for child in children:
        before = merged[-1] if merged else None
        if before is not None and _equal(before, child):
            first = before.name.partition("-")[0]
            merged[-1] = replace(before, name=f"{first}-{child.name}", repeated=before.repeated + 1)
        else:
            merged.append(child)
    return merged


def _equal(a: Node, b: Node) -> bool:
    return replace(a, name=b.name, repeated=b.repeated) == b


def cache_bytes(model: Model, length: int) -> int:
    """Count the bytes of the state after `length` tokens (and a source as long), in 16-bit numbers; 0 if none."""
    if not writes(model):
        return 0
    with without_memory(), torch.no_grad():
        built: Any = deepcopy(model) if model.config is None else model.config.build()
        empty = built.to("meta", torch.bfloat16).eval()
        tokens = torch.zeros(1, length, dtype=torch.long)
        state = empty.begin(tokens, tokens if model.has_source else None, capacity=length)
        empty.step(tokens[:, :1], state)
    return int(state.nbytes())
