"""Bringing arrays to a device: the numbers stay, and CUDA gets them from memory that needs no waiting."""

import numpy as np
import pytest
import torch

from regard.data.device import to_device


@pytest.mark.parametrize("array", [np.arange(6).reshape(2, 3), np.array([True, False]), np.zeros((2, 2, 1), np.uint8)])
def test_numbers_and_types_stay(array: np.ndarray) -> None:
    found = to_device(array, torch.device("cpu"))
    assert found.numpy().dtype == array.dtype
    assert np.array_equal(found.numpy(), array)


def test_cuda_copies_from_pinned_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    done = []
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda tensor: done.append("pin") or tensor)
    monkeypatch.setattr(torch.Tensor, "to", lambda tensor, device, non_blocking: done.append(non_blocking) or tensor)
    to_device(np.arange(3), torch.device("cuda"))
    assert done == ["pin", True]
