"""Convolution against a loop; in steps, in chunks and in ragged chunks against the whole."""

import pytest
import torch
from torch import Tensor

from regard.errors import InputError
from regard.parts.conv import Convolution, ConvolutionConfig
from regard.parts.mask import Causal, Documents, Padding, Prefix, Rule, Window

SIZES = [(1, 1), (2, 1), (3, 1), (4, 1), (5, 1), (2, 3), (3, 2), (3, 4)]  # kernel, dilation
CAUSAL_MASKS: list[Rule] = [Causal(), Causal() & Padding(), Padding() & Causal() & Window(2)]


def random(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def convolution(kernel: int, dilation: int = 1, dim: int = 3) -> Convolution:
    made = ConvolutionConfig(kernel, dilation).build(dim).double()
    generator = torch.Generator().manual_seed(2)
    for parameter in made.parameters():
        torch.nn.init.normal_(parameter, generator=generator)
    return made


def loop(made: Convolution, row: Tensor, taps: list[int]) -> Tensor:
    """y_t = b + sum_j W_j x_{t + taps_j}; beyond the ends there is nothing."""
    assert made.conv.bias is not None
    out = []
    for t in range(len(row)):
        y = made.conv.bias.detach().clone()
        for j, tap in enumerate(taps):
            if 0 <= t + tap < len(row):
                y += made.conv.weight.detach()[:, :, j] @ row[t + tap]
        out.append(y)
    return torch.stack(out)


def backward(kernel: int, dilation: int) -> list[int]:
    return [-dilation * (kernel - 1 - j) for j in range(kernel)]


def centred(kernel: int, dilation: int) -> list[int]:
    first = -((kernel - 1) * dilation // 2)
    return [first + dilation * j for j in range(kernel)]


def same(found: Tensor, wanted: Tensor) -> None:
    torch.testing.assert_close(found.detach(), wanted.detach(), rtol=0, atol=1e-10)


def test_the_taps_of_the_loop_are_as_described() -> None:
    assert backward(3, 2) == [-4, -2, 0]
    assert centred(3, 2) == [-2, 0, 2]
    assert centred(5, 1) == [-2, -1, 0, 1, 2]
    assert centred(2, 1) == [0, 1]


@pytest.mark.parametrize("mask", CAUSAL_MASKS)
@pytest.mark.parametrize(("kernel", "dilation"), SIZES)
def test_causal(kernel: int, dilation: int, mask: Rule) -> None:
    made, x = convolution(kernel, dilation), random(2, 7, 3)
    wanted = torch.stack([loop(made, row, backward(kernel, dilation)) for row in x])
    same(made(x, mask=mask), wanted)


@pytest.mark.parametrize("mask", [None, Padding()])
@pytest.mark.parametrize(("kernel", "dilation"), SIZES)
def test_centred(kernel: int, dilation: int, mask: Rule | None) -> None:
    made, x = convolution(kernel, dilation), random(2, 7, 3)
    wanted = torch.stack([loop(made, row, centred(kernel, dilation)) for row in x])
    same(made(x, mask=mask), wanted)


@pytest.mark.parametrize(("kernel", "dilation"), SIZES)
@pytest.mark.parametrize("mask", [Padding(), Causal() & Padding()])
def test_padding_does_not_leak(kernel: int, dilation: int, mask: Rule) -> None:
    made, x = convolution(kernel, dilation), random(2, 7, 3)
    x[1, 4:] = 1e6
    positions = torch.tensor([[0, 1, 2, 3, 4, 5, 6], [0, 1, 2, 3, -1, -1, -1]])
    found = made(x, mask=mask, positions=positions)
    taps = centred(kernel, dilation) if isinstance(mask, Padding) else backward(kernel, dilation)
    same(found[0], loop(made, x[0], taps))
    same(found[1, :4], loop(made, x[1, :4], taps))


@pytest.mark.parametrize("chunks", [[1] * 8, [3, 5], [2, 1, 1, 4], [8]])
@pytest.mark.parametrize(("kernel", "dilation"), SIZES)
def test_in_chunks_as_in_one(kernel: int, dilation: int, chunks: list[int]) -> None:
    made, x = convolution(kernel, dilation), random(2, 8, 3)
    state = made.start(2, None)
    found = [made(chunk, mask=Causal(), state=state) for chunk in x.split(chunks, 1)]
    same(torch.cat(found, 1), made(x, mask=Causal()))


@pytest.mark.parametrize(("kernel", "dilation"), SIZES)
def test_in_ragged_chunks_as_in_one(kernel: int, dilation: int) -> None:
    """Each row takes what it has from each chunk: 3, 0 and 4 tokens of 4; then 1, 4, 0; then 4, 2, 2."""
    made = convolution(kernel, dilation)
    lengths = [[3, 0, 4], [1, 4, 0], [4, 2, 2]]
    rows = [random(8, 3), 2 * random(6, 3), -random(6, 3)]
    state = made.start(3, 100)
    at = [0, 0, 0]
    found: list[list[Tensor]] = [[], [], []]
    for taken in lengths:
        chunk = torch.full((3, 4, 3), 1e6, dtype=torch.float64)
        positions = torch.full((3, 4), -1)
        for row, n in enumerate(taken):
            chunk[row, :n] = rows[row][at[row] : at[row] + n]
            positions[row, :n] = torch.arange(at[row], at[row] + n)
            at[row] += n
        out = made(chunk, mask=Causal() & Padding(), positions=positions, state=state)
        for row, n in enumerate(taken):
            found[row].append(out[row, :n])
    for whole, parts in zip(rows, found, strict=True):
        same(torch.cat(parts), made(whole[None], mask=Causal())[0])


def test_a_state_can_be_reordered() -> None:
    made, x = convolution(3), random(2, 5, 3)
    state = made.start(2, None)
    made(x[:, :4], mask=Causal(), state=state)
    state.reorder(torch.tensor([1, 0]))
    found = made(x[[1, 0], 4:], mask=Causal(), state=state)
    same(found, made(x, mask=Causal())[[1, 0], 4:])


def test_a_state_keeps_no_more_than_it_needs() -> None:
    made = convolution(3, 2)
    state = made.start(5, None)
    made(random(5, 9, 3), mask=Causal(), state=state)
    assert [value.shape for value in state.values] == [(5, 4, 3)]
    assert state.nbytes() == 5 * 4 * 3 * 8


def test_packed_documents_are_rejected() -> None:
    documents = Documents(torch.zeros(1, 4, dtype=torch.long))
    made = convolution(3)
    prefix = Prefix(torch.tensor([2]))
    for mask, state in ((Causal() & documents, None), (prefix, None), (Causal() & documents, made.start(1, None))):
        with pytest.raises(InputError, match="packed documents and prefixes need attention"):
            made(random(1, 4, 3), mask=mask, state=state)


def test_gradients_are_those_of_small_steps() -> None:
    made = convolution(2, 2)
    positions = torch.tensor([[0, 1, 2, -1]])

    def run(x: Tensor) -> Tensor:
        return made(x, mask=Padding(), positions=positions)

    assert torch.autograd.gradcheck(run, (random(1, 4, 3).requires_grad_(),))
