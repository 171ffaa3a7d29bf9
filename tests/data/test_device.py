"""Choosing a device, and bringing arrays there: numbers stay, and CUDA gets them without waiting."""

import numpy as np
import pytest
import torch

from regard.data.device import choose_device, to_device
from regard.errors import RegardError


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


def test_a_device_is_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    assert choose_device("cpu") == torch.device("cpu")
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda check_available: None)
    assert choose_device("auto") == torch.device("cpu")
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda check_available: torch.device("cuda"))
    assert choose_device("auto") == torch.device("cuda")
    with pytest.raises(RegardError, match=r"^the device 'abacus' cannot be used: .*; try --device cpu$"):
        choose_device("abacus")
