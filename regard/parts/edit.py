"""Edits of attention: weights that are replaced after the softmax, and outputs of heads that are replaced before W_O.

`regard.intervene` makes them (`models/intervention.py`). An edit finds queries and keys by their positions, so that it
does the same in a whole pass, in decode steps with a cache, and in beams. A query that may not look at the key that an
edit asks for keeps its own weights. Rows of weights that an edit leaves as they are keep the result of the fast kernel,
so that an edit that changes nothing changes no bit.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

Weights = Float[Tensor, "B H T S"]


class EditedCall(NamedTuple):
    """The call of an attention that is edited: the positions of its queries and keys, and who may look at whom.

    `first` is the number of the first head given; padding and empty slots have position -1.
    """

    queries: Int[Tensor, "_b T"]
    keys: Int[Tensor, "_c S"]
    allowed: Bool[Tensor, "_B 1 _T S"] | None
    first: int = 0


@dataclass(eq=False)
class Seen:
    """What the calls inside a `with` had: whether there were any, and their last positions."""

    calls: int = 0
    query: int = -1
    key: int = -1

    def note(self, queries: Tensor, keys: Tensor | None = None) -> None:
        """Note the positions of one call."""
        self.calls += 1
        self.query = max(self.query, int(queries.max()))
        if keys is not None:
            self.key = max(self.key, int(keys.max()))


@dataclass(frozen=True, eq=False)
class WeightEdit:
    """Replaces the weights of some heads (None: all), for queries at some positions (None: all)."""

    heads: tuple[int, ...] | None = None
    positions: tuple[int, ...] | None = None
    seen: Seen = field(default_factory=Seen)

    def replaced(self, weights: Weights, call: EditedCall) -> Weights:
        """Return what all weights would be, as if every head and query were chosen."""
        raise NotImplementedError

    def apply(self, weights: Weights, call: EditedCall) -> Weights:
        """Replace the weights of the chosen heads and queries."""
        chosen = self.chosen(call, weights.shape[1])
        return torch.where(chosen, self.replaced(weights, call).to(weights.dtype), weights)

    def chosen(self, call: EditedCall, heads: int) -> Bool[Tensor, "_b _H T 1"]:
        """Return which heads and queries are chosen."""
        every = torch.ones_like(call.queries, dtype=torch.bool)
        queries = every if self.positions is None else among(call.queries, self.positions)
        chosen = queries[:, None, :, None]
        if self.heads is None:
            return chosen
        numbers = torch.arange(call.first, call.first + heads, device=call.queries.device)
        return chosen & among(numbers, self.heads)[None, :, None, None]


class SwitchOff(WeightEdit):
    """All weights are 0, so the output of the head is 0."""

    def replaced(self, weights: Weights, call: EditedCall) -> Weights:
        """Return zeros."""
        return torch.zeros_like(weights)


@dataclass(frozen=True, eq=False)
class SwitchOffByRow(WeightEdit):
    """Heads that are off in some rows of a batch only, so that one pass measures the model without each of them."""

    off: Bool[Tensor, "B H"] = field(default_factory=lambda: torch.zeros(1, 1, dtype=torch.bool))

    def chosen(self, call: EditedCall, heads: int) -> Bool[Tensor, "B _h 1 1"]:
        """Return which heads are off in each row."""
        return self.off[:, call.first : call.first + heads, None, None]

    def replaced(self, weights: Weights, call: EditedCall) -> Weights:
        """Return zeros."""
        return torch.zeros_like(weights)


class LookEverywhere(WeightEdit):
    """Every key that the query may look at gets the same weight."""

    def replaced(self, weights: Weights, call: EditedCall) -> Weights:
        """Return 1 / n for n visible keys."""
        visible = torch.ones_like(weights) if call.allowed is None else call.allowed.to(weights.dtype)
        return (visible / visible.sum(-1, keepdim=True).clamp(min=1)).expand_as(weights)


@dataclass(frozen=True, eq=False)
class LookAt(WeightEdit):
    """One key gets the weight 1: that at position `key`, or `back` positions before the query.

    Several keys at this position (the agents of a scene) share it equally.
    """

    key: int | None = None
    back: int = 0

    def replaced(self, weights: Weights, call: EditedCall) -> Weights:
        """Return weights of 1 for the key; a query that may not look at it keeps its own."""
        keys = call.keys[:, None, None, :]
        wanted = call.queries[:, None, :, None] - self.back if self.key is None else self.key
        found = visible_keys((keys == wanted) & (keys >= 0), call)
        shares = found.to(weights.dtype) / found.sum(-1, keepdim=True).clamp(min=1)
        return torch.where(found.any(-1, keepdim=True), shares, weights)


@dataclass(frozen=True, eq=False)
class SetWeight(WeightEdit):
    """The weight of the key at position `key` gets a value; the other weights are scaled, so that the sum stays 1."""

    key: int = 0
    value: float = 0.0

    def replaced(self, weights: Weights, call: EditedCall) -> Weights:
        """Return a' = value at the key and a' = a (1 - value) / (1 - a_key) elsewhere.

        If the key had all of the weight, the other visible keys share 1 - value equally. Several keys at this position
        share the value.
        """
        here = visible_keys(call.keys[:, None, None, :] == self.key, call).expand_as(weights)
        value = torch.as_tensor(self.value, dtype=weights.dtype, device=weights.device)
        old = (weights * here).sum(-1, keepdim=True)
        others = visible_keys(call.keys[:, None, None, :] >= 0, call) & ~here
        equal = others / others.sum(-1, keepdim=True).clamp(min=1)
        rest = torch.where(old < 1, weights * (1 - value) / (1 - old), (1 - value) * equal)
        edited = torch.where(here, value / here.sum(-1, keepdim=True).clamp(min=1), rest)
        return torch.where(here.any(-1, keepdim=True) & (old != value), edited, weights)


def visible_keys(keys: Bool[Tensor, "_b 1 _T S"], call: EditedCall) -> Bool[Tensor, "_B 1 _t S"]:
    """Return which of these keys the queries may look at."""
    return keys if call.allowed is None else keys & call.allowed


def among(numbers: Int[Tensor, "*shape"], chosen: Iterable[int]) -> Bool[Tensor, "*shape"]:
    """Return which numbers are among the chosen."""
    return torch.isin(numbers, torch.tensor(list(chosen), device=numbers.device, dtype=numbers.dtype))


@dataclass(frozen=True, eq=False)
class OutputPatch:
    """Replaces the outputs of some heads, before W_O, for queries at some positions (None: all)."""

    heads: tuple[int, ...]
    positions: tuple[int, ...] | None
    vectors: Float[Tensor, "_H _P G"]  # of each head, and of each position or the same for all
    seen: Seen = field(default_factory=Seen)

    def apply(self, mixed: Float[Tensor, "B H T G"], queries: Int[Tensor, "_b T"]) -> Float[Tensor, "B H T G"]:
        """Return the outputs with the vectors in their places."""
        heads = torch.tensor(self.heads, dtype=torch.long, device=mixed.device)
        patched = patch(mixed[:, heads], self.vectors, queries[:, None], self.positions)
        return mixed.index_copy(1, heads, patched)


@dataclass(frozen=True, eq=False)
class VectorPatch:
    """Replaces the vectors of a sequence at some positions (None: all), where they enter or leave a module."""

    positions: tuple[int, ...] | None
    vectors: Float[Tensor, "_P D"]  # of each position, or the same for all
    seen: Seen = field(default_factory=Seen)

    def apply(self, x: Float[Tensor, "B T D"], positions: Int[Tensor, "_b T"]) -> Float[Tensor, "B T D"]:
        """Return the vectors with the others in their places; if they are equal, the very same tensor."""
        self.seen.note(positions)
        patched = patch(x, self.vectors, positions, self.positions)
        return x if torch.equal(patched, x) else patched


def patch(
    x: Float[Tensor, "*rows T D"],
    vectors: Float[Tensor, "*some _P D"],
    at: Int[Tensor, "*other T"],
    positions: tuple[int, ...] | None,
) -> Float[Tensor, "*rows T D"]:
    """Replace the vectors of x whose position is among `positions` (None: all)."""
    vectors = vectors.to(x)
    if positions is None:
        return vectors.expand_as(x)
    for number, position in enumerate(positions):
        vector = vectors[..., min(number, vectors.shape[-2] - 1), None, :]
        x = torch.where((at == position)[..., None], vector, x)
    return x


Edit = WeightEdit | OutputPatch | VectorPatch

# What is edited in this thread: the edits of each module, those of the outermost `with` first.
_EDITED: ContextVar[dict[nn.Module, tuple[Edit, ...]]] = ContextVar("edited", default={})  # noqa: B039


def edits_of(module: nn.Module) -> tuple[Edit, ...]:
    """Return the edits of a module in this thread."""
    return _EDITED.get().get(module, ())


def is_edited() -> bool:
    """Return whether any module is edited in this thread."""
    return bool(_EDITED.get())


@contextmanager
def edited(edits: Iterable[tuple[nn.Module, Edit]]) -> Iterator[None]:
    """Edit modules in this thread inside the `with`, after the edits that are active already."""
    active = dict(_EDITED.get())
    for module, edit in edits:
        active[module] = (*active.get(module, ()), edit)
    token = _EDITED.set(active)
    try:
        yield
    finally:
        _EDITED.reset(token)
