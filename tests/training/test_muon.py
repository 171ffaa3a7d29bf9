"""Muon against its formula in numpy, and against torch's."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import regard.training.muon
from regard.training.muon import Muon, orthogonal


def random(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def orthogonal_by_svd(matrix: np.ndarray) -> np.ndarray:
    """The polynomial acts on singular values alone."""
    left, values, right = np.linalg.svd(matrix, full_matrices=False)
    values = values / np.linalg.norm(values)
    for _ in range(5):
        values = 3.4445 * values - 4.7750 * values**3 + 2.0315 * values**5
    return left @ np.diag(values) @ right


@pytest.mark.parametrize(("rows", "columns"), [(4, 4), (3, 7), (7, 3), (1, 5)])
def test_orthogonal_acts_on_the_singular_values(rows: int, columns: int) -> None:
    matrices = random(3, rows, columns)
    wanted = np.stack([orthogonal_by_svd(matrix.double().numpy()) for matrix in matrices])
    np.testing.assert_allclose(orthogonal(matrices).numpy(), wanted, atol=2e-5)


def test_orthogonal_brings_all_directions_near_to_one_length() -> None:
    values = torch.linalg.svdvals(orthogonal(random(2, 16, 40)))
    assert values.min() > 0.6
    assert values.max() < 1.25


def test_orthogonal_of_nothing_is_nothing() -> None:
    assert torch.equal(orthogonal(torch.zeros(2, 3, 4)), torch.zeros(2, 3, 4))


def make(shapes: list[tuple[int, int]], rate: float | Tensor = 0.1) -> tuple[list[nn.Parameter], Muon]:
    matrices = [nn.Parameter(random(*shape, seed=seed)) for seed, shape in enumerate(shapes)]
    return matrices, Muon([{"params": matrices, "lr": rate, "momentum": 0.9, "weight_decay": 0.2}])


def give_gradients(matrices: list[nn.Parameter], step: int) -> None:
    for number, matrix in enumerate(matrices):
        matrix.grad = random(*matrix.shape, seed=100 * step + number)


SHAPES = [(4, 6), (6, 4), (4, 6), (5, 5), (4, 6)]


def test_steps_follow_the_formula() -> None:
    matrices, muon = make(SHAPES)
    weights = [matrix.detach().double().numpy().copy() for matrix in matrices]
    momenta = [np.zeros_like(weight) for weight in weights]
    for step in range(3):
        give_gradients(matrices, step)
        muon.step()
        for number, matrix in enumerate(matrices):
            assert matrix.grad is not None
            gradient = matrix.grad.double().numpy()
            momenta[number] = 0.9 * momenta[number] + 0.1 * gradient
            direction = orthogonal_by_svd(0.1 * gradient + 0.9 * momenta[number])
            scale = max(1, matrix.shape[0] / matrix.shape[1]) ** 0.5
            weights[number] = (1 - 0.1 * 0.2) * weights[number] - 0.1 * scale * direction
    for matrix, weight in zip(matrices, weights, strict=True):
        np.testing.assert_allclose(matrix.detach().numpy(), weight, atol=1e-4)


def test_it_is_the_muon_of_torch_up_to_its_half_precision() -> None:
    (ours, muon), (theirs, _) = make(SHAPES), make(SHAPES)
    reference = torch.optim.Muon(theirs, lr=0.1, momentum=0.9, weight_decay=0.2)
    for step in range(3):
        give_gradients(ours, step)
        give_gradients(theirs, step)
        muon.step()
        reference.step()
    for own, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(own, other, atol=0.02, rtol=0)


def test_the_number_of_matrices_updated_together_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    (together, muon), (alone, other) = make(SHAPES), make(SHAPES)
    give_gradients(together, 1)
    give_gradients(alone, 1)
    muon.step()
    monkeypatch.setattr(regard.training.muon, "TOGETHER", 48)  # two of 4 x 6
    other.step()
    for one, two in zip(together, alone, strict=True):
        torch.testing.assert_close(one, two)


def test_the_rate_may_be_a_tensor() -> None:
    (plain, muon), (tensor, other) = make(SHAPES), make(SHAPES, torch.tensor(0.1))
    give_gradients(plain, 1)
    give_gradients(tensor, 1)
    muon.step()
    other.step()
    for one, two in zip(plain, tensor, strict=True):
        torch.testing.assert_close(one, two)


def test_a_matrix_without_gradient_stays() -> None:
    matrices, muon = make(SHAPES)
    before = [matrix.detach().clone() for matrix in matrices]
    give_gradients(matrices, 1)
    matrices[2].grad = None
    muon.step()
    assert [torch.equal(old, new) for old, new in zip(before, matrices, strict=True)] == [
        False,
        False,
        True,
        False,
        False,
    ]
