"""The key-value cache of attention: what is kept of earlier tokens, in slots, and what a decode step sees of it.

A cache grows (its slots double), is static (`capacity` slots, for compiled steps) or a ring (`window` slots, where a
token overwrites the one that has left the window). Four classes share the work:

- `Cache` holds the tensors of one layer.
- `SlotTable` says which token is in which slot, for all caches of one kind in a model.
- `CacheStep` says what one decode step writes, reads and hides: immutable, computed once, shared by all layers.
- `CacheView` is the cache of one layer at one step. Attention extends it and gets a `View`: what it may look at.

A token's slot is its position modulo the number of slots, so rows of different lengths share one tensor. Padding
(position -1) is written to a spare slot at the end that is never read. An empty slot has position -1, which the mask
hides.

The beams of a row share one cache, with a slot for each beam at every position. Reordering beams copies nothing: a
table of owners says for each beam and position which beam wrote the token there.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from regard.errors import InputError
from regard.parts.mask import BeamMask, Causal, Documents, Padding, Prefix, Rule, Window, includes

Kept = tuple[Tensor, ...]  # each (B, heads, tokens, width)
Memo = dict[Any, Any]  # what layers have in common: additive masks, rotations


def memoize(memo: Memo | None, key: Any, make: Callable[[], Any]) -> Any:
    """Return memo[key], computed on first use. torch.compile removes repeated work itself and needs no memo."""
    if memo is None or torch.compiler.is_compiling():
        return make()
    if key not in memo:
        memo[key] = make()
    return memo[key]


def fold_beams(x: Float[Tensor, "_rows H T E"], beams: int) -> Float[Tensor, "B H _t E"]:
    """Turn the beams of a row into more tokens of one row: (B beams) H T E -> B H (beams T) E."""
    return x.unflatten(0, (-1, beams)).transpose(1, 2).flatten(2, 3)


def unfold_beams(x: Float[Tensor, "B H _t E"], beams: int) -> Float[Tensor, "_rows H T E"]:
    """Turn the beams of a row back into rows: B H (beams T) E -> (B beams) H T E."""
    return x.unflatten(2, (beams, -1)).transpose(1, 2).flatten(0, 1)


def groups_of(index: Int[Tensor, "_rows"], beams: int) -> Int[Tensor, "_groups"]:
    """Return which group of beams each group of an index comes from; the beams of a row stay together."""
    return index[::beams] // beams


class View(NamedTuple):
    """What the queries of one call may look at. Positions None mean 0, 1, 2, ...; mask None hides nothing."""

    kept: Kept
    mask: Rule | None
    query_positions: Int[Tensor, "_b T"] | None
    key_positions: Int[Tensor, "_b S"] | None
    beams: int = 1  # that share the keys: their queries are folded into one row
    memo: Memo | None = None

    def fold(self, query: Float[Tensor, "_rows H T E"]) -> Float[Tensor, "B H _t E"]:
        """Fold the queries of beams that share keys."""
        return query if self.beams == 1 else fold_beams(query, self.beams)

    def unfold(self, mixed: Float[Tensor, "B H _t E"]) -> Float[Tensor, "_rows H T E"]:
        """Undo `fold` for the result."""
        return mixed if self.beams == 1 else unfold_beams(mixed, self.beams)


@dataclass(frozen=True, eq=False)
class Uncached:
    """Attention of tokens to themselves, without a cache."""

    mask: Rule | None
    positions: Int[Tensor, "B T"] | None
    memo: Memo | None = None

    def extend(self, kept: Kept) -> View:
        """Look at the new tokens only."""
        mask = self.mask if self.positions is None else Padding() & self.mask
        return View(kept, mask, self.positions, self.positions, memo=self.memo)


class CacheKind(NamedTuple):
    """What caches with the same slot table have in common: the number of slots (None: it grows), and whether a ring."""

    slots: int | None = None
    ring: bool = False


@dataclass(frozen=True, eq=False)
class CacheStep:
    """What one decode step does to the caches of one kind, the same in every layer.

    The step reads the first `read` slots after the new tokens are written. If `looks_at_new`, it reads the slots as
    they were before, followed by the new tokens themselves.
    """

    positions: Int[Tensor, "_rows T"]  # of the new tokens
    size: int  # slots that a cache needs, without the spare one
    write: slice | tuple[Tensor, Tensor]  # where the new tokens go: a range of slots, or rows (B, 1) and slots (B, T)
    read: int
    looks_at_new: bool
    mask: Rule | None
    query_positions: Int[Tensor, "B _t"] | None  # of folded queries, where beams share the cache
    key_positions: Int[Tensor, "_b S"] | None
    beams: int
    memo: Memo = field(default_factory=dict, repr=False)


class SlotTable:
    """Which token is in which slot, for all caches of one kind in a model.

    A growing cache of equally long rows needs no table of positions. Where `beams` share a cache, beam j of a row has
    slot `beams * s + j` where a single row has slot s.
    """

    def __init__(self, kind: CacheKind) -> None:
        self.grows, self.ring = kind.slots is None, kind.ring
        self.size = kind.slots or 0
        self.tokens = 0  # an upper bound on the tokens of any row
        self.beams = 1
        self.positions: Tensor | None = None  # of the token in each slot, (B, size + 1)
        self.owners: Tensor | None = None  # which beam wrote what a beam has in each slot, (B * beams, size + 1)

    def assign(self, positions: Int[Tensor, "_rows T"], mask: Rule | None, start: int | None) -> CacheStep:
        """Find slots for new tokens. If all rows are equally long, `start` is the position of the first new token."""
        self._check(positions, mask)
        before, T = self.tokens, positions.shape[1]
        rows = positions[:: self.beams]  # the beams of a row are at the same position
        self._reserve(rows, before + T)
        aligned = self.grows and self.positions is None and start is not None and start == before
        prefill = before == 0 and self.beams == 1
        looks_at_new = prefill or (self.ring and T > 1)  # in a ring, later tokens overwrite what the first one sees
        read = 0 if prefill else self.tokens if self.grows else self.size
        write: slice | tuple[Tensor, Tensor] = slice(self.beams * before, self.beams * self.tokens)
        keys: Tensor | None = None
        if not aligned:
            write, keys = self._write(rows, before, read, looks_at_new)
        queries: Tensor | None = rows
        if prefill and start == 0:
            queries, keys = None, None  # natural order, for which there is a causal kernel
        if T == 1 and not prefill and _sees_past(mask):
            mask = None  # nothing comes after the newest token, and a ring holds its window only
        elif self.ring:
            mask = Window(self.size) & mask
        if keys is not None and not includes(mask, Padding):
            mask = Padding() & mask
        if self.beams > 1:
            queries = positions.view(-1, self.beams)
            write, keys, mask = self._write_beams(rows, write, keys, mask)
        size, read = self.beams * self.size, self.beams * read
        return CacheStep(positions, size, write, read, looks_at_new, mask, queries, keys, self.beams)

    def _check(self, positions: Tensor, mask: Rule | None) -> None:
        if includes(mask, Documents):
            raise InputError("a cache holds one document per row; packed documents are for whole passes only")
        if self.beams > 1 and positions.shape[1] > 1:
            raise InputError(f"beams that share a cache read one token at a time, not {positions.shape[1]}")

    def _reserve(self, rows: Tensor, tokens: int) -> None:
        """Count the new tokens; double the slots of a growing cache, otherwise reject tokens that do not fit."""
        if not self.grows and not self.ring and tokens > self.size:
            longest = rows if self.positions is None else torch.cat((self.positions, rows), 1)
            tokens = int(longest.max()) + 1  # without padding; read only now, because this may synchronise
            if tokens > self.size:
                rule = f"token {tokens} does not fit into a cache of {self.size}"
                raise InputError(f"{rule}; start with a larger capacity")
        self.tokens = tokens
        if self.grows and tokens > self.size:
            self.size = max(tokens, 2 * self.size)

    def _write(self, rows: Tensor, before: int, read: int, looks_at_new: bool) -> tuple[tuple[Tensor, Tensor], Tensor]:
        """Enter new tokens into the table; return their slots, and the positions of the keys that the step reads."""
        table = self._table(rows, before)
        slots = torch.where(rows >= 0, rows % self.size, self.size)
        if looks_at_new:
            keys = rows if read == 0 else torch.cat((table[:, :read], rows), 1)
        if self.ring and rows.shape[1] > 1:  # of several tokens for one slot, only the last is written
            last = rows.max(1, keepdim=True).values
            slots = torch.where(rows > last - self.size, slots, self.size)
        table.scatter_(1, slots, rows)
        if not looks_at_new:
            keys = table[:, :read]
        return (torch.arange(len(slots), device=slots.device)[:, None], slots), keys

    def _table(self, rows: Tensor, before: int) -> Tensor:
        """Return the table of positions; create or lengthen it if needed."""
        if self.positions is None:
            self.positions = rows.new_full((len(rows), self.size + 1), -1)
            if before:  # until now they were 0, 1, 2, ... in every row
                self.positions[:, :before] = torch.arange(before, device=rows.device)
        elif (more := self.size + 1 - self.positions.shape[1]) > 0:
            self.positions = torch.cat((self.positions, rows.new_full((len(rows), more), -1)), 1)
        return self.positions

    def _write_beams(
        self, rows: Tensor, write: slice | tuple[Tensor, Tensor], keys: Tensor | None, mask: Rule | None
    ) -> tuple[slice | tuple[Tensor, Tensor], Tensor, Rule]:
        """Adapt a step to beams: each writes to a slot of its own, is recorded as its owner, and sees only its text."""
        assert self.owners is not None
        if (more := self.size + 1 - self.owners.shape[1]) > 0:
            self.owners = F.pad(self.owners, (0, more))
        beams = torch.arange(self.beams, device=rows.device)
        slots = rows if isinstance(write, slice) else write[1]
        self.owners.scatter_(1, slots.repeat_interleave(self.beams, 0), beams.repeat(len(slots))[:, None])
        used = self.tokens if self.grows else self.size
        if keys is None:
            keys = torch.arange(used, device=rows.device)[None]
        if not isinstance(write, slice):
            write = write[0], (self.beams * slots + beams).clamp(max=self.beams * self.size)  # padding: the spare slot
        own = BeamMask(self.owners[:, :used].unflatten(0, (-1, self.beams)))
        return write, keys.repeat_interleave(self.beams, 1), own & mask

    def reorder(self, index: Int[Tensor, "_rows"]) -> None:
        """Make row i what row index[i] was."""
        if self.owners is not None:
            same = len(index) == len(self.owners)
            self.owners = self.owners.index_select(0, index)
            if same:  # beams change places within their row only
                return
        if self.positions is not None:
            self.positions = self.positions.index_select(0, groups_of(index, self.beams))

    def repeat(self, times: int, rows: int, device: torch.device) -> None:
        """Make each row `times` beams. What is in the slots counts as written by the first of them."""
        assert self.beams == 1 < times
        self.beams = times
        self.owners = torch.zeros(rows * times, self.size + 1, dtype=torch.long, device=device)

    def tensors(self) -> Kept:
        """Return the tables that exist."""
        return tuple(table for table in (self.positions, self.owners) if table is not None)

    def put(self, tensors: Kept) -> None:
        """Replace the tables, in the order of `tensors`."""
        rest = list(tensors)
        self.positions = None if self.positions is None else rest.pop(0)
        self.owners = None if self.owners is None else rest.pop(0)


def _sees_past(mask: Rule | None) -> bool:
    """Return whether every rule lets a query see all earlier tokens of its row."""
    return mask is None or all(isinstance(rule, Causal | Prefix | Padding) for rule in mask.rules())


class Cache:
    """What is kept of the tokens so far, in the slots that a `SlotTable` assigns; the last slot is the spare one."""

    def __init__(self, capacity: int | None = None, window: int | None = None) -> None:
        ring = window is not None and (capacity is None or window < capacity)
        self.kind = CacheKind(window if ring else capacity, ring)
        self.kept: Kept = ()
        self.beams = 1

    def extend(self, kept: Kept, step: CacheStep) -> View:
        """Write what is kept of the new tokens; return what they may look at."""
        if step.beams > 1:
            kept = tuple(fold_beams(each, step.beams) for each in kept)
        self._reserve(kept, step.size)
        seen = kept
        if step.looks_at_new and step.read:
            old = tuple(slots[:, :, : step.read] for slots in self.kept)
            seen = tuple(torch.cat(pair, 2) for pair in zip(old, kept, strict=True))
        self._write(kept, step.write)
        if not step.looks_at_new:
            seen = tuple(slots[:, :, : step.read] for slots in self.kept)
        return View(seen, step.mask, step.query_positions, step.key_positions, step.beams, step.memo)

    def _reserve(self, kept: Kept, size: int) -> None:
        """Create the slots, or add more. The old spare slot is overwritten before it is read."""
        if not self.kept:
            self.kept = tuple(k.new_zeros(*k.shape[:2], size + 1, k.shape[3]) for k in kept)
        elif (more := size + 1 - self.kept[0].shape[2]) > 0:
            self.kept = tuple(torch.cat((o, o.new_zeros(*o.shape[:2], more, o.shape[3])), 2) for o in self.kept)

    def _write(self, kept: Kept, slots: slice | tuple[Tensor, Tensor]) -> None:
        for old, new in zip(self.kept, kept, strict=True):
            if isinstance(slots, slice):
                old[:, :, slots] = new
            else:
                old[slots[0], :, slots[1]] = new.transpose(1, 2).to(old.dtype)

    def reorder(self, index: Int[Tensor, "_rows"]) -> None:
        """Make row i what row index[i] was."""
        if self.beams == 1 or len(index) != self.beams * len(self.kept[0]):
            groups = groups_of(index, self.beams)
            self.kept = tuple(old.index_select(0, groups) for old in self.kept)

    def repeat(self, times: int) -> None:
        """Make each row `times` beams that share its slots; every beam will write to slots of its own."""
        self.beams *= times
        self.kept = tuple(_spread(old, times) for old in self.kept)

    def tensors(self) -> Kept:
        """Return the slots."""
        return self.kept

    def put(self, tensors: Kept) -> None:
        """Replace the slots."""
        self.kept = tensors

    def nbytes(self) -> int:
        """Count the bytes of the slots, without the spare one."""
        return sum(old[:, :, :-1].nbytes for old in self.kept)


def _spread(old: Float[Tensor, "B H _s E"], times: int) -> Float[Tensor, "B H _t E"]:
    """Replace every slot but the spare one by `times` slots, one for each beam; the first gets what was there."""
    B, H, slots, E = old.shape
    new = old.new_zeros(B, H, (slots - 1) * times + 1, E)
    new[:, :, :-1:times] = old[:, :, :-1]
    return new


@dataclass(frozen=True, eq=False)
class CacheView:
    """The cache of one layer at one decode step."""

    cache: Cache
    step: CacheStep

    @property
    def positions(self) -> Int[Tensor, "_rows T"]:
        """The positions of the new tokens."""
        return self.step.positions

    @property
    def memo(self) -> Memo:
        """What other layers of this step have computed already."""
        return self.step.memo

    def extend(self, kept: Kept) -> View:
        """Write what is kept of the new tokens; return what they may look at."""
        return self.cache.extend(kept, self.step)
