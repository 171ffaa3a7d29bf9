"""Rotary positions in config.json: `rope_parameters`, or `rope_theta` and `rope_scaling` in older files."""

from math import log, sqrt
from typing import Literal

from regard.config import Table
from regard.hub.conversion import NotExpressibleError
from regard.hub.hub_config import HubConfig
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


def read_rope(hub: HubConfig, layout: Literal["halves", "interleaved"] = "halves") -> tuple[RopeConfig, float]:
    """Return our rotary positions, and the factor by which they also scale the scores (DeepSeek with YaRN)."""
    key = "rope_parameters" if hub.table.get("rope_parameters") is not None else "rope_scaling"
    found = hub.read_any(key, {})
    if not isinstance(found, dict):
        raise hub.error(key, found, "it must be a table")
    hub.keys_read |= {"rope_parameters", "rope_scaling"}
    inner = HubConfig(found, place=f"{hub.place}: {key}")
    base = hub.read_float("rope_theta", inner.read_float("rope_theta", 10000.0))
    length = hub.read_optional_int("max_position_embeddings")
    given = {name: value for name, value in found.items() if name not in ("rope_theta", "type", "rope_type")}
    kind = found.get("rope_type", found.get("type", "default"))
    if kind not in list(KEYS):  # a list, because a wrong value may be unhashable
        raise hub.error(key, kind, "the supported scalings are llama3 and yarn")
    for name in sorted(set(given) - KEYS[kind]):
        raise hub.error(f"{key}.{name}", given[name], f"{kind} has no such key")
    if kind == "default":
        return RopeConfig(base, layout), 1.0
    factor = inner.read_float("factor")
    original = inner.read_int("original_max_position_embeddings", length)
    if kind == "llama3":
        low, high = inner.read_float("low_freq_factor"), inner.read_float("high_freq_factor")
        return RopeConfig(base, layout, scaling=Llama3Scaling(factor, original, low, high)), 1.0
    inner.require("truncate", True, "only bounds of the blend that are rounded to whole features are supported")
    mscale, all_dim = _read_mscale(inner, "mscale"), _read_mscale(inner, "mscale_all_dim")
    magnitude = None
    if given.get("attention_factor") is not None:
        magnitude = inner.read_float("attention_factor")
    elif mscale and all_dim:
        magnitude = _magnitude(factor, mscale) / _magnitude(factor, all_dim)
    scaling = YarnScaling(
        factor,
        original,
        inner.read_float("beta_fast", 32.0),
        inner.read_float("beta_slow", 1.0),
        magnitude,
    )
    return RopeConfig(base, layout, scaling=scaling), _magnitude(factor, all_dim) ** 2 if all_dim else 1.0


def _read_mscale(table: HubConfig, key: str) -> float:
    weight = table.read_float(key, 0.0)
    if weight < 0:
        raise table.error(key, weight, "it must be at least 0")
    return weight


def _magnitude(factor: float, weight: float) -> float:
    return 0.1 * weight * log(factor) + 1 if factor > 1 else 1.0


def rope_keys(rope: RopeConfig, length: int = 2048) -> Table:
    """Return the keys of rotary positions, under the names that older versions of `transformers` also read."""
    scaling = rope.scaling
    if scaling is None:
        return {"rope_theta": rope.base, "rope_scaling": None, "max_position_embeddings": length}
    if not isinstance(scaling, Llama3Scaling | YarnScaling):
        raise NotExpressibleError("a scaling other than llama3 and yarn", "model.layers.mixer.position.scaling")
    table: Table = {"factor": scaling.factor, "original_max_position_embeddings": scaling.original_length}
    if isinstance(scaling, Llama3Scaling):
        table |= {"rope_type": "llama3", "low_freq_factor": scaling.low, "high_freq_factor": scaling.high}
    else:
        table |= {"rope_type": "yarn", "beta_fast": scaling.fast, "beta_slow": scaling.slow}
        if scaling.magnitude is not None:
            table["attention_factor"] = scaling.magnitude
    longest = round(scaling.factor * scaling.original_length)
    return {"rope_theta": rope.base, "rope_scaling": table, "max_position_embeddings": longest}


def score_scale_keys(score: DotConfig, rope: RopeConfig, width: int) -> Table:
    """Return the key by which DeepSeek's YaRN also scales the scores, if their scale is not 1/sqrt(width)."""
    if score.scale is None or not isinstance(rope.scaling, YarnScaling) or rope.scaling.factor <= 1:
        return {}
    if score.scale <= 0:
        raise NotExpressibleError(f"{score.scale} instead of a positive number", "model.layers.mixer.score.scale")
    all_dim = (sqrt(score.scale * sqrt(width)) - 1) / (0.1 * log(rope.scaling.factor))
    return {"mscale_all_dim": all_dim}
