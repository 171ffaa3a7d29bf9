"""Losses against their formulas in float64 NumPy, position by position."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from regard.tasks.loss import IGNORE, Losses, count_right, cross_entropy, mixed_cross_entropy, r_drop


def draw(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return 3 * torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def label(*shape: int, ignored: bool = True) -> Tensor:
    labels = torch.randint(5, shape, generator=torch.Generator().manual_seed(9))
    if ignored:
        labels.view(-1)[::3] = IGNORE
    return labels


def softmax(row: np.ndarray) -> np.ndarray:
    return np.exp(row) / np.exp(row).sum()


def by_hand(logits: Tensor, labels: Tensor, smoothing: float) -> tuple[float, float, int]:
    """Return objective, loss and count."""
    objective, loss, count = 0.0, 0.0, 0
    for row, y in zip(logits.double().reshape(-1, 5).numpy(), labels.reshape(-1).tolist(), strict=True):
        if y != IGNORE:
            surprise = -np.log(softmax(row))
            loss += surprise[y]
            objective += (1 - smoothing) * surprise[y] + smoothing * surprise.mean()
            count += 1
    return objective, loss, count


def divergence_by_hand(logits_a: Tensor, logits_b: Tensor, labels: Tensor) -> float:
    total = 0.0
    pairs = zip(logits_a.reshape(-1, 5).numpy(), logits_b.reshape(-1, 5).numpy(), strict=True)
    for (row_a, row_b), y in zip(pairs, labels.reshape(-1).tolist(), strict=True):
        if y != IGNORE:
            a, b = softmax(row_a), softmax(row_b)
            total += (a * np.log(a / b)).sum() + (b * np.log(b / a)).sum()
    return total


def same(found: Losses, objective: float, loss: float, count: int, tolerance: float = 1e-12) -> None:
    np.testing.assert_allclose(found.objective.item(), objective, rtol=tolerance)
    np.testing.assert_allclose(found.loss.item(), loss, rtol=tolerance)
    assert found.count.item() == count


smoothings = pytest.mark.parametrize("smoothing", [0.0, 0.1])
shapes = pytest.mark.parametrize("shape", [(), (7,), (3, 4), (2, 3, 2)])


@smoothings
@shapes
@pytest.mark.parametrize("ignored", [True, False])
def test_cross_entropy_is_its_formula(shape: tuple[int, ...], smoothing: float, ignored: bool) -> None:
    logits, labels = draw(*shape, 5), label(*shape, ignored=ignored)
    same(cross_entropy(logits, labels, smoothing), *by_hand(logits, labels, smoothing))


def test_cross_entropy_of_equal_logits_is_the_logarithm_of_the_vocabulary() -> None:
    found = cross_entropy(torch.zeros(2, 8), torch.tensor([3, 7]), 0.1)
    same(found, 2 * np.log(8), 2 * np.log(8), 2, 1e-6)


@smoothings
@pytest.mark.parametrize("alpha", [0.0, 5.0])
def test_r_drop_is_its_formula(smoothing: float, alpha: float) -> None:
    logits_a, logits_b, labels = draw(3, 4, 5), draw(3, 4, 5, seed=1), label(3, 4)
    objective_a, loss_a, count = by_hand(logits_a, labels, smoothing)
    objective_b, loss_b, _ = by_hand(logits_b, labels, smoothing)
    apart = divergence_by_hand(logits_a, logits_b, labels)
    wanted = (objective_a + objective_b) / 2 + alpha / 4 * apart
    same(r_drop(logits_a, logits_b, labels, alpha, smoothing), wanted, (loss_a + loss_b) / 2, count)


@smoothings
def test_r_drop_of_two_equal_passes_is_cross_entropy(smoothing: float) -> None:
    logits, labels = draw(6, 5), label(6)
    plain = cross_entropy(logits, labels, smoothing)
    same(r_drop(logits, logits, labels, 5.0, smoothing), *(value.item() for value in plain))


def loss_functions() -> dict[str, Callable[[Tensor, Tensor], Losses]]:
    """Return every loss as a function of logits and labels; the second pass of R-Drop is the first one doubled."""
    return {
        "plain": lambda logits, labels: cross_entropy(logits, labels),
        "smoothed": lambda logits, labels: cross_entropy(logits, labels, 0.1),
        "r-drop": lambda logits, labels: r_drop(logits, 2 * logits, labels, 5.0),
        "r-drop smoothed": lambda logits, labels: r_drop(logits, 2 * logits, labels, 5.0, 0.1),
    }


every = pytest.mark.parametrize("lose", loss_functions().values(), ids=loss_functions().keys())


@every
def test_gradients_are_those_of_finite_differences(lose: Callable[[Tensor, Tensor], Losses]) -> None:
    labels = label(2, 3)
    assert torch.autograd.gradcheck(lambda logits: lose(logits, labels).objective, draw(2, 3, 5).requires_grad_())


def test_r_drop_moves_both_passes() -> None:
    logits_a, logits_b = draw(6, 5).requires_grad_(), draw(6, 5, seed=1).requires_grad_()
    labels = label(6)
    assert torch.autograd.gradcheck(lambda a, b: r_drop(a, b, labels, 5.0, 0.1).objective, (logits_a, logits_b))


@every
def test_ignored_positions_get_no_gradient_and_the_others_do(lose: Callable[[Tensor, Tensor], Losses]) -> None:
    logits, labels = draw(3, 4, 5).requires_grad_(), label(3, 4)
    lose(logits, labels).objective.backward()
    assert logits.grad is not None
    assert torch.equal((logits.grad != 0).any(-1), labels != IGNORE)


@every
def test_where_nothing_counts_all_is_zero(lose: Callable[[Tensor, Tensor], Losses]) -> None:
    logits = draw(4, 5).requires_grad_()
    found = lose(logits, torch.full((4,), IGNORE))
    found.objective.backward()
    assert [value.item() for value in found] == [0, 0, 0]
    assert torch.equal(logits.grad, torch.zeros(4, 5, dtype=torch.float64))


@every
def test_only_the_objective_has_a_gradient(lose: Callable[[Tensor, Tensor], Losses]) -> None:
    found = lose(draw(4, 5).requires_grad_(), label(4))
    assert [value.requires_grad for value in found] == [True, False, False]


@every
@given(cut=st.integers(0, 8))
def test_the_losses_of_parts_add_up(lose: Callable[[Tensor, Tensor], Losses], cut: int) -> None:
    logits, labels = draw(8, 5), label(8)
    parts = zip(lose(logits[:cut], labels[:cut]), lose(logits[cut:], labels[cut:]), strict=True)
    same(lose(logits, labels), *((one + other).item() for one, other in parts))


@every
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_logits_give_an_exact_loss(lose: Callable[[Tensor, Tensor], Losses], dtype: torch.dtype) -> None:
    """Doubling is exact in half precision, so only the loss itself could round."""
    logits, labels = draw(400, 5).to(dtype).requires_grad_(), label(400)
    found, exact = lose(logits, labels), lose(logits.double(), labels)
    assert (found.objective.dtype, found.loss.dtype) == (torch.float32, torch.float32)
    same(found, *(value.item() for value in exact), 1e-6)
    found.objective.backward()
    assert logits.grad.dtype == dtype


@every
def test_labels_may_be_short_numbers(lose: Callable[[Tensor, Tensor], Losses]) -> None:
    logits, labels = draw(6, 5), label(6)
    assert lose(logits, labels.int()) == lose(logits, labels)


def test_right_is_where_the_label_is_the_most_likely() -> None:
    logits = torch.tensor([[[0.0, 2.0, 1.0], [3.0, 2.0, 1.0]], [[0.0, -1.0, 1.0], [0.0, 9.0, 0.0]]])
    assert count_right(logits, torch.tensor([[1, 1], [2, IGNORE]])).item() == 2
    assert count_right(logits, torch.full((2, 2), IGNORE)).item() == 0
    assert not count_right(logits.requires_grad_(), torch.tensor([[1, 1], [2, 1]])).requires_grad


@pytest.mark.compile
@every
def test_compiles_into_one_graph(lose: Callable[[Tensor, Tensor], Losses]) -> None:
    torch._dynamo.reset()
    labels = label(3, 4)
    one, other = draw(3, 4, 5).requires_grad_(), draw(3, 4, 5).requires_grad_()
    found, wanted = torch.compile(lose, fullgraph=True, backend="aot_eager")(one, labels), lose(other, labels)
    same(found, *(value.item() for value in wanted))
    found.objective.backward()
    wanted.objective.backward()
    torch.testing.assert_close(one.grad, other.grad)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_a_mixed_input_counts_each_label_by_its_share(smoothing: float) -> None:
    logits, labels, share = draw(6, 5), torch.tensor([0, 1, 2, IGNORE, 3, 4]), torch.linspace(0, 1, 6).double()
    others = torch.tensor([4, 0, 1, 2, 0, 3])
    found = mixed_cross_entropy(logits, labels, others, share, smoothing)
    objective = loss = 0.0
    for row, y, z, s in zip(logits.numpy(), labels.tolist(), others.tolist(), share.tolist(), strict=True):
        if y != IGNORE:
            surprise = -np.log(softmax(row))
            plain = s * surprise[y] + (1 - s) * surprise[z]
            loss += plain
            objective += (1 - smoothing) * plain + smoothing * surprise.mean()
    assert float(found.objective) == pytest.approx(objective)
    assert float(found.loss) == pytest.approx(loss)
    assert int(found.count) == 5


def test_an_input_that_is_not_mixed_has_the_usual_cross_entropy() -> None:
    logits, labels = draw(6, 5), label(6)
    mixed = mixed_cross_entropy(logits, labels, labels.roll(1).clamp(min=0), torch.ones(6).double(), 0.1)
    for found, wanted in zip(mixed, cross_entropy(logits, labels, 0.1), strict=True):
        assert float(found) == pytest.approx(float(wanted))
