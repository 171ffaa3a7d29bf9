"""What attention keeps of the tokens so far: slots for keys and values, and who is in which.

A token's slot is its position modulo the size, so rows of different lengths share one tensor: padding (position -1)
goes to a spare slot at the end that nobody reads, and a slot that nothing was written to has position -1, which the
mask hides.

The rows that a row was repeated to are siblings and share one cache, with a slot for each of them at every position.
When they change places nothing is copied: a table says whose token each of them has at a position.
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from regard.errors import InputError
from regard.parts.mask import BeamMask

Kept = tuple[Tensor, ...]  # each (B, heads, tokens, width)
Memo = dict[Any, Any]  # what all layers need alike: masks by their rule, turns by their position


def once(memo: Memo | None, key: Any, make: Callable[[], Any]) -> Any:
    """Look up what was made for the key, or make it. A compiler finds by itself what is made twice."""
    if memo is None or torch.compiler.is_compiling():
        return make()
    if key not in memo:
        memo[key] = make()
    return memo[key]


def together(x: Float[Tensor, "_b H T E"], share: int) -> Float[Tensor, "_o H _t E"]:
    """Let siblings be one row, and what they have stand side by side in it."""
    return x.unflatten(0, (-1, share)).transpose(1, 2).flatten(2, 3)


def apart(x: Float[Tensor, "_o H _t E"], share: int) -> Float[Tensor, "_b H T E"]:
    """Let siblings be rows of their own again."""
    return x.unflatten(2, (share, -1)).transpose(1, 2).flatten(0, 1)


def origins(index: Int[Tensor, "_b"], share: int) -> Int[Tensor, "_o"]:
    """Give the rows that groups of siblings come from; the siblings of a group stay together."""
    return index[::share] // share


class Places:
    """Which token is in which slot of a cache; one for all caches of a model that have as many slots.

    With a `capacity` the slots are fixed (static shapes, for compiled steps); without one they grow by doubling; with
    a `window` they are a ring in which a token overwrites the one it can no longer see. As long as all rows have
    seen as many tokens, slots that grow need no table of positions.

    Where `share` siblings share a cache, sibling j writes into slot `share * s + j` instead of s.
    """

    def __init__(self, capacity: int | None = None, window: int | None = None) -> None:
        self.window = window if window is not None and (capacity is None or window < capacity) else None
        self.grows = capacity is None and self.window is None
        self.size = self.window or capacity or 0
        self.tokens = 0  # noted so far, by the longest row at most
        self.begins = True  # whether nothing came before the new tokens
        self.shared = False  # whether a `State` notes for many caches at once
        self.positions: Tensor | None = None  # of the token in each slot, (B, size + 1)
        self.slots: tuple[Tensor, Tensor] | slice = slice(0, 0)  # where the new tokens go: rows (B, 1) and slots (B, T)
        self.seen: Tensor | None = None  # the positions of all that the new tokens may look at; None: see `note`
        self.share = 1
        self.writers: Tensor | None = None  # which sibling wrote what a row has in each slot, (B * share, size)
        self.siblings: BeamMask | None = None  # the rule by which they look only at what they have
        self.memo: Memo = {}

    def note(self, positions: Int[Tensor, "B T"], begin: int | None = None) -> None:
        """Find slots for new tokens. If all rows are equally long, `begin` is the position of the first token.

        `seen` is None if no mask is needed but that of a causal pass: the tokens are the first, or there is only one.
        """
        T = positions.shape[1]
        positions = positions[:: self.share]  # siblings have the same
        self.memo = {}
        before = self.tokens
        self.begins = before == 0
        self._make_room(positions, before + T)
        if self.grows and self.positions is None and begin is not None and begin == before:
            self.slots = slice(self.share * before, self.share * self.tokens)
            self.seen = None if T == 1 or before == 0 else torch.arange(self.tokens, device=positions.device)[None]
            if self.share > 1:
                self._note_siblings(positions)
            return
        table = self._table(positions, before)
        slots = torch.where(positions >= 0, positions % self.size, self.size)
        if self.window is not None and T > 1:  # the ring forgets tokens that the first of the new ones still sees
            self.seen = torch.cat((table[:, : self.size], positions), 1)
            last = positions.max(1, keepdim=True).values
            slots = torch.where(positions > last - self.window, slots, self.size)
            table.scatter_(1, slots, positions)
        else:
            table.scatter_(1, slots, positions)
            self.seen = table[:, : self.tokens if self.grows else self.size]
        self.slots = torch.arange(len(slots), device=slots.device)[:, None], slots
        if self.share > 1:
            self._note_siblings(slots)

    def _note_siblings(self, slots: Int[Tensor, "B T"]) -> None:
        """Give each sibling a slot of its own, and note that what it has there is its own."""
        assert self.writers is not None
        if slots.shape[1] > 1:
            raise InputError("rows that share a cache read one token at a time")
        if (more := self.size - self.writers.shape[1]) > 0:
            self.writers = F.pad(self.writers, (0, more))
        siblings = torch.arange(self.share, device=slots.device)
        self.writers.scatter_(1, slots.repeat_interleave(self.share, 0), siblings.repeat(len(slots))[:, None])
        used = self.tokens if self.grows else self.size
        self.siblings = BeamMask(self.writers[:, :used].unflatten(0, (-1, self.share)))
        seen = torch.arange(used, device=slots.device)[None] if self.seen is None else self.seen
        self.seen = seen.repeat_interleave(self.share, 1)
        if not isinstance(self.slots, slice):
            self.slots = self.slots[0], self.share * slots + siblings

    def _make_room(self, positions: Tensor, tokens: int) -> None:
        """Count the new tokens; more slots if they grow, else refuse what does not fit."""
        if not self.grows and self.window is None and tokens > self.size:
            longest = positions if self.positions is None else torch.cat((self.positions, positions), 1)
            tokens = int(longest.max()) + 1  # padding was counted, too; count exactly only now, since that may wait
            if tokens > self.size:
                rule = f"token {tokens} does not fit into a cache of {self.size}"
                raise InputError(f"{rule}; start with a larger capacity")
        self.tokens = tokens
        if self.grows and tokens > self.size:
            self.size = max(tokens, 2 * self.size)

    def _table(self, positions: Tensor, before: int) -> Tensor:
        """Give the table, made or lengthened where needed."""
        B = len(positions)
        if self.positions is None:
            self.positions = positions.new_full((B, self.size + 1), -1)
            if before:  # so far it was known without a table
                self.positions[:, :before] = torch.arange(before, device=positions.device)
        elif self.positions.shape[1] <= self.size:
            more = self.size + 1 - self.positions.shape[1]
            self.positions = torch.cat((self.positions, positions.new_full((B, more), -1)), 1)
        return self.positions

    def reorder(self, index: Int[Tensor, "_b"]) -> None:
        """Let row i become what row index[i] was."""
        if self.writers is not None:
            stay = len(index) == len(self.writers)
            self.writers = self.writers.index_select(0, index)
            if stay:
                return
        if self.positions is not None:
            self.positions = self.positions.index_select(0, origins(index, self.share))

    def repeat(self, times: int, rows: int, device: torch.device) -> None:
        """Let each of so many rows become `times` siblings. What is there counts as written by the first of them."""
        assert self.share == 1 < times
        self.share = times
        self.writers = torch.zeros(rows * times, self.size, dtype=torch.long, device=device)

    def tensors(self) -> Kept:
        """The tables that there are."""
        return tuple(table for table in (self.positions, self.writers) if table is not None)

    def put(self, tensors: Kept) -> None:
        """Go on with other tables."""
        rest = list(tensors)
        self.positions = None if self.positions is None else rest.pop(0)
        self.writers = None if self.writers is None else rest.pop(0)


class Cache:
    """What attention keeps of the tokens so far, in slots that `Places` assigns; the last slot is a spare one."""

    def __init__(self, capacity: int | None = None, window: int | None = None) -> None:
        self.places = Places(capacity, window)
        self.kept: Kept = ()

    def update(self, kept: Kept, positions: Int[Tensor, "B T"]) -> tuple[Kept, Int[Tensor, "_b S"] | None]:
        """Write new tokens; return all that the new tokens may look at, and the positions of those (`Places.note`)."""
        places = self.places
        if not places.shared:
            places.note(positions)
        if places.share > 1:
            kept = tuple(together(each, places.share) for each in kept)
        self._make_room(kept, places.share * places.size)
        if isinstance(places.slots, slice):
            for old, new in zip(self.kept, kept, strict=True):
                old[:, :, places.slots] = new
            return tuple(old[:, :, : places.slots.stop] for old in self.kept), places.seen
        if places.window is not None and positions.shape[1] > 1:
            ring = tuple(torch.cat((o[:, :, : places.size], k), 2) for o, k in zip(self.kept, kept, strict=True))
            self._write(kept, *places.slots)
            return ring, places.seen
        self._write(kept, *places.slots)
        end = places.share * (places.tokens if places.grows else places.size)
        return tuple(old[:, :, :end] for old in self.kept), places.seen

    def _make_room(self, kept: Kept, size: int) -> None:
        """Make the slots, or more of them; what was the spare slot is written before anybody reads it."""
        if not self.kept:
            self.kept = tuple(k.new_zeros(*k.shape[:2], size + 1, k.shape[3]) for k in kept)
        elif (more := size + 1 - self.kept[0].shape[2]) > 0:
            self.kept = tuple(torch.cat((o, o.new_zeros(*o.shape[:2], more, o.shape[3])), 2) for o in self.kept)

    def _write(self, kept: Kept, rows: Tensor, slots: Tensor) -> None:
        for old, new in zip(self.kept, kept, strict=True):
            old[rows, :, slots] = new.transpose(1, 2).to(old.dtype)

    def reorder(self, index: Int[Tensor, "_b"]) -> None:
        """Let row i become what row index[i] was."""
        if not self.places.shared:
            self.places.reorder(index)
        share = self.places.share
        if share == 1 or len(index) != share * len(self.kept[0]):
            self.kept = tuple(old.index_select(0, origins(index, share)) for old in self.kept)

    def repeat(self, times: int) -> None:
        """Let each row become `times` siblings, which share its slots; each of them will need its own."""
        if not self.places.shared:
            self.places.repeat(times, len(self.kept[0]), self.kept[0].device)
        self.kept = tuple(_spread(old, times) for old in self.kept)

    def tensors(self) -> Kept:
        """The slots."""
        return self.kept

    def put(self, tensors: Kept) -> None:
        """Go on with other slots."""
        self.kept = tensors

    def nbytes(self) -> int:
        """Count the bytes of its slots, the spare one left out."""
        return sum(old[:, :, : self.places.share * self.places.size].nbytes for old in self.kept)


def _spread(old: Float[Tensor, "B H _s E"], times: int) -> Float[Tensor, "B H _t E"]:
    """Make each slot but the spare one the first of so many."""
    B, H, slots, E = old.shape
    new = old.new_zeros(B, H, (slots - 1) * times + 1, E)
    new[:, :, :-1:times] = old[:, :, :-1]
    return new
