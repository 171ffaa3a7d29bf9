"""Record each session of a run: when a process began to train it, by which command, on which machine, on which files.

A run has one session, and one more each time it is resumed. `sessions.jsonl` holds one JSON object per line; the report
shows them.
"""

import hashlib
import json
import os
import platform
import shlex
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from regard import __version__
from regard.atomic import sha256, write_text
from regard.runs.layout import SESSIONS
from regard.runs.records import read_sessions
from regard.training.ranks import Ranks

LARGEST = 4 << 30  # bytes of a file that is hashed; a larger one would delay the start by more than some seconds


def note_session(folder: Path, step: int, ranks: Ranks, files: Iterable[str]) -> None:
    """Add the session that begins now at `step`; `files` are those whose checksums are computed."""
    session = {
        "step": step,
        "time": round(time.time(), 3),
        "command": command(),
        "versions": {"regard": __version__, "torch": torch.__version__, "python": platform.python_version()},
        "machine": machine(ranks.device),
        "processes": ranks.world,
        "files": [describe_file(Path(file)) for file in files],
    }
    lines = [json.dumps(record, ensure_ascii=False) for record in (*read_sessions(folder), session)]
    with_surrogates = "".join(f"{line}\n" for line in lines)
    write_text(folder / SESSIONS, with_surrogates.encode("utf-8", "backslashreplace").decode())


def command() -> str:
    """Return the command line of this process; `regard` for the several files that start it."""
    program = Path(sys.argv[0] or "python").name
    return shlex.join(["regard" if program in ("__main__.py", "main.py") else program, *sys.argv[1:]])


def machine(device: torch.device) -> str:
    """Describe the machine: processor, cores, memory, accelerator, system."""
    parts = [_processor(), f"{os.cpu_count()} cores"]
    with suppress(ValueError, OSError, AttributeError):  # not on every system
        parts.append(f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.0f} GB")
    if device.type == "cuda":
        parts.append(torch.cuda.get_device_name(device))
    elif device.type != "cpu":
        parts.append(device.type)
    return ", ".join([*parts, f"{platform.system()} {platform.release()}"])


def task_files(config: Any) -> list[str]:
    """List the files and folders that a task reads."""
    values = [getattr(config, key, None) for key in config.file_keys]
    names = [[value] if isinstance(value, str) else list(value or ()) for value in values]
    return [str(name) for group in names for name in group]


def describe_file(path: Path) -> dict[str, Any]:
    """Return name, size and checksum of a file; for a folder, the checksum is of the names and sizes in it."""
    if path.is_dir():
        sizes = dict(sorted(_sizes(path)))
        listing = hashlib.sha256(json.dumps(sizes).encode()).hexdigest()
        return {"path": str(path), "files": len(sizes), "bytes": sum(sizes.values()), "listing": listing}
    size = path.stat().st_size if path.exists() else 0
    whole = path.is_file() and size <= LARGEST
    return {"path": str(path), "bytes": size, "sha256": sha256(path) if whole else None}


def _sizes(folder: Path) -> Iterator[tuple[str, int]]:
    for parent, _, names in os.walk(folder):
        for name in names:
            path = Path(parent, name)
            with suppress(OSError):  # removed meanwhile, or a broken link
                yield str(path.relative_to(folder)), path.stat().st_size


def _processor() -> str:
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
