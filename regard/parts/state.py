"""What is remembered between steps: caches of keys and values, a fixed memory, hidden vectors; and all of a model.

Every kind can `repeat` and `reorder` its rows, which is all that beam search asks of it.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.errors import InputError, too_long
from regard.parts.cache import Cache, Kept, Memo, Places, origins


@dataclass
class Hidden:
    """Vectors that a step replaces: the state of a recurrence, the last inputs of a convolution."""

    values: tuple[Tensor, ...]

    def reorder(self, index: Int[Tensor, "_b"]) -> None:
        """Let row i become what row index[i] was."""
        self.values = tuple(value.index_select(0, index) for value in self.values)

    def repeat(self, times: int) -> None:
        """Let each row become `times` neighbouring rows."""
        self.values = tuple(value.repeat_interleave(times, 0) for value in self.values)

    def tensors(self) -> Kept:
        """All that a step may change."""
        return self.values

    def put(self, tensors: Kept) -> None:
        """Go on with other tensors."""
        self.values = tensors

    def nbytes(self) -> int:
        """Count the bytes it holds."""
        return sum(value.nbytes for value in self.values)


@dataclass
class Memory:
    """Keys and values of a source: computed once, the same at every step.

    `share` neighbouring rows write about the same source and look at one memory.
    """

    keys: Float[Tensor, "B _K S _E"]
    values: Float[Tensor, "B _K S _G"]
    positions: Int[Tensor, "_B S"] | None
    share: int = 1
    memo: Memo = field(default_factory=dict, repr=False)  # what was worked out once for all steps and layers

    def reorder(self, index: Int[Tensor, "_b"]) -> None:
        """Let row i become what row index[i] was. Where rows share, only those of one source change places."""
        if self.share > 1:
            if len(index) == self.share * len(self.keys):
                return
            index = origins(index, self.share)
        self.memo = {}
        self.keys, self.values = self.keys.index_select(0, index), self.values.index_select(0, index)
        if self.positions is not None and len(self.positions) > 1:
            self.positions = self.positions.index_select(0, index)

    def repeat(self, times: int) -> None:
        """Let each row become `times` neighbouring rows."""
        self.share *= times

    def tensors(self) -> Kept:
        """Keys, values and perhaps their positions."""
        return (self.keys, self.values) if self.positions is None else (self.keys, self.values, self.positions)

    def put(self, tensors: Kept) -> None:
        """Go on with other tensors."""
        self.memo = {}
        self.keys, self.values = tensors[:2]
        self.positions = None if self.positions is None else tensors[2]

    def nbytes(self) -> int:
        """Count the bytes it holds."""
        return self.keys.nbytes + self.values.nbytes


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

    `longest` is how many a row may see, if there is a limit; `tokens` is an upper bound of what any has seen, and
    what all have seen as long as rows are `aligned`.
    """

    layers: list[dict[str, LayerState]]
    length: Int[Tensor, "B"]
    longest: int | None = None
    tokens: int = 0
    aligned: bool = True

    def __post_init__(self) -> None:
        """Let caches that are alike share their places, so that those are noted once and not in every layer."""
        self.places: dict[tuple[int, int | None], Places] = {}
        for part in self.parts():
            if isinstance(part, Cache):
                part.places = self.places.setdefault((part.places.size, part.places.window), part.places)
                part.places.shared = True

    def parts(self) -> Iterator[LayerState]:
        """Walk through what the layers remember."""
        for layer in self.layers:
            yield from layer.values()

    def advance(self, tokens: Int[Tensor, "B T"], lengths: Int[Tensor, "B"] | None) -> Int[Tensor, "B T"]:
        """Give the positions of the next tokens (the first `lengths` of each row are real), and count them."""
        check_lengths(tokens, lengths, least=0)
        T = tokens.shape[1]
        self.check_room(T if lengths is None else lengths, T)
        steps = torch.arange(T, device=tokens.device)
        positions = self.length[:, None] + steps
        if lengths is None:
            self.length = self.length + T
        else:
            self.aligned = False
            self.length = self.length + lengths
            positions = torch.where(steps < lengths[:, None], positions, -1)
        for places in self.places.values():
            places.note(positions, self.tokens if self.aligned else None)
        self.tokens += T
        return positions

    def check_room(self, new: Tensor | int, most: int) -> None:
        """Refuse tokens beyond the position table; the device is only asked once the upper bound is beyond it."""
        if self.longest is None or self.tokens + most <= self.longest or torch.compiler.is_compiling():
            return
        needed = int((self.length + new).max())
        if needed > self.longest:
            raise InputError(too_long(needed, self.longest))

    def reorder(self, index: Int[Tensor, "_b"]) -> None:
        """Let row i become what row index[i] was; after `repeat`, among those of the same origin only."""
        self.length = self.length.index_select(0, index)
        for places in self.places.values():
            places.reorder(index)
        for part in self.parts():
            part.reorder(index)

    def repeat(self, times: int) -> None:
        """Let each row become `times` neighbouring rows."""
        if times == 1:
            return
        for places in self.places.values():
            places.repeat(times, len(self.length), self.length.device)
        for part in self.parts():
            part.repeat(times)
        self.length = self.length.repeat_interleave(times)

    def tensors(self) -> Kept:
        """All tensors that steps read and write, always in the same order."""
        owners = (*self.places.values(), *self.parts())
        return self.length, *(tensor for owner in owners for tensor in owner.tensors())

    def put(self, tensors: Kept) -> None:
        """Go on with other tensors, in that order."""
        self.length, *rest = tensors
        for owner in (*self.places.values(), *self.parts()):
            count = len(owner.tensors())
            owner.put(tuple(rest[:count]))
            rest = rest[count:]

    def rewind(self) -> None:
        """Count from the second token on, whatever was counted: for a state whose tensors are used again and again."""
        self.tokens, self.aligned, self.longest = 1, False, None
        for places in self.places.values():
            places.tokens, places.begins, places.memo = 1, False, {}

    def nbytes(self) -> int:
        """Count the bytes it holds."""
        return sum(part.nbytes() for part in self.parts())
