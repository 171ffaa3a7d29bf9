"""How weights differ between here and there: a few changes, each a reversible pair.

What is read are views of the file wherever that is possible, so nothing is copied until it is used.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

Shape = tuple[int, ...]


class Change:
    """Tensors of theirs <-> tensors of ours; this one: one tensor that is the same on both sides."""

    def names(self, theirs: str, ours: Sequence[Shape]) -> list[str]:
        """Spell out the names of theirs that belong to our tensors of these shapes."""
        return [theirs]

    def shapes(self, ours: Sequence[Shape]) -> list[Shape]:
        """Give the shapes of theirs."""
        return list(ours)

    def read(self, theirs: Sequence[Tensor], ours: Sequence[Shape]) -> list[Tensor]:
        """Make ours of theirs."""
        return list(theirs)

    def write(self, ours: Sequence[Tensor]) -> list[Tensor]:
        """Make theirs of ours."""
        return list(ours)


class Transposed(Change):
    """A matrix that is stored as (in, out), as GPT-2 does."""

    def shapes(self, ours: Sequence[Shape]) -> list[Shape]:
        """Turned round."""
        return [shape[::-1] for shape in ours]

    def read(self, theirs: Sequence[Tensor], ours: Sequence[Shape]) -> list[Tensor]:
        """W^T."""
        return [tensor.T for tensor in theirs]

    def write(self, ours: Sequence[Tensor]) -> list[Tensor]:
        """W^T."""
        return [tensor.T for tensor in ours]


class Reshaped(Change):
    """The same numbers with a first dimension of 1: a row of biases, a table of positions in a batch of one."""

    def shapes(self, ours: Sequence[Shape]) -> list[Shape]:
        """One more dimension."""
        return [(1, *shape) for shape in ours]

    def read(self, theirs: Sequence[Tensor], ours: Sequence[Shape]) -> list[Tensor]:
        """Without it."""
        return [tensor[0] for tensor in theirs]

    def write(self, ours: Sequence[Tensor]) -> list[Tensor]:
        """With it."""
        return [tensor[None] for tensor in ours]


class Together(Change):
    """Several tensors that are the same on both sides, but are only there together; their names are joined by `|`.

    Such a row stands before one for a part of them alone, which another variant has under another name.
    """

    def names(self, theirs: str, ours: Sequence[Shape]) -> list[str]:
        """Each by itself."""
        return theirs.split("|")


class Stacked(Change):
    """One tensor of theirs is several of ours side by side, along the output."""

    def __init__(self, transposed: bool = False) -> None:
        self.transposed = transposed  # a matrix stored as (in, out)

    def shapes(self, ours: Sequence[Shape]) -> list[Shape]:
        """All outputs together."""
        together = (sum(shape[0] for shape in ours), *ours[0][1:])
        return [together[::-1] if self.transposed else together]

    def read(self, theirs: Sequence[Tensor], ours: Sequence[Shape]) -> list[Tensor]:
        """Cut."""
        [whole] = theirs
        return list((whole.T if self.transposed else whole).split([shape[0] for shape in ours]))

    def write(self, ours: Sequence[Tensor]) -> list[Tensor]:
        """Join."""
        whole = torch.cat(list(ours))
        return [whole.T if self.transposed else whole]


class PerExpert(Change):
    """A matrix (out, in) of theirs for every expert `{e}`; ours are all experts in one tensor of (in, out)."""

    def names(self, theirs: str, ours: Sequence[Shape]) -> list[str]:
        """One for each expert."""
        return [theirs.replace("{e}", str(expert)) for expert in range(ours[0][0])]

    def shapes(self, ours: Sequence[Shape]) -> list[Shape]:
        """As many matrices, turned round."""
        experts, wide, out = ours[0]
        return [(out, wide)] * experts

    def read(self, theirs: Sequence[Tensor], ours: Sequence[Shape]) -> list[Tensor]:
        """Stack them."""
        return [torch.stack([tensor.T for tensor in theirs])]

    def write(self, ours: Sequence[Tensor]) -> list[Tensor]:
        """Take them apart."""
        return [matrix.T for matrix in ours[0]]


SAME = Change()
TRANSPOSED = Transposed()
RESHAPED = Reshaped()
TOGETHER = Together()
STACKED = Stacked()
STACKED_TRANSPOSED = Stacked(transposed=True)
PER_EXPERT = PerExpert()
