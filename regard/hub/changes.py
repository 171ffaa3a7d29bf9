"""How a weight is stored differently by Hugging Face: a few changes, each a reversible pair of functions.

Reading returns views of the file where possible, so nothing is copied until it is used.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

Shape = tuple[int, ...]


class Change:
    """Converts their tensors to ours and back. The base class is for one tensor that is the same on both sides."""

    def names(self, theirs: str, ours: Sequence[Shape]) -> list[str]:
        """Return the names of their tensors for our tensors of these shapes."""
        return [theirs]

    def shapes(self, ours: Sequence[Shape]) -> list[Shape]:
        """Return the shapes of their tensors."""
        return list(ours)

    def read(self, theirs: Sequence[Tensor], ours: Sequence[Shape]) -> list[Tensor]:
        """Convert their tensors to ours."""
        return list(theirs)

    def write(self, ours: Sequence[Tensor]) -> list[Tensor]:
        """Convert our tensors to theirs."""
        return list(ours)


class Transposed(Change):
    """A matrix that is stored as (in, out), as in GPT-2."""

    def shapes(self, ours: Sequence[Shape]) -> list[Shape]:
        """Return (in, out) for (out, in)."""
        return [shape[::-1] for shape in ours]

    def read(self, theirs: Sequence[Tensor], ours: Sequence[Shape]) -> list[Tensor]:
        """Transpose."""
        return [tensor.T for tensor in theirs]

    def write(self, ours: Sequence[Tensor]) -> list[Tensor]:
        """Transpose."""
        return [tensor.T for tensor in ours]


class Reshaped(Change):
    """The same numbers with leading dimensions of 1: a row of biases, a position table in a batch of one."""

    def __init__(self, times: int = 1) -> None:
        self.ones = (1,) * times

    def shapes(self, ours: Sequence[Shape]) -> list[Shape]:
        """Add the dimensions."""
        return [(*self.ones, *shape) for shape in ours]

    def read(self, theirs: Sequence[Tensor], ours: Sequence[Shape]) -> list[Tensor]:
        """Drop the dimensions."""
        return [tensor.reshape(tensor.shape[len(self.ones) :]) for tensor in theirs]

    def write(self, ours: Sequence[Tensor]) -> list[Tensor]:
        """Add the dimensions."""
        return [tensor.reshape(*self.ones, *tensor.shape) for tensor in ours]


class Together(Change):
    """Several tensors that are the same on both sides and only occur together; their names are joined by `|`.

    Such a row comes before a row for one of these tensors alone, which has another name in other variants.
    """

    def names(self, theirs: str, ours: Sequence[Shape]) -> list[str]:
        """Split the joined names."""
        return theirs.split("|")


class Stacked(Change):
    """One tensor of theirs is several of ours, concatenated along the output."""

    def __init__(self, transposed: bool = False) -> None:
        self.transposed = transposed  # a matrix stored as (in, out)

    def shapes(self, ours: Sequence[Shape]) -> list[Shape]:
        """Add up the outputs."""
        stacked = (sum(shape[0] for shape in ours), *ours[0][1:])
        return [stacked[::-1] if self.transposed else stacked]

    def read(self, theirs: Sequence[Tensor], ours: Sequence[Shape]) -> list[Tensor]:
        """Split along the output."""
        [stacked] = theirs
        return list((stacked.T if self.transposed else stacked).split([shape[0] for shape in ours]))

    def write(self, ours: Sequence[Tensor]) -> list[Tensor]:
        """Concatenate along the output."""
        stacked = torch.cat(list(ours))
        return [stacked.T if self.transposed else stacked]


class PerExpert(Change):
    """One (out, in) matrix of theirs for every expert `{e}`; ours is one (experts, in, out) tensor."""

    def names(self, theirs: str, ours: Sequence[Shape]) -> list[str]:
        """Fill in the index of each expert."""
        return [theirs.replace("{e}", str(expert)) for expert in range(ours[0][0])]

    def shapes(self, ours: Sequence[Shape]) -> list[Shape]:
        """Return (out, in) for each expert of (experts, in, out)."""
        experts, inputs, outputs = ours[0]
        return [(outputs, inputs)] * experts

    def read(self, theirs: Sequence[Tensor], ours: Sequence[Shape]) -> list[Tensor]:
        """Transpose and stack."""
        return [torch.stack([tensor.T for tensor in theirs])]

    def write(self, ours: Sequence[Tensor]) -> list[Tensor]:
        """Unstack and transpose."""
        return [matrix.T for matrix in ours[0]]


SAME = Change()
TRANSPOSED = Transposed()
RESHAPED = Reshaped()
RESHAPED_TWICE = Reshaped(2)
TOGETHER = Together()
STACKED = Stacked()
STACKED_TRANSPOSED = Stacked(transposed=True)
PER_EXPERT = PerExpert()
