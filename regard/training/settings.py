"""Leave the settings of the process as they were found: random generators, precision, threads, warnings.

Training seeds torch's own generator for every part of an update, and changes settings that belong to the whole process.
A program that calls `regard.train` gets all of them back. Where it turned gradients off, training computes them still;
where it turned autocast on, training chooses its own precision. One thread trains at a time: two would draw from the
same generator, and learn something else in every attempt.
"""

import random
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from threading import RLock

import numpy as np
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from regard.machine import allowed_cores

KNOWN_WARNINGS = (  # of torch, about what is done on purpose
    "RNN module weights are not part of single contiguous chunk of memory",  # of an LSTM with weight dropout
    "Synchronization debug mode is a prototype feature",  # see `capture.py`
)

_SETTINGS = RLock()  # a callback may train, too


def use_threads(count: int | None) -> None:
    """Compute on the CPU with this many threads, if the process may use that many cores; None changes nothing."""
    if count is not None:
        torch.set_num_threads(min(count, allowed_cores()))


@contextmanager
def left_as_found(device: torch.device) -> Iterator[None]:
    """Restore the settings of the process at the end of the `with`, also after an error; other threads wait for it."""
    with _SETTINGS, _restored(device):
        yield


@contextmanager
def _restored(device: torch.device) -> Iterator[None]:
    python, numpy = random.getstate(), np.random.get_state()
    precision, threads = torch.get_float32_matmul_precision(), torch.get_num_threads()
    try:
        with (
            warnings.catch_warnings(),
            torch.random.fork_rng([device] if device.type == "cuda" else []),
            torch.inference_mode(False),
            torch.enable_grad(),
            without_outer_autocast(device),
        ):
            for text in KNOWN_WARNINGS:
                warnings.filterwarnings("ignore", text, UserWarning)
            yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)
        torch.set_float32_matmul_precision(precision)
        torch.set_num_threads(threads)


def without_outer_autocast(device: torch.device) -> AbstractContextManager[object]:
    """Turn off an autocast of the caller, and the cache of all inside it, which is emptied when the outermost one ends.

    Until then they would compute with copies of the weights as these were in the first update.
    """
    depth = torch.autocast_increment_nesting()
    torch.autocast_decrement_nesting()
    return torch.autocast(device.type, enabled=False, cache_enabled=False) if depth > 1 else nullcontext()


def without_attention_plans(device: torch.device) -> AbstractContextManager[None]:
    """On CUDA, choose attention kernels without cuDNN, which plans for each new shape; validations have many shapes."""
    if device.type != "cuda":
        return nullcontext()
    return sdpa_kernel([SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH])
