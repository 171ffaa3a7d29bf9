"""Every change is reversible and computes the shapes on the other side."""

import pytest
import torch

from regard.hub.changes import (
    PER_EXPERT,
    RESHAPED,
    RESHAPED_TWICE,
    SAME,
    STACKED,
    STACKED_TRANSPOSED,
    TOGETHER,
    TRANSPOSED,
)

MATRICES = [(4, 3), (2, 3), (2, 3)]


@pytest.mark.parametrize(
    ("change", "shapes", "names"),
    [
        (SAME, [(4, 3)], ["a"]),
        (TRANSPOSED, [(4, 3)], ["a"]),
        (RESHAPED, [(4, 3)], ["a"]),
        (RESHAPED, [(4,)], ["a"]),
        (RESHAPED_TWICE, [(4,)], ["a"]),
        (STACKED, MATRICES, ["a"]),
        (STACKED, [(4,), (2,), (2,)], ["a"]),
        (STACKED_TRANSPOSED, MATRICES, ["a"]),
        (TOGETHER, MATRICES, ["a", "b", "c"]),
        (PER_EXPERT, [(3, 4, 2)], ["a.0", "a.1", "a.2"]),
    ],
)
def test_there_and_back(change, shapes, names) -> None:
    ours = [torch.randn(shape) for shape in shapes]
    theirs = change.write(ours)
    assert [tuple(tensor.shape) for tensor in theirs] == change.shapes(shapes)
    again = change.read(theirs, shapes)
    assert len(again) == len(ours)
    assert all(torch.equal(mine, before) for mine, before in zip(again, ours, strict=True))
    written = {TOGETHER: "a|b|c", PER_EXPERT: "a.{e}"}.get(change, "a")
    assert change.names(written, shapes) == names


def test_stacked_tensors_keep_our_order() -> None:
    one, two = torch.zeros(1, 2), torch.ones(1, 2)
    assert STACKED.write([one, two])[0].tolist() == [[0, 0], [1, 1]]
    assert STACKED_TRANSPOSED.write([one, two])[0].tolist() == [[0, 1], [0, 1]]
