"""Rotary positions by the names of both sides: `rope_parameters`, or `rope_theta` and `rope_scaling` before."""

from math import log, sqrt
from typing import Any

from regard.config import Table
from regard.hub.express import UnlikeError
from regard.hub.theirs import Theirs
from regard.parts.position import Llama3Scaling, RopeConfig, YarnScaling
from regard.parts.score import DotConfig

KEYS = {
    "default": set[str](),
    "llama3": {"factor", "original_max_position_embeddings", "low_freq_factor", "high_freq_factor"},
    "yarn": {
        "factor",
        "original_max_position_embeddings",
        "beta_fast",
        "beta_slow",
        "attention_factor",
        "mscale",
        "mscale_all_dim",
        "truncate",
    },
}


def read_rope(theirs: Theirs, layout: Any = "halves") -> tuple[RopeConfig, float]:
    """Give our rotary positions, and the factor by which they scale the scores besides (DeepSeek does with YaRN)."""
    key = "rope_parameters" if theirs.table.get("rope_parameters") is not None else "rope_scaling"
    found = theirs.anything(key, {})
    if not isinstance(found, dict):
        raise theirs.refuse(key, found, "it must be a table")
    theirs.known |= {"rope_parameters", "rope_scaling"}
    inner = Theirs(found, place=f"{theirs.place}: {key}")
    base = theirs.number("rope_theta", inner.number("rope_theta", 10000.0))
    length = theirs.whole("max_position_embeddings", None)
    given = {name: value for name, value in found.items() if name not in ("rope_theta", "type", "rope_type")}
    kind = found.get("rope_type", found.get("type", "default"))
    if kind not in KEYS:
        raise theirs.refuse(key, kind, "the scalings known here are llama3 and yarn")
    for name in sorted(set(given) - KEYS[kind]):
        raise theirs.refuse(f"{key}.{name}", given[name], f"no such key is known for {kind}")
    if kind == "default":
        return RopeConfig(base, layout), 1.0
    factor = inner.number("factor")
    original = inner.whole("original_max_position_embeddings", length)
    if kind == "llama3":
        low, high = inner.number("low_freq_factor"), inner.number("high_freq_factor")
        return RopeConfig(base, layout, scaling=Llama3Scaling(factor, original, low, high)), 1.0
    inner.only("truncate", True, "the borders of the blend are whole features here")
    whole = inner.number("mscale_all_dim", 0.0)
    magnitude = None
    if given.get("attention_factor") is not None:
        magnitude = inner.number("attention_factor")
    elif inner.number("mscale", 0.0) and whole:
        magnitude = _magnitude(factor, inner.number("mscale")) / _magnitude(factor, whole)
    scaling = YarnScaling(
        factor,
        original,
        inner.number("beta_fast", 32.0),
        inner.number("beta_slow", 1.0),
        magnitude,
    )
    return RopeConfig(base, layout, scaling=scaling), _magnitude(factor, whole) ** 2 if whole else 1.0


def _magnitude(factor: float, weight: float) -> float:
    return 0.1 * weight * log(factor) + 1 if factor > 1 else 1.0


def their_rope(rope: RopeConfig, length: int = 2048) -> Table:
    """Give the keys of rotary positions, in the names that older readers know, too."""
    scaling = rope.scaling
    if scaling is None:
        return {"rope_theta": rope.base, "rope_scaling": None, "max_position_embeddings": length}
    if not isinstance(scaling, Llama3Scaling | YarnScaling):
        raise UnlikeError("only llama3 and yarn are known there", "model.layers.mixer.position.scaling")
    table: Table = {"factor": scaling.factor, "original_max_position_embeddings": scaling.original_length}
    if isinstance(scaling, Llama3Scaling):
        table |= {"rope_type": "llama3", "low_freq_factor": scaling.low, "high_freq_factor": scaling.high}
    else:
        table |= {"rope_type": "yarn", "beta_fast": scaling.fast, "beta_slow": scaling.slow}
        if scaling.magnitude is not None:
            table["attention_factor"] = scaling.magnitude
    longest = round(scaling.factor * scaling.original_length)
    return {"rope_theta": rope.base, "rope_scaling": table, "max_position_embeddings": longest}


def their_score_factor(score: DotConfig, rope: RopeConfig, width: int) -> Table:
    """Give the key by which DeepSeek's YaRN scales scores besides, if they are scaled by more than 1/sqrt(width)."""
    if score.scale is None or not isinstance(rope.scaling, YarnScaling) or rope.scaling.factor <= 1:
        return {}
    if score.scale <= 0:
        raise UnlikeError(f"{score.scale} where it has a positive number", "model.layers.mixer.score.scale")
    whole = (sqrt(score.scale * sqrt(width)) - 1) / (0.1 * log(rope.scaling.factor))
    return {"mscale_all_dim": whole}
