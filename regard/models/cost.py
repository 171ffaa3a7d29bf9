"""The cost of a model as data: what `count.py` counts. Torch is not imported."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Node:
    """A module in the tree of a model, with the cost of it and everything below it."""

    name: str
    kind: str
    shape: str
    parameters: int
    flops: int
    children: tuple["Node", ...] = ()
    repeated: int = 1
    uncounted: tuple[str, ...] = ()  # kinds of parts, here or below, whose FLOPs are not known


@dataclass(frozen=True)
class Cost:
    """What a whole model costs at `length` tokens."""

    length: int
    parameters: int
    flops: int  # forward, for the whole row
    cache_bytes: int  # per row of `length` tokens, in 16-bit numbers
    tree: Node = field(repr=False)

    @property
    def flops_per_token(self) -> int:
        """Forward FLOPs for one token at this length."""
        return self.flops // self.length

    @property
    def uncounted(self) -> tuple[str, ...]:
        """Kinds of parts whose FLOPs are not known, and not in `flops`."""
        return self.tree.uncounted


def read_cost(table: Mapping[str, Any]) -> Cost:
    """Return the cost that `dataclasses.asdict` turned into a table."""
    return Cost(**{**table, "tree": _read_node(table["tree"])})


def _read_node(table: Mapping[str, Any]) -> Node:
    children, uncounted = tuple(map(_read_node, table["children"])), tuple(table["uncounted"])
    return Node(**{**table, "children": children, "uncounted": uncounted})
