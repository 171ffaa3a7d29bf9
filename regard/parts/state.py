"""What is kept between decode steps: key-value caches, the memory of a source, hidden vectors; and the state of a
whole model.

`State.advance` computes what all layers of a step need, once, as an immutable `Step`. Every kind of state can `repeat`
and `reorder` its rows, which is all that beam search needs.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.errors import InputError, too_long
from regard.parts.cache import Cache, CacheKind, CacheView, Kept, Memo, SlotTable, View, groups_of
from regard.parts.inputs import check_lengths, check_token_ids
from regard.parts.mask import Causal, Padding, Rule


@dataclass
class Hidden:
    """Vectors that every step replaces: the state of a recurrence, the last inputs of a convolution."""

    values: tuple[Tensor, ...]

    def reorder(self, index: Int[Tensor, "_b"]) -> None:
        """Make row i what row index[i] was."""
        self.values = tuple(value.index_select(0, index) for value in self.values)

    def repeat(self, times: int) -> None:
        """Make each row `times` neighbouring rows."""
        self.values = tuple(value.repeat_interleave(times, 0) for value in self.values)

    def tensors(self) -> Kept:
        """Return all that a step may change."""
        return self.values

    def put(self, tensors: Kept) -> None:
        """Replace the tensors, in the order of `tensors`."""
        self.values = tensors

    def nbytes(self) -> int:
        """Count the bytes of the tensors."""
        return sum(value.nbytes for value in self.values)


@dataclass
class Memory:
    """Keys and values of a source: computed once, the same at every step.

    `beams` neighbouring rows have the same source and share its keys. `mask_is_fixed` says that nothing but
    padding is hidden and nothing is added to the scores, so that the mask is computed once for all steps.
    """

    keys: Float[Tensor, "B _K S _E"]
    values: Float[Tensor, "B _K S _G"]
    positions: Int[Tensor, "_B S"] | None
    mask_is_fixed: bool = False
    beams: int = 1
    memo: Memo = field(default_factory=dict, repr=False)

    def for_steps(self) -> "Memory":
        """Return it with each head's numbers next to each other in memory, as every decode step reads them."""
        return replace(self, keys=self.keys.contiguous(), values=self.values.contiguous())

    def view(self, mask: Rule | None, positions: Int[Tensor, "_rows T"] | None, memo: Memo | None = None) -> View:
        """Return what queries at `positions` may look at; `memo` is what the layers of this pass share."""
        memo = self.memo if self.mask_is_fixed and mask is None and memo is None else memo
        if self.positions is not None:
            mask = Padding() & mask
        if self.beams > 1 and positions is not None:
            positions = positions.reshape(len(self.keys), -1)
        return View((self.keys, self.values), mask, positions, self.positions, self.beams, memo)

    def reorder(self, index: Int[Tensor, "_rows"]) -> None:
        """Make row i what row index[i] was. Nothing is copied if beams only change places within their source."""
        if self.beams > 1:
            if len(index) == self.beams * len(self.keys):
                return
            index = groups_of(index, self.beams)
        self.memo = {}
        self.keys, self.values = self.keys.index_select(0, index), self.values.index_select(0, index)
        if self.positions is not None and len(self.positions) > 1:
            self.positions = self.positions.index_select(0, index)

    def repeat(self, times: int) -> None:
        """Make each row `times` neighbouring rows."""
        self.beams *= times

    def tensors(self) -> Kept:
        """Return keys, values and, if known, their positions."""
        return (self.keys, self.values) if self.positions is None else (self.keys, self.values, self.positions)

    def put(self, tensors: Kept) -> None:
        """Replace the tensors, in the order of `tensors`."""
        self.memo = {}
        self.keys, self.values = tensors[:2]
        self.positions = None if self.positions is None else tensors[2]

    def nbytes(self) -> int:
        """Count the bytes of keys and values."""
        return self.keys.nbytes + self.values.nbytes


LayerState = Hidden | Memory | Cache
LayerView = Hidden | Memory | CacheView  # the same at one step


@dataclass(frozen=True, eq=False)
class Step:
    """One pass over tokens: the mask and positions, which all layers share, and the state of each layer.

    Without `layers` it is a pass over whole rows, and nothing is kept.
    """

    mask: Rule
    positions: Int[Tensor, "B T"] | None = None  # None: 0, 1, 2, ...
    layers: Sequence[dict[str, LayerView]] | None = None


