"""The attentions of a model as the page knows them: by kind and layer, with shapes, score, position and mask."""

import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch

from regard.models.model import Model
from regard.models.vision import VisionTransformer
from regard.parts.mask import Padding, Rule, Window
from regard.parts.score import Additive, Bilinear, Cosine, Dot, ReducedRank, Score
from regard.viewer.capture import AttentionTrace, Capture
from regard.viewer.positions import KINDS
from regard.viewer.recording import PICTURE, WHOLE, Manifest

PAIRS = 1 << 14  # of queries and keys whose mask is looked at together
SIDE = 1024  # rows and columns of a picture of a head that is too large
SCORES: dict[type[Score], str] = {
    Dot: "dot",
    Cosine: "cosine",
    Bilinear: "bilinear",
    ReducedRank: "reduced-rank",
    Additive: "additive",
}
ORDER = ("encoder", "decoder", "cross", "self")
NAME = re.compile(r"(encoder|decoder|stack)\.layers\.([0-9]+)\.(mixer|cross)")


class AttentionRole(NamedTuple):
    """What an attention is for."""

    kind: str
    layer: int  # from 1
    queries: str
    keys: str

    @property
    def id(self) -> str:
        """Kind and layer."""
        return f"{self.kind}.{self.layer}"


def role_of(model: Model, name: str) -> AttentionRole:
    """Tell what an attention is for by its name in the model.

    Who looks at the source does it to write the next word, so there a query stands for the word that is then written.
    """
    if name == "attention":
        return AttentionRole("cross", 1, "written", "source")
    found = NAME.fullmatch(name)
    assert found, f"no attention should be called {name}"
    side, layer = found[1], int(found[2]) + 1
    if side == "stack":
        sequence = "patches" if isinstance(model, VisionTransformer) else "tokens"
        return AttentionRole("self", layer, sequence, sequence)
    if found[3] == "cross":
        return AttentionRole("cross", layer, "written", "source")
    return AttentionRole(side, layer, *(("source", "source") if side == "encoder" else ("target", "target")))


def describe_attentions(model: Model, captured: Capture) -> list[Manifest]:
    """Describe the attentions of a model, those of the encoder first, then the decoder's, then those to the source."""
    roles = {name: role_of(model, name) for name in captured.looked}
    names = sorted(roles, key=lambda name: (ORDER.index(roles[name].kind), roles[name].layer))
    inputs = {name: vectors.shape[1] for name, vectors in captured.inputs.items()}
    return [_describe(name, roles[name], captured.looked[name], inputs[name]) for name in names]


def _describe(name: str, role: AttentionRole, looked: AttentionTrace, input: int) -> Manifest:
    (rows, columns), terms = looked.shape, looked.terms
    return {
        "id": role.id,
        "kind": role.kind,
        "layer": role.layer,
        "name": name,
        "heads": looked.heads,
        "groups": looked.heads // looked.key.shape[1],
        "queries": role.queries,
        "keys": role.keys,
        "rows": rows,
        "columns": columns,
        "mask": None if sees_all(looked) else mask_name(role, terms.mask),
        "score": {"kind": SCORES[type(terms.score)], "scale": terms.score.scale, "cap": terms.score.cap},
        "position": KINDS.get(type(terms.position)),
        "bias": terms.position.has_bias,
        "input": input,
        "width": looked.query.shape[3],
        "value": looked.value.shape[3],
        "arithmetic": True,
        "pooled": [min(rows, SIDE), min(columns, SIDE)] if rows * columns > PICTURE else None,
    }


def is_whole(attentions: Sequence[Manifest]) -> bool:
    """Tell whether the weights of all heads together are few enough for one blob."""
    numbers = sum(one["heads"] * one["rows"] * one["columns"] for one in attentions)
    return numbers <= WHOLE and all(one["pooled"] is None for one in attentions)


# --- masks -----------------------------------------------------------------------------------------------------------


def mask_name(role: AttentionRole, rule: Rule | None) -> str:
    """Name a mask by whom it is for and what it says, so that layers that are alike share it."""
    assert rule is not None
    sides = [role.queries] if role.queries == role.keys else [role.queries, role.keys]
    rules = sorted(
        f"window-{simple.size}" if isinstance(simple, Window) else type(simple).__name__.lower()
        for simple in rule.rules()
        if not isinstance(simple, Padding)
    )
    return "-".join([*sides, *rules])


def _blocks(looked: AttentionTrace) -> list[range]:
    """Take some rows at a time, since the first few often tell."""
    T, S = looked.shape
    step = max(PAIRS // S, 1)
    return [range(row, min(row + step, T)) for row in range(0, T, step)]


def sees_all(looked: AttentionTrace) -> bool:
    """Tell whether every query may look at every key."""
    return all(allowed is None or bool(allowed.all()) for allowed in map(looked.allowed, _blocks(looked)))


def mask_bits(looked: AttentionTrace) -> bytes:
    """Give one bit for every pair, the lowest of a byte first."""
    rows = [allowed for allowed in map(looked.allowed, _blocks(looked)) if allowed is not None]
    return np.packbits(torch.cat(rows).cpu().numpy(), bitorder="little").tobytes()
