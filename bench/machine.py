"""The machine that is measured: its name, its software, and its own ceilings for products and copies."""

import os
import platform
import time
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

PACKAGES = ("torch", "numpy", "transformers", "accelerate", "timm", "x-transformers", "ctranslate2", "tokenizers")
SIZES = {"cpu": (2048, 2**26), "cuda": (8192, 2**30)}  # side of a matrix, bytes of a copy


def describe_machine(device: str, threads: int) -> dict[str, Any]:
    """Return what a reader must know about the machine."""
    return {
        "device": device,
        "name": _gpu_name() if device == "cuda" else _cpu_name(),
        "threads": threads,
        "cores": os.cpu_count(),
        "load": busy_cores(),  # before anything is run
        "python": platform.python_version(),
        "packages": {name: found for name in PACKAGES if (found := _installed(name))},
    }


def busy_cores(seconds: float = 1.0) -> float:
    """Return how many cores other programs use, in the mean over this time; the usual load reaches minutes back."""
    try:
        total, idle = _ticks()
        time.sleep(seconds)
        later, later_idle = _ticks()
    except OSError:  # not Linux
        return os.getloadavg()[0]
    return (os.cpu_count() or 1) * (1 - (later_idle - idle) / max(1, later - total))


def _ticks() -> tuple[int, int]:
    """Return the time of all cores since the start of the machine, and that in which they had nothing to do."""
    user, nice, system, idle, wait_for_disk, *other = map(int, Path("/proc/stat").read_text().split()[1:9])
    return user + nice + system + idle + wait_for_disk + sum(other), idle + wait_for_disk


def measure_ceilings(device: str, threads: int) -> dict[str, float]:
    """Return operations a second of a large product, and bytes a second of a large copy (read and written)."""
    import torch

    torch.set_num_threads(threads)
    torch.set_float32_matmul_precision("high")
    side, size = SIZES[device]
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    matrix = torch.randn(side, side, device=device, dtype=dtype)
    data = torch.ones(size, dtype=torch.uint8, device=device)
    target = torch.empty_like(data)
    product = min(_seconds(multiply, device) for multiply in _products(matrix))
    copy = _seconds(lambda: target.copy_(data), device)
    del matrix, data, target
    release(device)
    return {"operations_per_s": 2 * side**3 / product, "bytes_per_s": 2 * size / copy}


def _products(matrix: Any) -> list[Callable[[], object]]:
    """Return the ways in which torch multiplies such matrices: by its default library and, on a CPU, by oneDNN."""
    import torch

    ways = [lambda: matrix @ matrix]
    if matrix.device.type == "cpu" and torch.backends.mkldnn.is_available():
        ways.append(lambda: torch.ops.mkldnn._linear_pointwise(matrix, matrix, None, "none", [], ""))
    return ways


def _seconds(work: Callable[[], object], device: str) -> float:
    """Return the least time of the work: other programs may disturb some of its runs."""
    times = []
    for _ in range(20):
        begun = time.perf_counter()
        work()
        wait(device)
        times.append(time.perf_counter() - begun)
    return min(times)


def wait(device: str) -> None:
    """Wait until the device has done all work."""
    if device == "cuda":
        import torch

        torch.cuda.synchronize()


def release(device: str) -> None:
    """Release memory of an accelerator that is kept for later, since others may need it first."""
    if device == "cuda":
        import torch

        torch.cuda.empty_cache()


def peak_megabytes(device: str) -> float:
    """Return the peak of memory: allocated on an accelerator, resident in this process on the CPU."""
    if device == "cuda":
        import torch

        return torch.cuda.max_memory_allocated() / 1e6
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next((int(line.split()[1]) / 1000 for line in lines if line.startswith("VmHWM")), 0.0)


def _installed(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _gpu_name() -> str:
    import torch

    return torch.cuda.get_device_name()


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown CPU")