@dataclass
class State:
    """The state of a whole model: a dict for each layer, and the number of tokens that each row has read.

    `longest` is the most that a row may read, if there is a limit. `tokens` is an upper bound on what any row has read;
    as long as rows are `aligned`, all have read exactly that many.
    """

    layers: list[dict[str, LayerState]]
    length: Int[Tensor, "B"]
    longest: int | None = None
    tokens: int = 0
    aligned: bool = True

    def __post_init__(self) -> None:
        kinds = [part.kind for part in self.parts() if isinstance(part, Cache)]
        self.tables: dict[CacheKind, SlotTable] = {kind: SlotTable(kind) for kind in kinds}

    def parts(self) -> Iterator[LayerState]:
        """Iterate over the states of the layers."""
        for layer in self.layers:
            yield from layer.values()

    def advance(
        self, tokens: Int[Tensor, "B T"], lengths: Int[Tensor, "B"] | None = None, mask: Rule | None = None
    ) -> Step:
        """Advance by the next tokens (the first `lengths` of each row are real); return what the layers need for them.

        The mask is causal unless given.
        """
        check_token_ids(tokens)
        if len(tokens) != len(self.length):  # a single row would be computed for all
            shape = f"(rows, tokens) with the {len(self.length)} rows of the state"
            raise InputError(f"tokens must have the shape {shape}, not {tuple(tokens.shape)}")
        check_lengths(tokens, lengths, least=0)
        T = tokens.shape[1]
        self.check_longest(T if lengths is None else lengths, T)
        steps = torch.arange(T, device=tokens.device)
        positions, mask = self.length[:, None] + steps, mask or Causal()
        if lengths is None:
            self.length = self.length + T
        else:
            self.aligned = False
            self.length = self.length + lengths
            positions, mask = torch.where(steps < lengths[:, None], positions, -1), mask & Padding()
        start = self.tokens if self.aligned else None
        caches = {kind: table.assign(positions, mask, start) for kind, table in self.tables.items()}
        self.tokens += T

        def view(part: LayerState) -> LayerView:
            return CacheView(part, caches[part.kind]) if isinstance(part, Cache) else part

        layers = [{name: view(part) for name, part in layer.items()} for layer in self.layers]
        return Step(mask, positions, layers)

    def check_longest(self, new: Tensor | int, most: int) -> None:
        """Reject tokens beyond the position table; exact lengths are read only once the upper bound is beyond it."""
        if self.longest is None or self.tokens + most <= self.longest or torch.compiler.is_compiling():
            return
        needed = int((self.length + new).max())
        if needed > self.longest:
            raise InputError(too_long(needed, self.longest))

    def reorder(self, index: Int[Tensor, "_b"]) -> None:
        """Make row i what row index[i] was; after `repeat`, only the beams of a row may change places."""
        self.length = self.length.index_select(0, index)
        for table in self.tables.values():
            table.reorder(index)
        for part in self.parts():
            part.reorder(index)

    def repeat(self, times: int) -> None:
        """Make each row `times` neighbouring rows."""
        if times == 1:
            return
        for table in self.tables.values():
            table.repeat(times, len(self.length), self.length.device)
        for part in self.parts():
            part.repeat(times)
        self.length = self.length.repeat_interleave(times)

    def tensors(self) -> Kept:
        """Return all tensors that steps read and write, always in the same order."""
        owners = (*self.tables.values(), *self.parts())
        return self.length, *(tensor for owner in owners for tensor in owner.tensors())

    def put(self, tensors: Kept) -> None:
        """Replace all tensors, in the order of `tensors`."""
        self.length, *rest = tensors
        for owner in (*self.tables.values(), *self.parts()):
            count = len(owner.tensors())
            owner.put(tuple(rest[:count]))
            rest = rest[count:]

    def rewind(self) -> None:
        """Reset the counts to one token, for a state whose tensors are reused for other texts."""
        self.tokens, self.aligned, self.longest = 1, False, None
        for table in self.tables.values():
            table.tokens = 1

    def nbytes(self) -> int:
        """Count the bytes of the tensors."""
        return sum(part.nbytes() for part in self.parts())
