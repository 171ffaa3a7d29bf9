"""Which families can express a config: it is converted to the family and back, and must not change.

A family's `to_hub` therefore only has to write the values that it knows; whatever it overlooks is found here. Settings
of training (dropout, initialisation) are not compared, and a missing bias equals a bias of zeros.
"""

from collections.abc import Iterator
from dataclasses import dataclass, is_dataclass, replace
from math import isclose
from typing import Any, TypeVar

from regard.config import Table, to_table
from regard.errors import ConfigError
from regard.hub.family import Family
from regard.hub.hub_config import HubConfig
from regard.models.init import without_memory
from regard.models.recipe import ModelConfig
from regard.models.stack import LayerConfig, StackConfig
from regard.parts.attention import AttentionConfig
from regard.parts.heads import MultiHeadsConfig
from regard.parts.score import DotConfig

T = TypeVar("T")

TRAINING = {"dropout", "dropout_by_row", "drop_path", "word_dropout", "weight_dropout", "init"}
BIASES = {False: 0, "no": 0, "qkv": 1, "output": 2, True: 3, "all": 3}  # which projections have one, as bits


class NotExpressibleError(ConfigError):
    """A config that a family cannot express."""


@dataclass(frozen=True)
class Conversion:
    """A config of ours, converted to a family."""

    family: Family
    theirs: Table  # the content of config.json
    read_back: ModelConfig  # our config of `theirs`
    differences: list[str]  # what changed in the round trip
    added_biases: int  # biases that the family has and our model lacks


def convert_config(family: Family, config: ModelConfig) -> Conversion:
    """Convert a config to a family and back. Raise `NotExpressibleError` if the family lacks a part completely."""
    theirs = {"model_type": family.model_type, **family.to_hub(config)}
    [architecture] = theirs["architectures"]
    reader = HubConfig(theirs, family.architectures[architecture].task)
    read_back = family.from_hub(reader)
    reader.check_all_read(family.ignored_keys)
    found = list(_differences(_canonical(config), _canonical(read_back), "model"))
    differences = [text for text in found if text is not None]
    return Conversion(family, theirs, read_back, differences, len(found) - len(differences))


def expect(value: Any, kind: type[T], path: str) -> T:
    """Return the value if it is of the kind that a family needs at this place of a config."""
    if isinstance(value, kind):
        return value
    raise NotExpressibleError(f"{_kind_name(value)} instead of {_kind_name(kind)}", path)


def _kind_name(value: Any) -> str:
    """Name the kind of a config: "lstm" for `LSTMConfig`."""
    if value is None:
        return "none"
    return (value if isinstance(value, type) else type(value)).__name__.removesuffix("Config").lower()


def single_layer(stack: StackConfig, path: str = "model") -> tuple[LayerConfig, str]:
    """Return the only kind of layer that a stack has, and its path."""
    kinds = dict.fromkeys(stack.names())
    if len(kinds) > 1:
        raise NotExpressibleError(f"{len(kinds)} kinds of layers ({', '.join(kinds)}) instead of one", f"{path}.layers")
    [name] = kinds
    return stack.layers[name], f"{path}.layers.{name}"


def _canonical(config: ModelConfig) -> Table:
    """Return the table of a config in which equal models are equal: defaults resolved, layers listed in order."""
    with without_memory():
        resolved = _resolve(config, config.dim)
    table = to_table(resolved)
    for path in ("", "encoder", "decoder"):
        stack = getattr(resolved, path, None) if path else resolved
        inner = table.get(path) if path else table
        if isinstance(stack, StackConfig) and inner is not None:
            inner["layers"] = [{"name": name, **inner["layers"][name]} for name in stack.names()]
            inner.pop("pattern")
    return dict(table)


def _resolve(config: Any, dim: int) -> Any:
    """Write out the defaults of every attention that follow from the width of the model."""
    if isinstance(config, dict):
        return {key: _resolve(value, dim) for key, value in config.items()}
    if not is_dataclass(config) or isinstance(config, type):
        return config
    config = replace(config, **{key: _resolve(value, dim) for key, value in vars(config).items()})
    if not isinstance(config, AttentionConfig):
        return config
    heads, score = config.heads, config.score
    if isinstance(heads, MultiHeadsConfig):
        heads = heads.resolved(dim)
    if isinstance(score, DotConfig):
        score = replace(score, scale=config.build(dim).score.scale)
    return replace(config, heads=heads, score=score)


def _differences(ours: Any, theirs: Any, path: str) -> Iterator[str | None]:
    """Describe each difference; None is a bias that only theirs has."""
    if isinstance(ours, dict) and isinstance(theirs, dict) and ours.get("kind") == theirs.get("kind"):
        for key in sorted((set(ours) | set(theirs)) - TRAINING - {"name"}):
            if key == "bias" and _has_more_biases(theirs.get(key), ours.get(key)):
                yield None
            elif key == "layers" and isinstance(ours.get(key), list):
                yield from _layer_differences(ours[key], theirs[key], path)
            else:
                yield from _differences(ours.get(key), theirs.get(key), f"{path}.{key}")
    elif not _same(ours, theirs):
        yield f"{path}: {_show(ours)} instead of {_show(theirs)}"


def _has_more_biases(theirs: Any, ours: Any) -> bool:
    """Return whether every bias of ours is one of theirs, and they have more."""
    return BIASES[ours] != BIASES[theirs] and BIASES[ours] & BIASES[theirs] == BIASES[ours]


def _layer_differences(ours: list[Table], theirs: list[Table], path: str) -> Iterator[str | None]:
    seen = set()
    for mine, other in zip(ours, theirs, strict=False):
        for text in _differences(mine, other, f"{path}.layers.{mine['name']}"):
            if text not in seen:
                seen.add(text)
                yield text


def _same(ours: Any, theirs: Any) -> bool:
    if isinstance(ours, float) and isinstance(theirs, float):
        return isclose(ours, theirs, rel_tol=1e-9)
    return bool(ours == theirs)


def _show(value: Any) -> str:
    if value is None:
        return "none"
    return str(value.get("kind", "a table")) if isinstance(value, dict) else str(value)
