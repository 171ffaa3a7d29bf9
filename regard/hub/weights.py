"""The weights of a Hugging Face folder: one safetensors file or several, memory-mapped; a pickle only if allowed.

Names and shapes are known from the headers before anything is read. The safetensors library itself refuses headers
whose sizes do not fit the file.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from regard.errors import RegardError
from regard.hub.changes import Shape

WHOLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
PICKLES = ("pytorch_model.bin", "pytorch_model.bin.index.json")
DTYPES = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}


@dataclass(frozen=True)
class Weights:
    """What the files of a folder hold: the shape and the precision of each weight, and how to get it."""

    place: str
    shapes: Mapping[str, Shape]
    dtypes: Mapping[str, torch.dtype | None]  # None: no floating point
    get: Callable[[str], Tensor]

    @property
    def numbers(self) -> int:
        """How many numbers there are in all."""
        return sum(prod(shape) for shape in self.shapes.values())


def open_weights(folder: Path, allow_pickle: bool = False) -> Weights:
    """Open the weights of a folder."""
    if (folder / WHOLE).exists():
        return _safetensors(folder / WHOLE, [folder / WHOLE])
    if (folder / INDEX).exists():
        return _sharded(folder / INDEX, _safetensors)
    for name in PICKLES:
        if (folder / name).exists():
            if not allow_pickle:
                remedy = "take the folder with model.safetensors, or allow it (--allow-pickle), if you trust its author"
                raise RegardError(f"{folder / name}: is a pickle, which can hold programs, and is not read; {remedy}")
            return _pickled(folder / name, [folder / name]) if name == PICKLES[0] else _sharded(folder / name, _pickled)
    raise RegardError(f"{folder}: holds no weights ({WHOLE}, or {INDEX} and its parts)")


def _sharded(index: Path, open_files: Callable[[Path, list[Path]], Weights]) -> Weights:
    """Open the files that an index lists; each must hold exactly what the index says."""
    table = read_json(index).get("weight_map")
    if not isinstance(table, dict) or not all(isinstance(name, str) for name in table.values()):
        raise RegardError(f"{index}: has no weight_map that gives a file for each weight")
    names = sorted(set(table.values()))
    for name in names:
        if Path(name).name != name or name in ("", ".", ".."):
            raise RegardError(f"{index}: {name!r} must be the name of a file in the same folder")
        if not (index.parent / name).exists():
            raise RegardError(f"{index}: its part {name} is missing")
    weights = open_files(index, [index.parent / name for name in names])
    for name in sorted(set(table) ^ set(weights.shapes)):
        where = f"in {table[name]}, but it is not" if name in table else "in no file, but one holds it"
        raise RegardError(f"{index}: the weight {name!r} should be {where}")
    return weights


def _safetensors(place: Path, paths: list[Path]) -> Weights:
    homes: dict[str, Any] = {}
    shapes: dict[str, Shape] = {}
    dtypes: dict[str, torch.dtype | None] = {}
    for path in paths:
        try:
            file = safe_open(path, framework="pt")
        except (OSError, SafetensorError) as error:
            raise RegardError(f"{path}: no weights can be read from here: {error}") from None
        for name in file.keys():  # noqa: SIM118
            header = file.get_slice(name)
            homes[name], shapes[name] = file, tuple(header.get_shape())
            dtypes[name] = DTYPES.get(header.get_dtype())
    return Weights(str(place), shapes, dtypes, lambda name: homes[name].get_tensor(name))


def _pickled(place: Path, paths: list[Path]) -> Weights:
    """Read pickles with torch's loader that builds tensors only and calls nothing."""
    tensors: dict[str, Tensor] = {}
    for path in paths:
        try:
            found = torch.load(path, map_location="cpu", weights_only=True)
        except (OSError, RuntimeError, UnpicklingError, EOFError, KeyError, ValueError) as error:
            reason = str(error).strip().partition("\n")[0]
            raise RegardError(f"{path}: no weights can be read from here: {reason}") from None
        if not isinstance(found, dict) or not all(isinstance(value, Tensor) for value in found.values()):
            raise RegardError(f"{path}: must hold a table of tensors and nothing else")
        tensors.update(found)
    shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    dtypes = {name: tensor.dtype if tensor.is_floating_point() else None for name, tensor in tensors.items()}
    return Weights(str(place), shapes, dtypes, tensors.__getitem__)


def read_json(path: Path) -> dict[str, Any]:
    """Read a table from a JSON file."""
    try:
        table = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise RegardError(f"{path}: cannot be read: {error.strerror}") from None
    except (UnicodeDecodeError, ValueError, RecursionError) as error:
        raise RegardError(f"{path}: is no JSON: {error}") from None
    if not isinstance(table, dict):
        raise RegardError(f"{path}: must hold a table, not {type(table).__name__}")
    return table
