"""What a family can express. A config goes there and back: whatever comes back changed cannot be expressed.

So `to_hf` only has to read off the values that its family knows; what it overlooks is found here. How a model was
trained (dropout, how weights began) is no part of what it is, and a bias that a model lacks is one of zero.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import isclose
from typing import Any, TypeVar

from regard.config import Table, to_table
from regard.errors import ConfigError
from regard.hub.table import Family
from regard.hub.theirs import Theirs
from regard.models.stack import StackConfig

T = TypeVar("T")

TRAINING = {"dropout", "init"}
BIASES = (False, "no", "qkv", True, "all")  # fewer to more


class UnlikeError(ConfigError):
    """A config that a family cannot express at all."""


@dataclass(frozen=True)
class Expressed:
    """A config of ours in the words of a family, and what is not the same there."""

    family: Family
    theirs: Table
    image: Any  # our config of what the family makes of it
    differences: list[str]
    filled: int  # biases that it has besides


def express(family: Family, config: Any) -> Expressed:
    """Say a config in the words of a family; raises `UnlikeError` where it has no words at all."""
    theirs = {"model_type": family.model_type, **family.to_hf(config)}
    reader = Theirs(theirs)
    image = family.from_hf(reader)
    reader.finish(family.ignored_keys)
    found = list(_differences(_canonical(config), _canonical(image), "model"))
    filled = sum(reason is None for reason in found)
    return Expressed(family, theirs, image, [reason for reason in found if reason is not None], filled)


def part(value: Any, kind: type[T], path: str) -> T:
    """Give the value if it is of the kind that a family needs at this place of a config."""
    if isinstance(value, kind):
        return value
    wanted = kind.__name__.removesuffix("Config").lower()
    found = "nothing" if value is None else type(value).__name__.removesuffix("Config").lower()
    raise UnlikeError(f"{found} where it has {wanted}", path)


def only_layer(stack: StackConfig, path: str = "model") -> tuple[Any, str]:
    """Give the one kind of layer that a stack has, and its path."""
    kinds = dict.fromkeys(stack.names())
    if len(kinds) > 1:
        raise UnlikeError(f"{len(kinds)} kinds of layers ({', '.join(kinds)}) where it has one", f"{path}.layers")
    [name] = kinds
    return stack.layers[name], f"{path}.layers.{name}"


def _canonical(config: Any) -> Table:
    """Give the table of a config, in which what means the same is written the same, and layers stand in order."""
    table = to_table(config)
    for path in ("", "encoder", "decoder"):
        stack = getattr(config, path, None) if path else config
        inner = table.get(path) if path else table
        if isinstance(stack, StackConfig) and inner is not None:
            inner["layers"] = [{"name": name, **inner["layers"][name]} for name in stack.names()]
            inner.pop("pattern")
    return dict(_simplify(table, table.get("dim", 0)))


def _simplify(table: Any, dim: int) -> Any:
    if isinstance(table, list):
        return [_simplify(item, dim) for item in table]
    if not isinstance(table, dict):
        return table
    table = {key: _simplify(value, dim) for key, value in table.items() if key not in TRAINING}
    heads = table.get("heads")
    if table.get("kind") == "multi":
        table = {"kv_heads": heads, "head_dim": dim // heads, **table}
    if isinstance(heads, dict) and table["score"]["kind"] == "dot":
        wide = heads.get("head_dim") or heads.get("plain", 0) + heads.get("turned", 0) or dim
        table["score"] = {"scale": wide**-0.5, **table["score"]}
    return table


def _differences(ours: Any, theirs: Any, path: str) -> Iterator[str | None]:
    """Name what differs; None stands for a bias that theirs has besides."""
    if isinstance(ours, dict) and isinstance(theirs, dict) and ours.get("kind") == theirs.get("kind"):
        for key in sorted(set(ours) | set(theirs)):
            if key == "bias" and BIASES.index(ours.get(key)) < BIASES.index(theirs.get(key)):
                yield None
            elif key == "layers" and isinstance(ours.get(key), list):
                yield from _layers(ours[key], theirs[key], path)
            elif key != "name":
                yield from _differences(ours.get(key), theirs.get(key), f"{path}.{key}")
    elif not _same(ours, theirs):
        yield f"{path}: {_show(ours)} here, {_show(theirs)} there"


def _layers(ours: list[Table], theirs: list[Table], path: str) -> Iterator[str | None]:
    seen = set()
    for mine, other in zip(ours, theirs, strict=False):
        for reason in _differences(mine, other, f"{path}.layers.{mine['name']}"):
            if reason not in seen:
                seen.add(reason)
                yield reason


def _same(ours: Any, theirs: Any) -> bool:
    if isinstance(ours, float) and isinstance(theirs, float):
        return isclose(ours, theirs, rel_tol=1e-9)
    return bool(ours == theirs)


def _show(value: Any) -> str:
    if value is None:
        return "nothing"
    return str(value.get("kind", "a table")) if isinstance(value, dict) else str(value)
