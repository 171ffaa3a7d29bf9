"""Checkpoints: all that a training run needs to go on, in a folder that is there as a whole or not at all.

    step-00000100/
      state.safetensors    tensors by name
      facts.json           {"format": 1, "facts": everything else}
      checksums.json       SHA-256 of both, written last

Of a model that is spread over processes, each writes a file of its own in the place of the state:
`shard-00001-model-00001-of-00001.safetensors` and so on. Any number of processes can read either kind.

It is built as `step-00000100.part`, brought to the disk, and renamed. Where a checkpoint of that step exists already,
it steps aside as `step-00000100.old` until the new one is in its place. So a run killed at any moment leaves the last
good checkpoint or the new one. Nothing is pickled.
"""

import errno
import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from regard.errors import RegardError
from regard.training.ranks import Ranks
from regard.training.shard import is_sharded, read_shards, write_shards

FORMAT = 1
STATE, FACTS, CHECKSUMS = "state.safetensors", "facts.json", "checksums.json"
NAME = re.compile(r"step-(\d{8,})(\.old)?")
SHARD = re.compile(r"shard-.*\.safetensors")
NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
DTYPES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint64: "U64",
    torch.uint32: "U32",
    torch.uint16: "U16",
    torch.uint8: "U8",
    torch.float8_e4m3fn: "F8_E4M3",
    torch.float8_e5m2: "F8_E5M2",
    torch.bool: "BOOL",
}


@dataclass(frozen=True)
class Checkpoint:
    """What was saved after `step`; the tensors are on the CPU, the facts as JSON has them (no tuples)."""

    step: int
    path: Path
    tensors: dict[str, Tensor]
    facts: dict[str, Any]


# --- saving ----------------------------------------------------------------------------------------------------------


def save_checkpoint(
    folder: Path,
    step: int,
    tensors: Mapping[str, Tensor],
    facts: Mapping[str, Any],
    keep: int = 2,
    ranks: Ranks | None = None,
) -> Path:
    """Save a checkpoint, then remove all but the `keep` newest up to this step; give its folder.

    Where several processes have each a part of the tensors, all call this, with `ranks`; the first does the rest.
    """
    assert keep >= 1
    text = json.dumps({"format": FORMAT, "facts": dict(facts)}, indent=2)  # fails before anything is written
    path = folder / _name(step)
    part = folder / f"{path.name}.part"
    if ranks is not None and not ranks.first:
        ranks.wait()  # until the folder is there
        with suppress(OSError):  # the first process is told of it too
            write_shards(part, tensors)
        return path
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _tidy(folder)
        part.mkdir()
        if ranks is None:
            checksums = {STATE: _write(part / STATE, _safetensors(tensors))}
        else:
            ranks.wait()
            write_shards(part, tensors)
            checksums = {file.name: _digest(file) for file in sorted(part.iterdir())}
        checksums[FACTS] = _write(part / FACTS, [text.encode()])
        _write(part / CHECKSUMS, [json.dumps(checksums, indent=2).encode()])
        _sync(part)
        if path.exists():
            path.rename(folder / f"{path.name}.old")
        part.rename(path)
        _sync(folder)
        _prune(folder, step, keep)
    except OSError as error:
        raise RegardError(_refusal(folder, step, tensors, error)) from None
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return path


def _name(step: int) -> str:
    return f"step-{step:08d}"


def _tidy(folder: Path) -> None:
    """Put right what a killed run has left behind."""
    for part in folder.glob("step-*.part"):
        shutil.rmtree(part)
    for old in folder.glob("step-*.old"):
        whole = old.with_suffix("")
        if whole.exists():
            _remove(old)
        else:
            old.rename(whole)


def _prune(folder: Path, step: int, keep: int) -> None:
    """Remove what is older; later steps, left by a run that was then taken up from before them, are not ours."""
    _tidy(folder)
    for old in [earlier for earlier in checkpoint_steps(folder) if earlier <= step][:-keep]:
        _remove(folder / _name(old))


def _remove(path: Path) -> None:
    """Remove a checkpoint at once: half of one would look like a damaged one."""
    part = path.with_name(f"{path.name}.part")
    path.rename(part)
    shutil.rmtree(part)


def _write(path: Path, pieces: Iterable[bytes | memoryview]) -> str:
    """Write a file down to the disk, and give its SHA-256."""
    digest = hashlib.sha256()
    with path.open("wb") as file:
        for piece in pieces:
            file.write(piece)
            digest.update(piece)
        file.flush()
        os.fsync(file.fileno())
    return digest.hexdigest()


