"""The weights of a Hugging Face folder: one or several memory-mapped safetensors files; a pickle only if allowed.

Names and shapes are known from the headers before any weight is read. The safetensors library rejects headers whose
sizes do not fit the file.
"""

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
from regard.untrusted import read_json

SINGLE_FILE = "model.safetensors"
INDEX = "model.safetensors.index.json"
PICKLES = ("pytorch_model.bin", "pytorch_model.bin.index.json")
DTYPES = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}


@dataclass(frozen=True)
class FolderWeights:
    """The weights in a folder: shape and precision of each, and a function that returns it."""

    place: str
    shapes: Mapping[str, Shape]
    dtypes: Mapping[str, torch.dtype | None]  # None: not floating point
    get: Callable[[str], Tensor]

    @property
    def total(self) -> int:
        """The number of elements of all weights together."""
        return sum(prod(shape) for shape in self.shapes.values())


def open_weights(folder: Path, allow_pickle: bool = False) -> FolderWeights:
    """Open the weights of a folder."""
    if (folder / SINGLE_FILE).exists():
        return _safetensors(folder / SINGLE_FILE, [folder / SINGLE_FILE])
    if (folder / INDEX).exists():
        return _sharded(folder / INDEX, _safetensors)
    for name in PICKLES:
        if (folder / name).exists():
            if not allow_pickle:
                remedy = "use a folder with model.safetensors, or allow it with --allow-pickle if you trust its author"
                raise RegardError(
                    f"{folder / name}: is a pickle, which can contain programs, so it is not read; {remedy}"
                )
            return _pickled(folder / name, [folder / name]) if name == PICKLES[0] else _sharded(folder / name, _pickled)
    raise RegardError(f"{folder}: contains no weights ({SINGLE_FILE}, or {INDEX} and its files)")


def _sharded(index: Path, open_files: Callable[[Path, list[Path]], FolderWeights]) -> FolderWeights:
    """Open the files that an index lists; they must contain exactly the weights that it lists."""
    table = read_json(index).get("weight_map")
    if not isinstance(table, dict) or not all(isinstance(name, str) for name in table.values()):
        raise RegardError(f"{index}: has no weight_map from weights to files")
    names = sorted(set(table.values()))
    for name in names:
        if Path(name).name != name or name in ("", ".", ".."):
            raise RegardError(f"{index}: {name!r} must be the name of a file in the same folder")
        if not (index.parent / name).exists():
            raise RegardError(f"{index}: the file {name} is missing")
    weights = open_files(index, [index.parent / name for name in names])
    for name in sorted(set(table) ^ set(weights.shapes)):
        trouble = f"is not in {table[name]}" if name in table else "is in a file but not in the index"
        raise RegardError(f"{index}: the weight {name!r} {trouble}")
    return weights


def _safetensors(place: Path, paths: list[Path]) -> FolderWeights:
    files: dict[str, Any] = {}
    shapes: dict[str, Shape] = {}
    dtypes: dict[str, torch.dtype | None] = {}
    for path in paths:
        try:
            file = safe_open(path, framework="pt")
        except (OSError, SafetensorError) as error:
            raise RegardError(f"{path}: cannot read weights: {error}") from None
        for name in file.keys():  # noqa: SIM118
            header = file.get_slice(name)
            files[name], shapes[name] = file, tuple(header.get_shape())
            dtypes[name] = DTYPES.get(header.get_dtype())
    return FolderWeights(str(place), shapes, dtypes, lambda name: files[name].get_tensor(name))


def _pickled(place: Path, paths: list[Path]) -> FolderWeights:
    """Read pickles with torch's restricted loader, which builds tensors and runs no code."""
    tensors: dict[str, Tensor] = {}
    for path in paths:
        try:
            found = torch.load(path, map_location="cpu", weights_only=True)
        except (OSError, RuntimeError, UnpicklingError, EOFError, KeyError, ValueError) as error:
            reason = str(error).strip().partition("\n")[0]
            raise RegardError(f"{path}: cannot read weights: {reason}") from None
        if not isinstance(found, dict) or not all(isinstance(value, Tensor) for value in found.values()):
            raise RegardError(f"{path}: must contain a table of tensors and nothing else")
        tensors.update(found)
    shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    dtypes = {name: tensor.dtype if tensor.is_floating_point() else None for name, tensor in tensors.items()}
    return FolderWeights(str(place), shapes, dtypes, tensors.__getitem__)
