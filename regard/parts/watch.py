"""watch(): record what attentions see while a model computes, to read their weights.

An attention reports its inputs and outputs (`Record`); the model computes as usual. Weights are computed from a record
when they are read, for one head or for all, so a record is linear in the length of the input.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import cached_property
from threading import Lock
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.arguments import check_text
from regard.errors import InputError, RegardError, choices
from regard.html_table import html_table
from regard.parts.attend import Explanation, Keys, Mixed, Queries, Terms, Values, attend, explain
from regard.parts.cache import Memo
from regard.parts.edit import OutputPatch, WeightEdit, edits_of, is_edited
from regard.parts.mask import explicit_positions

SHOWN_NAMES = 6  # of the attentions on a tape, in its text


@dataclass(frozen=True, eq=False)
class Record:
    """One call of one attention: its inputs and its output. Rows of weights are queries, and sum to 1.

    Weights are computed on first use, so that a record is linear in the length of the input. A score or a bias with
    parameters uses their values at that time: read the weights before the next update.
    """

    query: Queries
    key: Keys
    value: Values
    mixed: Mixed
    terms: Terms

    def __repr__(self) -> str:
        rows, heads, queries = self.query.shape[:3]
        return f"<a call: {rows} rows, {heads} heads, {queries} queries, {self.key.shape[2]} keys>"

    @cached_property
    def weights(self) -> Float[Tensor, "B H T S"]:
        """Return the weights of all heads."""
        with torch.set_grad_enabled(self.query.requires_grad):
            return explain(self.query, self.key, self.terms).weights

    def explain(self, head: int) -> Explanation:
        """Explain the weights of one head only."""
        with torch.set_grad_enabled(self.query.requires_grad):
            return explain(self.query[:, head, None], self.key_of(head), self.terms, head)

    def key_of(self, head: int) -> Float[Tensor, "B 1 S E"]:
        """Return the keys of a query head."""
        return self.key[:, head * self.key.shape[1] // self.query.shape[1], None]

    def columns(self) -> Int[Tensor, "_b S"]:
        """Return the column of each key in a joined matrix: its position, or -1 for an empty slot.

        Where tokens share a position (packed documents, agents at the same time), it is the index of the key.
        """
        positions = explicit_positions(self.terms.key_positions, self.key.shape[2], self.key.device)
        ordered = positions.sort(-1).values
        if ((ordered.diff(dim=-1) == 0) & (ordered[:, 1:] >= 0)).any():
            return torch.where(positions >= 0, torch.arange(positions.shape[1], device=positions.device), -1)
        return positions

    def spread(self, width: int) -> Float[Tensor, "B H T _W"]:
        """Return the weights in `width` columns, each key in the column of its position."""
        columns = self.columns()
        columns = torch.where(columns >= 0, columns, width)[:, None, None].expand_as(self.weights)
        empty = self.weights.new_zeros(*self.weights.shape[:3], width + 1)
        return empty.scatter_add(3, columns, self.weights)[..., :width]


class Watchable(nn.Module):
    """An attention that can be watched and edited."""

    def attend(self, query: Queries, key: Keys, value: Values, terms: Terms, memo: Memo | None = None) -> Mixed:
        """Attend, with the edits of `intervene`, and record the call inside `watch`."""
        if torch.compiler.is_compiling():  # `watch` and `intervene` run a model uncompiled
            return attend(query, key, value, terms, memo)
        edits = edits_of(self)
        if edits:
            positions = terms.positions(query, key)
            for edit in edits:
                edit.seen.note(*positions)
            terms = terms._replace(edits=tuple(edit for edit in edits if isinstance(edit, WeightEdit)))
        mixed = attend(query, key, value, terms, memo)
        for edit in edits:
            mixed = edit.apply(mixed, positions[0]) if isinstance(edit, OutputPatch) else mixed
        if calls := _WATCHED.get().get(self):
            record = _record(query, key, value, mixed, terms)
            for each in calls:
                each.append(record)
        return mixed


def _record(query: Queries, key: Keys, value: Values, mixed: Mixed, terms: Terms) -> Record:
    """Return the record of a call, with copies of what a cache writes into later."""
    positions = (terms.query_positions, terms.key_positions)
    queries, keys = (None if each is None else each.clone() for each in positions)
    return Record(query, key.clone(), value.clone(), mixed, terms._replace(query_positions=queries, key_positions=keys))


# Which attentions are watched, and the lists that their calls are added to: one for each `watch` around the call.
_WATCHED: ContextVar[dict[Watchable, tuple[list[Record], ...]]] = ContextVar("watched", default={})  # noqa: B039


class Tape(dict[str, list[Record]]):
    """The recorded calls of each attention by its name, in order."""

    def __repr__(self) -> str:
        names = ", ".join([*list(self)[:SHOWN_NAMES], *(["..."] if len(self) > SHOWN_NAMES else [])])
        calls = sum(map(len, self.values()))
        return f"<tape of {len(self)} attentions and {calls} calls: {names}; read tape.weights(name)>"

    def _repr_html_(self) -> str:
        head = ("tape.weights(...)", "calls", "rows", "heads", "queries", "keys")
        rows = [
            (name, len(calls), *(calls[0].query.shape[:2] if calls else ("", "")), *_lengths(calls))
            for name, calls in self.items()
        ]
        return html_table(head, rows)

    def weights(self, name: str) -> Float[Tensor, "B H T S"]:
        """Join the calls of one attention, such as the steps of a decoder; column j is the key at position j."""
        if name not in self:
            raise RegardError(f"no attention {name!r} was watched; {choices(name, self)}")
        calls = self[name]
        if not calls:
            called = ", ".join(other for other, records in self.items() if records)
            raise RegardError(f"{name!r} was not called inside the `with watch(...)` block; these were: {called}")
        if len({call.query.shape[:2] for call in calls}) > 1:
            raise RegardError(f"the calls of {name!r} had batches of different sizes; read them one by one: tape[name]")
        width = max(int(call.columns().max()) + 1 for call in calls)
        return torch.cat([call.spread(width) for call in calls], dim=2)


def _lengths(calls: list[Record]) -> tuple[int | str, int | str]:
    """Return how many queries all calls have, and how many keys the last one."""
    return (sum(call.query.shape[2] for call in calls), calls[-1].key.shape[2]) if calls else ("", "")


@runtime_checkable
class HasModule(Protocol):
    """A loaded model, which has its torch module as `model`."""

    @property
    def model(self) -> nn.Module:
        """The module."""


def module_of(model: object) -> nn.Module:
    """Return the torch module that the user means: the model itself, or that of a loaded model."""
    module = model if isinstance(model, nn.Module) else getattr(model, "model", None)
    if not isinstance(module, nn.Module):
        raise InputError(f"{model!r} is not a model; use a torch module, or what regard.load(...) returned")
    return module


@contextmanager
def watch(model: "nn.Module | HasModule", only: str = "*") -> Iterator[Tape]:
    """Record every call of every attention of `model` in this thread inside the `with`, to read its weights.

    `model` is a module, or what `regard.load` returned. `only` chooses attentions by name, with `*` as a wildcard:
    `watch(model, "decoder.*.cross")`. The results of the model stay the same; a compiled model runs uncompiled while it
    is watched.
    """
    modules = ((_name(path), module) for path, module in module_of(model).named_modules())
    every = {name: module for name, module in modules if isinstance(module, Watchable)}
    chosen = {name: module for name, module in every.items() if fnmatch(name, check_text(only, "only"))}
    if not every:
        raise RegardError("nothing to watch: the model has no attention")
    if not chosen:
        raise RegardError(f"no attention matches {only!r}; there are {', '.join(every)}")
    tape = Tape({name: [] for name in chosen})
    watched = dict(_WATCHED.get())
    for name, module in chosen.items():
        watched[module] = (*watched.get(module, ()), tape[name])
    token = _WATCHED.set(watched)
    try:
        with uncompiled:
            yield tape
    finally:
        _WATCHED.reset(token)
    if not any(tape.values()):
        raise RegardError("nothing was recorded: call the model inside the `with watch(...)` block")


class _Uncompiled:
    """Runs compiled modules uncompiled. The setting is global: the first thread makes it, the last one restores it."""

    def __init__(self) -> None:
        self.lock, self.inside, self.stack = Lock(), 0, ExitStack()

    def __enter__(self) -> None:
        with self.lock:
            if self.inside == 0:
                self.stack.enter_context(torch.compiler.set_stance("force_eager"))
            self.inside += 1

    def __exit__(self, *error: object) -> None:
        with self.lock:
            self.inside -= 1
            if self.inside == 0:
                self.stack.close()


uncompiled = _Uncompiled()


def is_observed() -> bool:
    """Return whether this thread watches or edits models, so that no captured or compiled step may replace them."""
    return bool(_WATCHED.get()) or is_edited()


def _name(path: str) -> str:
    """Return the path of a module without the wrappers of torch.compile."""
    return ".".join(part for part in path.split(".") if part != "_orig_mod")
