"""What is remembered between steps: caches of keys and values, a fixed memory, hidden vectors.

Every kind can `reorder` its rows, which is all that beam search asks of it. In a cache, a token's slot is its
position modulo the size, so rows of different lengths share one tensor: padding (position -1) goes to a spare slot
at the end that nobody reads, and a slot that nothing was written to has position -1, which the mask hides.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.errors import InputError, too_long

Kept = tuple[Tensor, ...]  # each (B, heads, tokens, width)


@dataclass
class Hidden:
    """Vectors that a step replaces: the state of a recurrence, the last inputs of a convolution."""

    values: tuple[Tensor, ...]

    def reorder(self, index: Int[Tensor, "B"]) -> None:
        """Let row i become what row index[i] was."""
        self.values = tuple(value.index_select(0, index) for value in self.values)

    def nbytes(self) -> int:
        """Count the bytes it holds."""
        return sum(value.nbytes for value in self.values)


@dataclass
class Memory:
    """Keys and values of a source: computed once, the same at every step."""

    keys: Float[Tensor, "B _K S _E"]
    values: Float[Tensor, "B _K S _G"]
    positions: Int[Tensor, "_B S"] | None

    def reorder(self, index: Int[Tensor, "B"]) -> None:
        """Let row i become what row index[i] was."""
        self.keys, self.values = self.keys.index_select(0, index), self.values.index_select(0, index)
        if self.positions is not None and len(self.positions) > 1:
            self.positions = self.positions.index_select(0, index)

    def nbytes(self) -> int:
        """Count the bytes it holds."""
        return self.keys.nbytes + self.values.nbytes


class Cache:
    """What attention keeps of the tokens so far, in `size` slots.

    Three uses of one idea: with a `capacity` the slots are fixed (static shapes, for compiled steps); without one
    they grow by doubling; with a `window` they are a ring in which a token overwrites the one it can no longer see.
    """

    def __init__(self, capacity: int | None = None, window: int | None = None) -> None:
        self.window = window if window is not None and (capacity is None or window < capacity) else None
        self.grows = capacity is None and self.window is None
        self.size = self.window or capacity or 0
        self.tokens = 0  # written so far, by the longest row at most
        self.kept: Kept = ()
        self.positions: Tensor | None = None

    def update(self, kept: Kept, positions: Int[Tensor, "B T"]) -> tuple[Kept, Int[Tensor, "B S"]]:
        """Write new tokens; return all that the new tokens may look at, and the positions of those."""
        T = positions.shape[1]
        old, old_positions = self._slots(kept, positions, self.tokens + T)
        slots = torch.where(positions >= 0, positions % self.size, self.size)
        if self.window is not None and T > 1:  # the ring forgets tokens that the first of the new ones still sees
            seen = tuple(torch.cat((o[:, :, : self.size], k), 2) for o, k in zip(old, kept, strict=True))
            seen_positions = torch.cat((old_positions[:, : self.size], positions), 1)
            last = positions.max(1, keepdim=True).values
            slots = torch.where(positions > last - self.window, slots, self.size)
            self._write(old, old_positions, kept, positions, slots)
        else:
            self._write(old, old_positions, kept, positions, slots)
            end = self.tokens if self.grows else self.size
            seen, seen_positions = tuple(o[:, :, :end] for o in old), old_positions[:, :end]
        return seen, seen_positions

    def _slots(self, kept: Kept, positions: Tensor, tokens: int) -> tuple[Kept, Tensor]:
        """Make room: on first use, and when a growing cache is full."""
        if not self.grows and self.window is None and tokens > self.size:
            longest = positions if self.positions is None else torch.cat((self.positions, positions), 1)
            tokens = int(longest.max()) + 1  # padding was counted, too; count exactly only now, since that may wait
            if tokens > self.size:
                rule = f"token {tokens} does not fit into a cache of {self.size}"
                raise InputError(f"{rule}; start with a larger capacity")
        self.tokens = tokens
        size = max(self.size, tokens, 2 * self.size) if self.grows and tokens > self.size else self.size
        if self.positions is None:
            self.kept = tuple(k.new_zeros(*k.shape[:2], size + 1, k.shape[3]) for k in kept)
            self.positions = positions.new_full((len(positions), size + 1), -1)
        elif size > self.size:
            more = size - self.size
            self.kept = tuple(torch.cat((o, o.new_zeros(*o.shape[:2], more, o.shape[3])), 2) for o in self.kept)
            fill = self.positions.new_full((len(positions), more), -1)
            self.positions = torch.cat((self.positions, fill), 1)
        self.size = size
        return self.kept, self.positions

    def _write(self, old: Kept, old_positions: Tensor, kept: Kept, positions: Tensor, slots: Tensor) -> None:
        rows = torch.arange(len(slots), device=slots.device)[:, None]
        for o, k in zip(old, kept, strict=True):
            o[rows, :, slots] = k.transpose(1, 2).to(o.dtype)
        old_positions[rows, slots] = positions

    def reorder(self, index: Int[Tensor, "B"]) -> None:
        """Let row i become what row index[i] was."""
        if self.positions is not None:
            self.kept = tuple(o.index_select(0, index) for o in self.kept)
            self.positions = self.positions.index_select(0, index)

    def nbytes(self) -> int:
        """Count the bytes of its slots, the spare one left out."""
        return sum(o[:, :, : self.size].nbytes for o in self.kept)


LayerState = Hidden | Memory | Cache


def check_lengths(tokens: Int[Tensor, "B T"], lengths: Int[Tensor, "_B"] | None, least: int) -> None:
    """Refuse lengths that do not fit their rows; their values only where that needs no waiting for an accelerator."""
    if lengths is None:
        return
    B, T = tokens.shape
    if lengths.shape != (B,):
        raise InputError(f"{B} rows need {B} lengths, not lengths of shape {tuple(lengths.shape)}")
    if torch.compiler.is_compiling() or lengths.device.type != "cpu" or B == 0:
        return
    if int(lengths.min()) < least or int(lengths.max()) > T:
        raise InputError(f"lengths {lengths.tolist()} must be between {least} and the {T} tokens of a row")


@dataclass
class State:
    """What a whole model remembers: a dict for each layer, and how many tokens each row has seen.

    `longest` is how many a row may see, if there is a limit; `tokens` is an upper bound of what any has seen.
    """

    layers: list[dict[str, LayerState]]
    length: Int[Tensor, "B"]
    longest: int | None = None
    tokens: int = 0

    def advance(self, tokens: Int[Tensor, "B T"], lengths: Int[Tensor, "B"] | None) -> Int[Tensor, "B T"]:
        """Give the positions of the next tokens (the first `lengths` of each row are real), and count them."""
        check_lengths(tokens, lengths, least=0)
        self.check_room(tokens.shape[1] if lengths is None else lengths, tokens.shape[1])
        self.tokens += tokens.shape[1]
        steps = torch.arange(tokens.shape[1], device=tokens.device)
        positions = self.length[:, None] + steps
        if lengths is None:
            self.length = self.length + tokens.shape[1]
            return positions
        self.length = self.length + lengths
        return torch.where(steps < lengths[:, None], positions, -1)

    def check_room(self, new: Tensor | int, most: int) -> None:
        """Refuse tokens beyond the position table; the device is only asked once the upper bound is beyond it."""
        if self.longest is None or self.tokens + most <= self.longest or torch.compiler.is_compiling():
            return
        needed = int((self.length + new).max())
        if needed > self.longest:
            raise InputError(too_long(needed, self.longest))

    def reorder(self, index: Int[Tensor, "B"]) -> None:
        """Let row i become what row index[i] was."""
        self.length = self.length.index_select(0, index)
        for layer in self.layers:
            for part in layer.values():
                part.reorder(index)

    def nbytes(self) -> int:
        """Count the bytes it holds."""
        return sum(part.nbytes() for layer in self.layers for part in layer.values())
