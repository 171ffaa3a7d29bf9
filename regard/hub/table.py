"""The engine: a family is a table of weights and two functions on configs, and both directions follow from it.

A row of the table is (ours, theirs, change), with `{i}` for the number of the layer and `{e}` for that of an expert.
Rows are spelled out over the weights that a model has: what it has not (a bias, a segment table) asks for nothing.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from fnmatch import fnmatch
from typing import Any

import torch
from torch import Tensor

from regard.errors import RegardError
from regard.hub.changes import SAME, Change, Shape
from regard.hub.theirs import Theirs

Row = tuple[str | tuple[str, ...], str, Change]
Shapes = Mapping[str, Shape]


@dataclass(frozen=True)
class Family:
    """One kind of Hugging Face model, by its `model_type`.

    `table` names the weights of the body without the `prefix` that they have below a head; `heads` gives for each
    architecture the rows of its head, with whole names. `base` is the architecture that is the body alone.
    """

    model_type: str
    table: Sequence[Row]
    heads: Mapping[str, Sequence[Row]]
    from_hf: Callable[[Theirs], Any]  # their config -> ours; an unread key is an error
    to_hf: Callable[[Any], dict[str, Any]]  # ours -> theirs, or a RegardError that gives the reason
    prefix: str = ""
    base: str | None = None
    ignored_keys: Mapping[str, str] = field(default_factory=dict)  # of the config, and why
    ignored_weights: Mapping[str, str] = field(default_factory=dict)  # patterns, and why
    tied: Mapping[str, str] = field(default_factory=dict)  # names that a tied weight has besides its own
    old_names: Mapping[str, str] = field(default_factory=dict)  # ends of names in old files, and what they are now
    own: Sequence[str] = ()  # patterns of weights that only ours have; they begin as zero
    constants: Callable[[dict[str, Any]], dict[str, Tensor]] = lambda config: {}  # that only theirs have, to write

    def rows(self, architecture: str) -> list[Row]:
        """Give the rows of a model with the head that `architecture` has."""
        before = "" if architecture == self.base else self.prefix
        body = [
            (ours, "|".join(before + name for name in theirs.split("|")), change) for ours, theirs, change in self.table
        ]
        return [*body, *self.heads[architecture]]

    def is_own(self, name: str) -> bool:
        """Tell whether a weight of ours has no counterpart."""
        return any(fnmatch(name, pattern) for pattern in self.own)

    def is_ignored(self, name: str) -> bool:
        """Tell whether a weight of theirs is left out knowingly."""
        return any(fnmatch(name, pattern) for pattern in self.ignored_weights)

    def now(self, name: str, known: Iterable[str]) -> str:
        """Give the name that a weight has today: old files have other ends of names, and may lack the prefix."""
        for old, new in self.old_names.items():
            name = name.removesuffix(old) + new if name.endswith(old) else name
        return self.prefix + name if name not in known and self.prefix + name in known else name


@dataclass(frozen=True)
class Link:
    """A row spelled out for one place in a model."""

    ours: tuple[str, ...]
    theirs: tuple[str, ...]
    change: Change


def links(family: Family, architecture: str, shapes: Shapes) -> list[Link]:
    """Spell the table out for a model whose weights have these names and shapes; each must have its row."""
    found = []
    missing = {name for name in shapes if not family.is_own(name)}
    for row, theirs, change in family.rows(architecture):
        ours = row if isinstance(row, tuple) else (row,)
        for number in _places(ours[0], shapes):
            names = tuple(name.replace("{i}", number) for name in ours)
            if all(name in missing for name in names):
                missing -= set(names)
                there = change.names(theirs.replace("{i}", number), [shapes[name] for name in names])
                found.append(Link(names, tuple(there), change))
    assert not missing, f"the table of {family.model_type} has no row for {sorted(missing)}"
    return found


def _places(ours: str, shapes: Shapes) -> list[str]:
    """Find the layers that have this weight: their numbers, or one empty one for what stands in no layer."""
    pattern = re.compile(re.escape(ours).replace(r"\{i\}", r"(?P<i>\d+)"))
    return [match.groupdict().get("i", "") for name in shapes if (match := pattern.fullmatch(name))]


def check(family: Family, architecture: str, ours: Shapes, theirs: Shapes, place: str) -> dict[str, str]:
    """Compare names and shapes of a file with what the model needs, before anything is read.

    Gives the name in the file for each name of today. Raises an error that names the weight.
    """
    wanted: dict[str, Shape] = {}
    for link in links(family, architecture, ours):
        wanted.update(zip(link.theirs, link.change.shapes([ours[name] for name in link.ours]), strict=True))
    named = {family.now(name, wanted): name for name in theirs}
    for name in sorted(named):
        if name not in wanted and name not in family.tied and not family.is_ignored(name):
            near = get_close_matches(name, wanted, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise RegardError(f"{place}: {named[name]!r} is no weight of {architecture} with this config.json{hint}")
    for name, shape in wanted.items():
        if name not in named:
            raise RegardError(f"{place}: the weight {name!r} is missing, which {architecture} has by its config.json")
        if theirs[named[name]] != shape:
            raise RegardError(
                f"{place}: {named[name]} has shape {theirs[named[name]]}, but by config.json it must be {shape}"
            )
    return named


def read(
    family: Family, architecture: str, ours: Shapes, named: Mapping[str, str], get: Callable[[str], Tensor], place: str
) -> dict[str, Tensor]:
    """Read our weights; `get` gives a tensor of the file, `named` (of `check`) the names there."""
    weights: dict[str, Tensor] = {}
    for link in links(family, architecture, ours):
        found = link.change.read([get(named[name]) for name in link.theirs], [ours[name] for name in link.ours])
        weights.update(zip(link.ours, found, strict=True))
    used = {name for link in links(family, architecture, ours) for name in link.theirs}
    for name, twin in family.tied.items():
        also = name in named and name not in used and twin in named
        if also and not torch.equal(get(named[name]), get(named[twin])):
            raise RegardError(f"{place}: {named[name]} differs from {named[twin]}, but config.json says they are one")
    return weights


def write(family: Family, architecture: str, ours: Shapes, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Make their weights of ours; `ours` are the shapes of the model that will be read from them.

    A bias that our model does not have is zero.
    """
    some = next(tensor for tensor in weights.values() if tensor.is_floating_point())
    theirs: dict[str, Tensor] = {}
    for link in links(family, architecture, ours):
        tensors = [weights[name] if name in weights else some.new_zeros(ours[name]) for name in link.ours]
        theirs.update(zip(link.theirs, link.change.write(tensors), strict=True))
    return theirs


def both(ours: str, theirs: str) -> list[Row]:
    """The rows of the weight and the bias of a matrix or a norm."""
    return [(f"{ours}.{part}", f"{theirs}.{part}", SAME) for part in ("weight", "bias")]
