"""Read checkpoints: the training state after a step, in a folder that is complete or absent.

    step-00000100/
      state.safetensors    tensors by name: model/..., optimizer/..., average/... (moving average), carried/...
      facts.json           {"format": 2, "facts": everything else}
      checksums.json       SHA-256 of both, written last

A model that is sharded over processes is saved as one file per process in place of the state:
`shard-00001-model-00001-of-00001.safetensors` and so on. Any number of processes can read either kind. Nothing is
pickled. `training/checkpoint.py` writes them.
"""

import re
import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from regard.atomic import sha256
from regard.errors import RegardError
from regard.runs.layout import step_name
from regard.untrusted import JsonError, read_json

FORMAT = 2
STATE, FACTS, CHECKSUMS = "state.safetensors", "facts.json", "checksums.json"
CHECKPOINT_NAME = re.compile(r"step-(\d{8,})(\.old)?")
SHARD = re.compile(r"shard-.*\.safetensors")


@dataclass(frozen=True)
class Checkpoint:
    """The state after `step`; the tensors are on the CPU, the facts are plain JSON values."""

    step: int
    path: Path
    tensors: dict[str, Tensor]
    facts: dict[str, Any]


class DamageError(Exception):
    """A checkpoint is damaged; the message says how."""


def checkpoint_paths(folder: Path) -> dict[int, Path]:
    """Find the checkpoint of each step; a renamed old one (`.old`) counts only while no new one is in its place."""
    if not folder.is_dir():
        return {}
    try:
        names = sorted(path.name for path in folder.iterdir())
    except OSError as error:
        raise RegardError(f"{folder}: cannot list the checkpoints: {error.strerror}; make it readable") from None
    found: dict[int, Path] = {}
    for match in filter(None, map(CHECKPOINT_NAME.fullmatch, names)):  # sorted, so that `.old` comes second
        found.setdefault(int(match[1]), folder / match[0])
    return found


def checkpoint_steps(folder: Path) -> list[int]:
    """Return the steps that have a checkpoint, good or damaged, in order."""
    return sorted(checkpoint_paths(folder))


def load_checkpoint(
    folder: Path, warn: Callable[[str], None], like: Mapping[str, Tensor] | None = None
) -> Checkpoint | None:
    """Load the newest good checkpoint, with a warning for each newer one that is damaged; None if there is none.

    Of tensors that are sharded in `like`, only the shard of this process is read.
    """
    faults: dict[int, str] = {}
    for step, path in sorted(checkpoint_paths(folder).items(), reverse=True):
        try:
            facts = check_checkpoint(path)
            tensors = read_state(path, like or {})
        except DamageError as damage:
            faults[step] = str(damage)
        else:
            for other, fault in faults.items():
                warn(f"checkpoint {step_name(other)} is damaged ({fault}); using {step_name(step)}")
            return Checkpoint(step, path, tensors, facts)
    if not faults:
        return None
    listed = ", ".join(f"{step_name(step)} ({fault})" for step, fault in faults.items())
    raise RegardError(f"{folder}: every checkpoint is damaged: {listed}; restore one, or remove them to start again")


def newest_facts(folder: Path) -> dict[str, Any]:
    """Return the facts of the newest checkpoint whose facts can be read, without a look at its tensors."""
    for _, path in sorted(checkpoint_paths(folder).items(), reverse=True):
        with suppress(DamageError):
            facts = _read_table(path / FACTS).get("facts")
            if isinstance(facts, dict):
                return facts
    return {}


def check_checkpoint(path: Path) -> dict[str, Any]:
    """Compare the files of a checkpoint with their checksums; return the facts."""
    checksums = _read_table(path / CHECKSUMS)
    names = set(checksums) - {FACTS}
    if FACTS not in checksums or not (names == {STATE} or (names and all(map(SHARD.fullmatch, names)))):
        raise DamageError(f"{CHECKSUMS} does not list {STATE} and {FACTS}")
    for name, checksum in checksums.items():
        if _digest(path / name) != checksum:
            raise DamageError(f"{name} does not match its checksum")
    table = _read_table(path / FACTS)
    if table.get("format") != FORMAT:
        raise DamageError(f"{FACTS} has format {table.get('format')}, but this version reads format {FORMAT}")
    facts = table.get("facts")
    if not isinstance(facts, dict):
        raise DamageError(f"{FACTS} has no facts")
    return facts


def is_good(path: Path) -> bool:
    """Return whether a checkpoint is complete and undamaged."""
    try:
        check_checkpoint(path)
    except DamageError:
        return False
    return True


def read_state(path: Path, like: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Read the tensors of a checkpoint; of those that are sharded in `like`, only the shard of this process."""
    try:
        if (path / STATE).exists() and not any(map(is_sharded, like.values())):
            return load_file(path / STATE)
        return _read_shards(path, like)
    except (OSError, SafetensorError) as error:
        raise DamageError(f"{STATE} cannot be read: {error}") from None


def is_sharded(tensor: Tensor) -> bool:
    """Return whether this process holds only a shard of a tensor.

    A DTensor is recognised by its method `to_local`: importing the class takes half a second.
    """
    return hasattr(tensor, "to_local")


def _read_shards(folder: Path, like: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Read all tensors of the safetensors files in a folder: complete, or this process's shard if sharded in `like`."""
    from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader
    from torch.distributed.checkpoint.state_dict_loader import load

    reader = HuggingFaceStorageReader(str(folder))
    found: Any = reader.read_metadata().state_dict_metadata
    tensors: dict[str, Tensor] = {
        name: torch.empty_like(like[name])
        if name in like and is_sharded(like[name])
        else torch.empty(about.size, dtype=about.properties.dtype)
        for name, about in found.items()
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # "no_dist": each process reads on its own, on purpose
        load(dict(tensors), storage_reader=reader, no_dist=True)
    return tensors


def _digest(path: Path) -> str:
    if not path.exists():
        raise DamageError(f"{path.name} is missing")
    try:
        return sha256(path)
    except RegardError as error:
        raise DamageError(f"{path.name} {str(error).removeprefix(f'{path}: ')}") from None


def _read_table(path: Path) -> dict[str, Any]:
    if not path.exists():
        raise DamageError(f"{path.name} is missing")
    try:
        return read_json(path)
    except JsonError as error:
        raise DamageError(f"{path.name} {error.reason.partition(': ')[0]}") from None
