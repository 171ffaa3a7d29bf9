"""The memory and the CPU cores that this process may use: limits of containers, limits of the shell, other programs.

And whether it has what kernels of Triton need, and which library multiplies faster on its processor.
"""

import os
import re
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from shutil import which
from statistics import median
from time import sleep

SAMPLES = 5  # readings of the programs that run, a few milliseconds apart
UNLIMITED = 2**60  # cgroups of version 1 write a number above this where there is no limit
ZEN_5 = 26  # the family of processors, as /proc/cpuinfo has it
THREADS = "OMP_NUM_THREADS"  # the variable that torch reads when it is imported
FREE_CORES = "REGARD_FREE_CORES"  # is set where this package, not the user, has set that variable


def suggest_threads(root: Path = Path("/")) -> int:
    """Return how many threads to compute with: the cores that are allowed and that other programs leave free.

    With more threads than free cores, each operation waits for the thread that has to share its core.
    """
    free = (os.cpu_count() or 1) - count_running(root)
    return max(1, min(allowed_cores(root), free))


def allowed_cores(root: Path = Path("/")) -> int:
    """Return the number of cores that this process may use: its affinity, and the quota of its container."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    for folder in _cgroups(root, "cpu"):
        quota, period = _numbers(folder / "cpu.max", 2) or (
            _first(folder / "cpu.cfs_quota_us"),
            _first(folder / "cpu.cfs_period_us"),
        )
        if quota is not None and period and quota > 0:
            cores = min(cores, max(1, round(quota / period)))
    return cores


def prefers_onednn(root: Path = Path("/")) -> bool:
    """Return whether oneDNN multiplies numbers of float32 faster than MKL: on processors of AMD from Zen 5 on.

    They compute vectors of 512 bits at once, which MKL does not use there. Zen 4 computes them in two halves.
    """
    text = _text(root / "proc/cpuinfo")
    family = re.search(r"^cpu family\s*:\s*(\d+)$", text, re.MULTILINE)
    return "AuthenticAMD" in text and family is not None and int(family[1]) >= ZEN_5


def count_running(root: Path = Path("/")) -> int:
    """Return how many threads of other programs run at the moment; 0 if the system does not say."""
    found = []
    for number in range(SAMPLES):
        if number:
            sleep(0.004)
        try:
            running = (root / "proc/loadavg").read_text(encoding="ascii").split()[3]
            found.append(int(running.partition("/")[0]))
        except (OSError, ValueError, IndexError):
            return 0
    return max(0, int(median(found)) - 1)  # without the one that asks


def available_memory(root: Path = Path("/")) -> int | None:
    """Return the bytes that the machine, its containers and `ulimit` leave to this process; None if unknown."""
    found = [_meminfo(root)]
    for folder in _cgroups(root, "memory"):
        limit = _first(folder / "memory.max", "memory.limit_in_bytes")
        used = _first(folder / "memory.current", "memory.usage_in_bytes")
        if limit is not None and limit < UNLIMITED:
            found.append(max(limit - (used or 0) + _file_cache(folder), 0))
    found.append(_address_space(root))
    return min((number for number in found if number is not None), default=None)


def _meminfo(root: Path) -> int | None:
    for line in _text(root / "proc/meminfo").splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return None


def _file_cache(folder: Path) -> int:
    """Return the bytes of files that a cgroup keeps in memory and gives up when memory is needed."""
    lines = [line.split() for line in _text(folder / "memory.stat").splitlines()]
    return sum(int(parts[1]) for parts in lines if len(parts) == 2 and parts[0] == "inactive_file")


def _address_space(root: Path) -> int | None:
    """Return what `ulimit -v` leaves; None without such a limit."""
    try:
        import resource
    except ImportError:  # not on Windows
        return None
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit == resource.RLIM_INFINITY:
        return None
    pages = _first(root / "proc/self/statm") or 0
    return max(limit - pages * os.sysconf("SC_PAGE_SIZE"), 0)


def _cgroups(root: Path, controller: str) -> Iterator[Path]:
    """Yield the folders of this process's control groups, of both versions; each may set a limit."""
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            base = root / "sys/fs/cgroup"
        elif controller in controllers.split(","):
            base = root / "sys/fs/cgroup" / controller
        else:
            continue
        inside = Path(path.lstrip("/"))
        yield from (base / part for part in (inside, *inside.parents))


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError):
        return ""


def _numbers(path: Path, count: int) -> list[int] | None:
    words = _text(path).split()
    return [int(word) for word in words[:count]] if len(words) >= count and all(map(str.isdigit, words)) else None


def _first(*paths_or_names: Path | str) -> int | None:
    """Return the number in the first file that has one; names are those of neighbours of the first path."""
    first = Path(paths_or_names[0])
    for other in paths_or_names:
        words = _text(first.parent / other).split()
        if words and words[0].lstrip("-").isdigit():
            return int(words[0])
    return None


def has_triton() -> bool:
    """Return whether kernels of Triton can run on CUDA: it is installed, and it finds the C compiler that it needs."""
    return not what_compiling_lacks("cuda")


def what_compiling_lacks(device: str) -> str:
    """Return what torch needs to compile for a kind of device and does not find; empty if it has everything."""
    if device == "cuda" and find_spec("triton") is None:
        return "Triton is not installed"
    variable, names = {"cuda": ("CC", ("cc", "gcc", "clang")), "cpu": ("CXX", ("c++", "g++", "clang++", "cl"))}.get(
        device, ("", ())
    )
    if not names or any(map(which, filter(None, (os.environ.get(variable), *names)))):
        return ""
    return f"there is no {'C' if device == 'cuda' else 'C++'} compiler ({', '.join(names)})"
