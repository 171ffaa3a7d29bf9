"""A Hugging Face family: a table of weights and two functions on configs. Both directions follow from them.

A row of the table is (ours, theirs, change), with `{i}` for the index of a layer and `{e}` for that of an expert.
Rows for weights that a model lacks (a bias, a segment table) are skipped.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from fnmatch import fnmatch
from typing import Literal

import torch
from torch import Tensor

from regard.config import Table
from regard.errors import RegardError
from regard.hub.changes import SAME, Change, Shape
from regard.hub.hub_config import HubConfig
from regard.models.recipe import ModelConfig

Row = tuple[str | tuple[str, ...], str, Change]
HeadTask = Literal["language", "masked", "classification", "translation", "vision", "features"]


@dataclass(frozen=True)
class Head:
    """The head of one architecture: the task it is for (a vector per text is "features"), and its rows in full."""

    task: HeadTask
    rows: Sequence[Row] = ()


@dataclass(frozen=True)
class Family:
    """One kind of Hugging Face model, named by its `model_type`.

    `table` lists the weights of the body, without the `prefix` that they have below a head. `architectures` gives the
    head of each class of the family. `base` is the class that is the body alone, without a prefix.

    `from_hub` reads a config; a key that it does not read must be in `ignored_keys`. `to_hub` writes a config, or
    raises a `NotExpressibleError` with the reason. It only has to write the values that the family knows: whatever it
    overlooks is found by reading the result back.
    """

    model_type: str
    table: Sequence[Row]
    architectures: Mapping[str, Head]
    from_hub: Callable[[HubConfig], ModelConfig]
    to_hub: Callable[[ModelConfig], Table]
    prefix: str = ""
    base: str | None = None
    ignored_keys: Mapping[str, str] = field(default_factory=dict)  # of config.json, and why
    ignored_weights: Mapping[str, str] = field(default_factory=dict)  # patterns of names in the file, and why
    tied: Mapping[str, str] = field(default_factory=dict)  # a second name of a tied weight -> its first name
    old_names: Mapping[str, str] = field(default_factory=dict)  # endings of names in old files -> today's
    own: Sequence[str] = ()  # patterns of weights that only our model has; they start as zero
    constants: Callable[[Table], dict[str, Tensor]] = lambda config: {}  # tensors that only their files have

    def rows(self, architecture: str) -> list[Row]:
        """Return the rows of body and head for an architecture."""
        prefix = "" if architecture == self.base else self.prefix
        body = [
            (ours, "|".join(prefix + name for name in theirs.split("|")), change) for ours, theirs, change in self.table
        ]
        return [*body, *self.architectures[architecture].rows]

    def is_own(self, name: str) -> bool:
        """Return whether a weight of our model has no counterpart in their files."""
        return any(fnmatch(name, pattern) for pattern in self.own)

    def is_ignored(self, name: str) -> bool:
        """Return whether a weight in their files is ignored on purpose."""
        return any(fnmatch(name, pattern) for pattern in self.ignored_weights)

    def current_name(self, name: str, known: Iterable[str]) -> str:
        """Return today's name of a weight: old files have other endings, and may lack the prefix."""
        for old, new in self.old_names.items():
            name = name.removesuffix(old) + new if name.endswith(old) else name
        return self.prefix + name if name not in known and self.prefix + name in known else name


@dataclass(frozen=True)
class WeightLink:
    """A row of the table with the layer's index filled in."""

    ours: tuple[str, ...]
    theirs: tuple[str, ...]
    change: Change


def link_weights(family: Family, architecture: str, shapes: Mapping[str, Shape]) -> list[WeightLink]:
    """Fill in the table for a model whose weights have these names and shapes. Every weight must have a row."""
    links = []
    missing = {name for name in shapes if not family.is_own(name)}
    for row, theirs, change in family.rows(architecture):
        ours = row if isinstance(row, tuple) else (row,)
        for index in _layer_indices(ours[0], shapes):
            names = tuple(name.replace("{i}", index) for name in ours)
            if all(name in missing for name in names):
                missing -= set(names)
                found = change.names(theirs.replace("{i}", index), [shapes[name] for name in names])
                links.append(WeightLink(names, tuple(found), change))
    assert not missing, f"the table of {family.model_type} has no row for {sorted(missing)}"
    return links


def _layer_indices(ours: str, shapes: Mapping[str, Shape]) -> list[str]:
    """Return the indices of the layers that have this weight; one empty string for a weight outside the layers."""
    pattern = re.compile(re.escape(ours).replace(r"\{i\}", r"(?P<i>\d+)"))
    return [match.groupdict().get("i", "") for name in shapes if (match := pattern.fullmatch(name))]


def check_weights(
    family: Family, architecture: str, ours: Mapping[str, Shape], theirs: Mapping[str, Shape], place: str
) -> dict[str, str]:
    """Compare the names and shapes in a file with those that the model needs, before anything is read.

    Return the name in the file for each of today's names.
    """
    wanted: dict[str, Shape] = {}
    for link in link_weights(family, architecture, ours):
        wanted.update(zip(link.theirs, link.change.shapes([ours[name] for name in link.ours]), strict=True))
    names = {family.current_name(name, wanted): name for name in theirs}
    for name in sorted(names):
        if name not in wanted and name not in family.tied and not family.is_ignored(name):
            near = get_close_matches(name, wanted, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise RegardError(f"{place}: {architecture} has no weight {names[name]!r} with this config.json{hint}")
    for name, shape in wanted.items():
        if name not in names:
            raise RegardError(f"{place}: the weight {name!r} is missing; {architecture} with this config.json needs it")
        if theirs[names[name]] != shape:
            raise RegardError(
                f"{place}: {names[name]} has shape {theirs[names[name]]}, but config.json requires {shape}"
            )
    return names


def read_weights(
    family: Family,
    architecture: str,
    ours: Mapping[str, Shape],
    names: Mapping[str, str],
    get: Callable[[str], Tensor],
    place: str,
) -> dict[str, Tensor]:
    """Read our weights. `get` returns a tensor of the file; `names` (from `check_weights`) are its names there."""
    weights: dict[str, Tensor] = {}
    links = link_weights(family, architecture, ours)
    for link in links:
        found = link.change.read([get(names[name]) for name in link.theirs], [ours[name] for name in link.ours])
        weights.update(zip(link.ours, found, strict=True))
    used = {name for link in links for name in link.theirs}
    for second, first in family.tied.items():
        redundant = second in names and second not in used and first in names
        if redundant and not torch.equal(get(names[second]), get(names[first])):
            raise RegardError(f"{place}: {names[second]} differs from {names[first]}, but config.json ties them")
    return weights


def write_weights(
    family: Family, architecture: str, ours: Mapping[str, Shape], weights: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """Return their weights. `ours` are the shapes of the model that reading them back gives.

    A bias that our model lacks is written as zeros.
    """
    example = next(tensor for tensor in weights.values() if tensor.is_floating_point())
    theirs: dict[str, Tensor] = {}
    for link in link_weights(family, architecture, ours):
        tensors = [weights[name] if name in weights else example.new_zeros(ours[name]) for name in link.ours]
        theirs.update(zip(link.theirs, link.change.write(tensors), strict=True))
    return theirs


def weight_and_bias(ours: str, theirs: str) -> list[Row]:
    """Return the rows of the weight and the bias of a matrix or a norm."""
    return [(f"{ours}.{name}", f"{theirs}.{name}", SAME) for name in ("weight", "bias")]
