"""Choosing a device, and copying arrays to it: values stay, and CUDA copies without waiting."""

import numpy as np
import pytest
import torch

from regard.data.device import choose_device, free_memory, to_device
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


def test_free_memory_is_known_for_cuda_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (7, 9))
    assert free_memory(torch.device("cuda")) == 7
    assert free_memory(torch.device("cpu")) is None


def test_a_device_is_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    assert choose_device("cpu") == torch.device("cpu")
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda check_available: None)
    assert choose_device("auto") == torch.device("cpu")
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda check_available: torch.device("cuda"))
    assert choose_device("auto") == torch.device("cuda")


@pytest.mark.parametrize("name", ["gpu", "CPU", "", ":1", "meta", "cuda1"])
def test_an_unknown_device_is_refused(name: str) -> None:
    """The message lists the usual devices, not all that torch can name."""
    with pytest.raises(RegardError) as caught:
        choose_device(name)
    wanted = f"unknown device {name!r}; use auto, cpu, cuda, cuda:1 (the second one), mps or xpu"
    assert str(caught.value) == wanted


@pytest.mark.parametrize("name", ["cuda:x", "mps"])
def test_a_device_that_cannot_be_used_is_refused_with_the_reason(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if name == "mps":  # a machine may have it

        def refuse(*arguments: object, **more: object) -> None:
            raise RuntimeError("Could not run it with the 'MPS' backend. This could be because of this or that. A.\nB")

        monkeypatch.setattr(torch, "empty", refuse)
    with pytest.raises(RegardError, match=r"^the device '[a-z:]+' cannot be used: [^.]+; try --device cpu$"):
        choose_device(name)
