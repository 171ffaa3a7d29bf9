"""What the manifest says of each attention: kind and layer, shapes, score, position and mask."""

import re
from collections.abc import Sequence

import numpy as np
import torch

from regard.models.introspection import AttentionRole
from regard.models.model import Model
from regard.parts.mask import Padding, Rule
from regard.parts.score import Additive, Bilinear, Cosine, Dot, ReducedRank, Score
from regard.viewer.capture import AttentionTrace, Capture
from regard.viewer.manifest import AttentionShape, ScoreKind
from regard.viewer.positions import KINDS

WHOLE = 2_000_000  # weights of a step that are sent as one blob, at most
PICTURE = 1 << 20  # a head with more weights is max-pooled
PAIRS = 1 << 14  # of queries and keys whose mask is computed at a time
SIDE = 1024  # rows and columns of a max-pooled head, at most
SCORES: dict[type[Score], ScoreKind] = {
    Dot: "dot",
    Cosine: "cosine",
    Bilinear: "bilinear",
    ReducedRank: "reduced-rank",
    Additive: "additive",
}


def describe_attentions(model: Model, captured: Capture) -> list[AttentionShape]:
    """Describe the attentions of a model: the encoder's, then the decoder's, then cross-attention."""
    inputs = {name: vectors.shape[1] for name, vectors in captured.inputs.items()}
    return [_describe(role, captured.traces[role.name], inputs[role.name]) for role in model.attentions()]


def _describe(role: AttentionRole, trace: AttentionTrace, input: int) -> AttentionShape:
    (rows, columns), terms = trace.shape, trace.terms
    pooled = [min(rows, SIDE), min(columns, SIDE)] if rows * columns > PICTURE else None
    kind = SCORES.get(type(terms.score), "other")
    return {
        "id": role.id,
        "kind": role.kind,
        "layer": role.layer,
        "name": role.name,
        "heads": trace.heads,
        "groups": trace.heads // trace.key.shape[1],
        "queries": role.queries,
        "keys": role.keys,
        "rows": rows,
        "columns": columns,
        "mask": None if sees_all(trace) else mask_name(role, terms.mask),
        "score": {"kind": kind, "scale": terms.score.scale, "cap": terms.score.cap},
        "position": KINDS.get(type(terms.position)),
        "bias": terms.has_bias,
        "input": input,
        "width": trace.query.shape[3],
        "value": trace.value.shape[3],
        "arithmetic": kind != "other" or terms.score.is_dot or pooled is not None,  # of a pooled head, only rows
        "pooled": pooled,
    }


def is_whole(attentions: Sequence[AttentionShape]) -> bool:
    """Return whether the weights of all heads fit into one blob."""
    numbers = sum(one["heads"] * one["rows"] * one["columns"] for one in attentions)
    return numbers <= WHOLE and all(one["pooled"] is None for one in attentions)


# --- masks -----------------------------------------------------------------------------------------------------------


def mask_name(role: AttentionRole, rule: Rule | None) -> str:
    """Name a mask by its sequences and rules, so that layers with the same mask share it."""
    assert rule is not None
    sides = [role.queries] if role.queries == role.keys else [role.queries, role.keys]
    rules = sorted(_rule_name(simple) for simple in rule.rules() if not isinstance(simple, Padding))
    return "-".join([*sides, *rules])


def _rule_name(rule: Rule) -> str:
    """Name a rule by its class and its numbers, such as window-8."""
    numbers = [str(value) for value in vars(rule).values() if isinstance(value, int)]
    return re.sub(r"[^a-z0-9]+", "-", "-".join([type(rule).__name__.lower(), *numbers]))


def _blocks(trace: AttentionTrace) -> list[range]:
    """Return blocks of rows; often the first is enough to know that not all keys are visible."""
    T, S = trace.shape
    step = max(PAIRS // S, 1)
    return [range(row, min(row + step, T)) for row in range(0, T, step)]


def sees_all(trace: AttentionTrace) -> bool:
    """Return whether every query may look at every key."""
    return all(allowed is None or bool(allowed.all()) for allowed in map(trace.allowed, _blocks(trace)))


def mask_bits(trace: AttentionTrace) -> bytes:
    """Return one bit for every query and key, the lowest of a byte first."""
    rows = [allowed for allowed in map(trace.allowed, _blocks(trace)) if allowed is not None]
    return np.packbits(torch.cat(rows).cpu().numpy(), bitorder="little").tobytes()
