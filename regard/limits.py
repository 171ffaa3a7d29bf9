"""Annotations that limit the values of config fields: ranges of numbers, and registries of names.

depth: Count                          # Annotated[int, Range(low=1, ...)]
activation: Annotated[str, ACTIVATIONS]
"""

from __future__ import annotations

import dataclasses
from collections import ChainMap
from collections.abc import Iterator, Mapping
from math import isfinite
from typing import Annotated, Any, TypeVar, get_origin

from regard.errors import RegardError, choices

T = TypeVar("T")


@dataclasses.dataclass(frozen=True)
class Range:
    """Annotation of a number with limits: at least `low` or more than `above`, and at most `high`."""

    low: int | float | None = None
    above: int | float | None = None
    high: int | float | None = None

    def __contains__(self, number: int | float) -> bool:
        low = self.low is None or number >= self.low
        above = self.above is None or number > self.above
        return low and above and (self.high is None or number <= self.high) and _is_finite(number)

    def __str__(self) -> str:
        low = f"at least {self.low}" if self.above is None else f"above {self.above}"
        if self.high in (None, MOST):
            return low
        return f"between {self.low} and {self.high}" if self.above is None else f"{low} and at most {self.high}"

    def rule(self, number: int | float) -> str:
        """Return the rule that a number outside the limits breaks."""
        if self.high == MOST and number > MOST:
            return f"at most {MOST}"
        return str(self) if _is_finite(number) else "a finite number"


@dataclasses.dataclass(frozen=True)
class NumberAsText:
    """Annotation of a text that may also be given as a whole number: the name or the number of a column."""


MOST = 2**31 - 1  # a sanity limit, which descriptions do not mention
Count = Annotated[int, Range(low=1, high=MOST)]
Depth = Annotated[int, Range(low=1, high=4096)]  # layers, which are built one by one
Times = Annotated[int, Range(low=0, high=MOST)]
Seed = Annotated[int, Range(low=0, high=2**63 - 1)]
Rate = Annotated[float, Range(low=0, high=1)]
Positive = Annotated[float, Range(above=0)]
NotNegative = Annotated[float, Range(low=0)]
ColumnName = Annotated[str, NumberAsText()]


def _is_finite(number: int | float) -> bool:
    return isinstance(number, int) or isfinite(number)  # a whole number may be too large for a float


class Registry(Mapping[str, T]):
    """Items of one sort by name: those of the package, and those that users add with `regard.register`.

    As the annotation of a text field, it limits the text to the registered names. Items of an `included`
    registry are found here, too.
    """

    _items: ChainMap[str, T]

    def __init__(self, sort: str, items: Mapping[str, T], included: Registry[T] | None = None) -> None:
        self.sort = sort  # what an item is called in messages: "score"
        self.included = included
        self._items = ChainMap({}, {} if included is None else included._items)
        for name, item in items.items():
            self.add(name, item)
        self._shipped = frozenset(items)

    def add(self, name: str, item: T) -> None:
        """Register an item. A definition that is run again (a notebook cell) replaces the earlier one."""
        old = self._items.get(name)
        if old is not None and (name in self._shipped or _definition(old) != _definition(item)):
            raise RegardError(f"there is already a {self.sort} with the name {name!r}; choose another name")
        self._items[name] = item

    def remove(self, name: str) -> None:
        """Forget an item that was added."""
        assert name not in self._shipped, f"{name!r} belongs to the package"
        del self._items[name]

    def added(self) -> dict[str, T]:
        """Return the items that users added, by name."""
        return {name: item for name, item in self._items.maps[0].items() if name not in self._shipped}

    def __getitem__(self, name: str) -> T:
        return self._items[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:  # an annotation must be hashable
        return id(self)

    def unknown(self, name: object) -> str:
        """Return the message for a name that is not registered."""
        remedy = "if it is your own, import the file that registers it (--import FILE)"
        return f"{name!r} is not a known {self.sort}; {choices(name, self)}; {remedy}"


def _definition(item: Any) -> tuple[str, str]:
    named = item if hasattr(item, "__qualname__") else type(item)
    return named.__module__, named.__qualname__


def note_of(type_: Any, sort: type[T]) -> T | None:
    """Return the annotation of one sort on a type; None if there is none."""
    notes = type_.__metadata__ if get_origin(type_) is Annotated else ()
    return next((note for note in notes if isinstance(note, sort)), None)
