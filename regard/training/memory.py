"""Measure the memory that a run uses, on the accelerator or in the process."""

import os
from pathlib import Path

import torch


def memory_in_use(device: torch.device) -> int:
    """Return the peak of an accelerator's memory, or the resident memory of this process, in bytes."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")
    except OSError:  # not available on every system
        return 0
