"""Write checkpoints; `runs/checkpoint.py` describes the format and reads them.

A checkpoint is built as `step-00000100.part`, flushed to the disk, and renamed. A checkpoint of the same step is first
renamed to `step-00000100.old` and removed when the new one is in place. A run that is killed at any moment leaves the
last good checkpoint or the new one. `regard.atomic` is not used: several processes write one folder together, and the
old checkpoint must be found again after a crash between the two renames.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regard.atomic import NO_SPACE, sha256
from regard.errors import RegardError
from regard.models.store import DTYPES
from regard.runs.checkpoint import CHECKSUMS, FACTS, FORMAT, STATE, checkpoint_paths, checkpoint_steps, is_good
from regard.runs.layout import step_name
from regard.training.ranks import Ranks
from regard.training.shard import write_shards

TOGETHER = 2**26  # bytes that are copied from an accelerator at once
DTYPE_NAMES = {dtype: name for name, dtype in DTYPES.items()}


def save_checkpoint(
    folder: Path,
    step: int,
    tensors: Mapping[str, Tensor],
    facts: Mapping[str, Any],
    keep: int = 2,
    ranks: Ranks | None = None,
) -> Path:
    """Save a checkpoint, then remove all but the `keep` newest up to this step; return its folder.

    If the tensors are sharded, all processes call this with `ranks` and write their shards; the first does the rest.
    """
    assert keep >= 1
    text = json.dumps({"format": FORMAT, "facts": dict(facts)}, indent=2)  # fails before anything is written
    path = folder / step_name(step)
    part = folder / f"{path.name}.part"
    if ranks is not None and not ranks.first:
        ranks.wait()  # until the folder exists
        with suppress(OSError):  # the first process gets the error, too, and reports it
            write_shards(part, tensors)
        return path
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _clean_up(folder)
        part.mkdir()
        if ranks is None:
            checksums = {STATE: _write(part / STATE, _safetensors(tensors))}
        else:
            ranks.wait()
            write_shards(part, tensors)
            checksums = {file.name: sha256(file) for file in sorted(part.iterdir())}
        checksums[FACTS] = _write(part / FACTS, [text.encode()])
        _write(part / CHECKSUMS, [json.dumps(checksums, indent=2).encode()])
        _sync(part)
        if path.exists():
            path.rename(folder / f"{path.name}.old")
        part.rename(path)
        _sync(folder)
        prune_checkpoints(folder, step, keep)
    except OSError as error:
        raise RegardError(_save_error(folder, step, tensors, error)) from None
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return path


def _clean_up(folder: Path) -> None:
    """Remove unfinished checkpoints of a killed run, and restore or remove renamed old ones."""
    for part in folder.glob("step-*.part"):
        shutil.rmtree(part)
    for old in folder.glob("step-*.old"):
        whole = old.with_suffix("")
        if whole.exists():
            _remove(old)
        else:
            old.rename(whole)


def prune_checkpoints(folder: Path, step: int, keep: int) -> None:
    """Remove all but the `keep` newest checkpoints up to a step.

    Later steps stay: they belong to a run that was then resumed from an earlier step.
    """
    _clean_up(folder)
    for old in [earlier for earlier in checkpoint_steps(folder) if earlier <= step][:-keep]:
        _remove(folder / step_name(old))


def _remove(path: Path) -> None:
    """Rename a checkpoint, then remove it: a half-removed one would look damaged."""
    part = path.with_name(f"{path.name}.part")
    path.rename(part)
    shutil.rmtree(part)


def _write(path: Path, pieces: Iterable[bytes | memoryview]) -> str:
    """Write a file, flush it to the disk, and return its SHA-256."""
    digest = hashlib.sha256()
    with path.open("wb") as file:
        for piece in pieces:
            file.write(piece)
            digest.update(piece)
        file.flush()
        os.fsync(file.fileno())
    return digest.hexdigest()


def _safetensors(tensors: Mapping[str, Tensor]) -> Iterator[bytes | memoryview]:
    """Yield the bytes of a safetensors file, one tensor after the other.

    `safetensors.torch.save_file` needs all tensors on the CPU at once, which takes a copy of the model.
    """
    # wide types first, so that every tensor starts at a multiple of its item size
    names = sorted(tensors, key=lambda name: (-tensors[name].element_size(), name))
    header, end = {}, 0
    for name in names:
        tensor, start = tensors[name], end
        end += tensor.numel() * tensor.element_size()
        header[name] = {"dtype": DTYPE_NAMES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [start, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    yield len(text).to_bytes(8, "little")
    yield text
    for group in _groups([tensors[name] for name in names]):
        parts = [tensor.detach().contiguous().reshape(-1).view(torch.uint8) for tensor in group]
        yield (parts[0] if len(parts) == 1 else torch.cat(parts)).cpu().numpy().data


def _groups(tensors: list[Tensor]) -> Iterator[list[Tensor]]:
    """Yield tensors that are copied together: those of an accelerator up to `TOGETHER` bytes, others one by one.

    A model has hundreds of small ones, and each copy waits for the accelerator.
    """
    group: list[Tensor] = []
    for tensor in tensors:
        more = tensor.device.type != "cpu" and sum(each.nbytes for each in group) + tensor.nbytes <= TOGETHER
        if group and not more:
            yield group
            group = []
        group.append(tensor)
    if group:
        yield group


def _sync(folder: Path) -> None:
    """Flush the names in a folder to the disk."""
    if os.name == "posix":  # elsewhere a folder cannot be opened
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _save_error(folder: Path, step: int, tensors: Mapping[str, Tensor], error: OSError) -> str:
    """Return the message that says why saving failed, and which checkpoint is left."""
    needed = sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
    remedy = "free some space there" if error.errno in NO_SPACE else "make the folder writable"
    kept = next(
        (step_name(step) for step, path in sorted(checkpoint_paths(folder).items(), reverse=True) if is_good(path)),
        None,
    )
    left = f"the last good checkpoint, {kept}, is kept" if kept else "there is no earlier checkpoint"
    return (
        f"{folder}: cannot save {step_name(step)} ({needed / 1e6:.1f} MB): {error.strerror}; "
        f"{remedy} or choose another folder; {left}"
    )
