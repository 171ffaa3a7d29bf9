"""Scale a whole architecture: heads, hidden widths, ranks and depth follow a new width.

`--recipe gpt2 --size tiny` and `--recipe gpt2 model.dim=128` are computed here, as tables of a recipe. Every
ratio of the recipe is kept as far as whole numbers allow: the width of a head, hidden / dim, kv_heads / heads, ranks,
the widths of experts, the kinds of layers in a pattern. A size or pattern that is not valid stays as it is: it is
reported when the model is checked.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil, sqrt
from re import fullmatch
from typing import Any, TypeGuard

from regard.config import Table
from regard.limits import MOST

SHALLOW = 4  # a stack of fewer layers (the recurrent recipes) keeps its depth
LEAST_HEAD = 16  # the least width of a head, where the recipe's own does not divide the model's width
# Keys that grow with the width, besides heads.
WIDTHS = ("hidden", "rank", "query_rank", "gate_rank", "value_rank", "concatenate")
LATENT_WIDTHS = ("plain", "turned", "value")  # widths of a head of multi-head latent attention
HEADS = 4  # heads of a part that replaces one without heads


@dataclass(frozen=True)
class Size:
    """The size of a model: its width, and the layers and heads of each stack (None: scaled from the recipe's)."""

    dim: int
    depth: int | None = None
    heads: int | None = None


SIZES = {
    "mini": Size(64, 4, 4),
    "tiny": Size(128, 4, 4),
    "small": Size(256, 6, 4),
    "base": Size(512, 6, 8),
    "big": Size(1024, 12, 16),
}


def scale_model(model: Mapping[str, Any], size: Size) -> Table:
    """Return the table of a model scaled to a size.

    Without a depth in `size`, stacks of four layers and more scale by the square root of the width; without heads, a
    head keeps its width where that divides the new one.
    """
    if not _is_size(model.get("dim")) or not _is_size(size.dim):
        return dict(model)
    return {**_scale_table(model, model["dim"], size), "dim": size.dim}


def _scale_table(table: Mapping[str, Any], dim: int, size: Size) -> Table:
    """Scale all sizes in a table and in those below it; `dim` is the width of the whole model before."""
    scaled: Table = {}
    for key, value in table.items():
        if key == "heads" and isinstance(value, Mapping):
            scaled[key] = _scale_heads(value, dim, size)
        elif isinstance(value, Mapping):
            scaled[key] = _scale_table(value, dim, size)
        elif key == "heads" and _is_size(value) and dim % value == 0:  # a mixer that has no table of heads
            scaled[key] = _count_heads(size.dim, value, dim // value, size.heads)
        elif key in WIDTHS and _is_size(value):
            scaled[key] = _scale_width(value, size.dim / dim)
        else:
            scaled[key] = value
    if _is_size(table.get("depth")):
        scaled["depth"] = _scale_depth(table["depth"], dim, size)
        if _is_pattern(table.get("pattern")):
            scaled["pattern"] = _scale_pattern(table["pattern"], table["depth"], scaled["depth"])
            scaled["depth"] = max(scaled["depth"], len(scaled["pattern"]))
    return scaled


def _is_size(value: object) -> TypeGuard[int]:
    return type(value) is int and 0 < value <= MOST


def _is_pattern(value: object) -> TypeGuard[list[str]]:
    items = value if isinstance(value, list | tuple) else [None]
    return all(isinstance(item, str) and fullmatch(r"([1-9]\d{0,9}\*)?[^*]+", item) for item in items)


def _scale_width(width: int, ratio: float) -> int:
    """Scale a width; to a multiple of 16 if it was one, which is faster."""
    step = 16 if width % 16 == 0 else 2 if width % 2 == 0 else 1
    return max(ceil(width * ratio / step) * step, step)


def _scale_depth(depth: int, dim: int, size: Size) -> int:
    if depth < SHALLOW:
        return depth
    return size.depth or max(SHALLOW, round(depth * sqrt(size.dim / dim)))


def _scale_pattern(pattern: list[str], before: int, after: int) -> list[str]:
    """Scale the counts of a pattern such as ["dense", "11*sparse"], so that every kind of layer still occurs.

    A pattern that repeats within the depth stays as it is.
    """
    items = [item.rpartition("*") for item in pattern]
    counts = [int(count) if star else 1 for count, star, _ in items]
    length = sum(counts)
    if length <= after and length < before:
        return list(pattern)
    wanted = max(after, len(counts))
    scaled = [max(1, int(count * wanted / length)) for count in counts]
    while sum(scaled) != wanted:  # what rounding changed is added to, or taken from, the longest part
        step = 1 if sum(scaled) < wanted else -1
        place = max(range(len(counts)), key=lambda index: (scaled[index] > 1, counts[index]))
        scaled[place] += step
    return [f"{count}*{name}" if count > 1 else name for count, (*_, name) in zip(scaled, items, strict=True)]


def _scale_heads(heads: Mapping[str, Any], dim: int, size: Size) -> Table:
    """Scale the table of heads: their number follows the width, and each keeps its own width if it can."""
    scaled = _scale_table(heads, dim, size)
    before = heads.get("heads")
    is_latent = heads.get("kind") == "latent"
    has_own_width = is_latent or "head_dim" in heads  # not dim / heads, and so independent of the width
    if not _is_size(before) or (before > dim and not has_own_width):
        return scaled
    if is_latent:
        if not all(_is_size(heads.get(key)) for key in LATENT_WIDTHS):
            return scaled
        narrower = 1.0 if size.heads is None else size.dim // size.heads / heads["value"]
        scaled["heads"] = max(1, round(before * size.dim / dim / narrower))
        scaled |= {key: max(2, round(heads[key] * narrower / 2) * 2) for key in LATENT_WIDTHS}
        return scaled
    if has_own_width and size.heads is None:
        scaled["heads"] = max(1, round(before * size.dim / dim))
    else:
        scaled["heads"] = _count_heads(size.dim, before, dim // before, size.heads)
        if "head_dim" in heads:
            scaled["head_dim"] = size.dim // scaled["heads"]
    if _is_size(heads.get("kv_heads")):
        wanted = max(1, round(scaled["heads"] * heads["kv_heads"] / before))
        scaled["kv_heads"] = max(count for count in range(1, wanted + 1) if scaled["heads"] % count == 0)
    return scaled


def _count_heads(dim: int, before: int, width: int, wanted: int | None) -> int:
    """Return the number of heads for a width: as wanted, else of the width before, else as many as divide evenly."""
    if wanted is not None and dim % (2 * wanted) == 0:
        return wanted
    if wanted is None and dim % width == 0:
        return dim // width
    most = wanted or before
    fitting = [count for count in range(1, most + 1) if dim % count == 0 and (dim // count) % 2 == 0]
    wide = [count for count in fitting if dim // count >= LEAST_HEAD]
    return max(wide or fitting[:1], default=1)


def gated_width(dim: int) -> int:
    """Return the hidden width of a gated unit: it has three matrices instead of two, so each is two thirds as large."""
    return ceil(8 * dim / 3 / 16) * 16


def part_sizes(kind: object, dim: int, heads: int, longest: int) -> Table:
    """Return the sizes that a part must have if it is asked for by its kind alone.

    `heads` are those of the part it replaces, and `longest` is the longest row. Experts compute as much as one gated
    unit.
    """
    head = max(dim // heads, 2)
    sizes: dict[object, Table] = {
        "mlp": {"hidden": 4 * dim},
        "glu": {"hidden": gated_width(dim)},
        "moe": {"experts": 8, "chosen": 2, "hidden": gated_width(dim) // 2},
        **{name: {"heads": heads} for name in ("multi", "linear-attention", "gated-deltanet", "mamba2", "rwkv7")},
        "latent": {"heads": heads, "rank": 4 * head, "plain": head, "turned": ceil(head / 4) * 2, "value": head},
        "learned": {"length": longest},
    }
    return sizes.get(kind, {})