def _safetensors(tensors: Mapping[str, Tensor]) -> Iterator[bytes | memoryview]:
    """Give the bytes of a safetensors file, one tensor after the other.

    Its own writer wants all tensors in memory at once, none sharing storage; a large model has no room for a copy.
    """
    names = sorted(tensors, key=lambda name: (-tensors[name].element_size(), name))  # wide ones first: all are aligned
    header, end = {}, 0
    for name in names:
        tensor, start = tensors[name], end
        end += tensor.numel() * tensor.element_size()
        header[name] = {"dtype": DTYPES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [start, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    yield len(text).to_bytes(8, "little")
    yield text
    for name in names:
        yield tensors[name].detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data


def _sync(folder: Path) -> None:
    """Bring the names in a folder to the disk."""
    if os.name == "posix":  # elsewhere a folder cannot be opened, and needs not be
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _refusal(folder: Path, step: int, tensors: Mapping[str, Tensor], error: OSError) -> str:
    """Say why nothing was saved, and what is left."""
    needed = sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
    remedy = "make room there" if error.errno in NO_ROOM else "make the folder writable"
    kept = next((_name(step) for step, path in sorted(_paths(folder).items(), reverse=True) if _is_good(path)), None)
    left = f"the last good checkpoint, {kept}, is kept" if kept else "there is no earlier checkpoint"
    return (
        f"{folder}: cannot save {_name(step)} ({needed / 1e6:.1f} MB): {error.strerror}; "
        f"{remedy} or choose another folder; {left}"
    )


# --- loading ---------------------------------------------------------------------------------------------------------


class _DamageError(Exception):
    """What is wrong with a checkpoint."""


def checkpoint_steps(folder: Path) -> list[int]:
    """List the steps of which there are checkpoints, good or not, the oldest first."""
    return sorted(_paths(folder))


def load_checkpoint(
    folder: Path, warn: Callable[[str], None], like: Mapping[str, Tensor] | None = None
) -> Checkpoint | None:
    """Load the newest good checkpoint, with a warning for each newer one that is damaged; None if there is none.

    Of tensors that are spread over processes in `like`, only the part of this one is read.
    """
    faults: dict[int, str] = {}
    for step, path in sorted(_paths(folder).items(), reverse=True):
        try:
            facts = _check(path)
            tensors = _load(path, like or {})
        except _DamageError as damage:
            faults[step] = str(damage)
        except (OSError, SafetensorError) as error:
            faults[step] = f"{STATE} cannot be read: {error}"
        else:
            for other, fault in faults.items():
                warn(f"checkpoint {_name(other)} is damaged ({fault}); using {_name(step)}")
            return Checkpoint(step, path, tensors, facts)
    if not faults:
        return None
    listed = ", ".join(f"{_name(step)} ({fault})" for step, fault in faults.items())
    raise RegardError(f"{folder}: every checkpoint is damaged: {listed}; restore one, or remove them to start anew")


def _load(path: Path, like: Mapping[str, Tensor]) -> dict[str, Tensor]:
    if (path / STATE).exists() and not any(map(is_sharded, like.values())):
        return load_file(path / STATE)
    return read_shards(path, like)


def _paths(folder: Path) -> dict[int, Path]:
    """Find the checkpoint of each step; one that stepped aside counts only while nothing is in its place."""
    if not folder.is_dir():
        return {}
    try:
        names = sorted(path.name for path in folder.iterdir())
    except OSError as error:
        raise RegardError(f"{folder}: cannot look for checkpoints: {error.strerror}; make it readable") from None
    found: dict[int, Path] = {}
    for match in filter(None, map(NAME.fullmatch, names)):  # sorted, so that `.old` comes second
        found.setdefault(int(match[1]), folder / match[0])
    return found


def _check(path: Path) -> dict[str, Any]:
    """Compare the files with their checksums, and give the facts."""
    checksums = _read_table(path / CHECKSUMS)
    names = set(checksums) - {FACTS}
    if FACTS not in checksums or not (names == {STATE} or (names and all(map(SHARD.fullmatch, names)))):
        raise _DamageError(f"{CHECKSUMS} does not list {STATE} and {FACTS}")
    for name, checksum in checksums.items():
        if _digest(path / name) != checksum:
            raise _DamageError(f"{name} does not match its checksum")
    table = _read_table(path / FACTS)
    if table.get("format") != FORMAT:
        raise _DamageError(f"{FACTS} has format {table.get('format')}, but this version reads format {FORMAT}")
    facts: dict[str, Any] = table["facts"]
    return facts


def _is_good(path: Path) -> bool:
    try:
        _check(path)
    except _DamageError:
        return False
    return True


def _digest(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except FileNotFoundError:
        raise _DamageError(f"{path.name} is missing") from None
    except OSError as error:
        raise _DamageError(f"{path.name} cannot be read: {error.strerror}") from None


def _read_table(path: Path) -> dict[str, Any]:
    try:
        table = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise _DamageError(f"{path.name} is missing") from None
    except (OSError, ValueError):
        raise _DamageError(f"{path.name} cannot be read") from None
    if not isinstance(table, dict):
        raise _DamageError(f"{path.name} holds no table")
    return table
