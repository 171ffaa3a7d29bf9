"""Make train.npz and test.npz of CIFAR-10 (Krizhevsky 2009), from the official archive or from sheets of tiles."""

from __future__ import annotations

import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
from jaxtyping import Int64, UInt8

from regard.atomic import write_file
from regard.data.lines import read_lines
from regard.errors import InputError

ARCHIVE = "cifar-10-binary.tar.gz"
SHEETS = {"train": tuple(f"train_{number}.jpg" for number in range(1, 6)), "test": ("test.webp",)}
BATCHES = {"train": tuple(f"data_batch_{number}.bin" for number in range(1, 6)), "test": ("test_batch.bin",)}
SIDE = 32

CifarPixels = UInt8[np.ndarray, "N 32 32 3"]
CifarLabels = Int64[np.ndarray, "N"]


def pack_cifar(found: Mapping[str, Path], to: Path) -> None:
    """Write train.npz and test.npz, each with `images` uint8 (N, 32, 32, 3) and `labels` int64 (N,)."""
    splits = _from_archive(found[ARCHIVE]) if ARCHIVE in found else _from_sheets(found)
    for split, images, labels in splits:
        if len(images) != len(labels):
            raise InputError(f"cifar10 {split}: {len(images)} images but {len(labels)} labels; fetch the files again")
        with write_file(to / f"{split}.npz") as part, part.open("wb") as file:
            np.savez(file, images=images, labels=labels)


def _from_archive(path: Path) -> Iterator[tuple[str, CifarPixels, CifarLabels]]:
    """Read records of 3073 bytes: the label, then 32 x 32 pixels of red, green and blue."""
    with tarfile.open(path) as archive:
        members = {Path(member.name).name: member for member in archive.getmembers()}
        for split, names in BATCHES.items():
            files = (archive.extractfile(members[name]) for name in names)
            content = b"".join(file.read() for file in files if file is not None)
            records = np.frombuffer(content, np.uint8).reshape(-1, 1 + 3 * SIDE * SIDE)
            images = records[:, 1:].reshape(-1, 3, SIDE, SIDE).transpose(0, 2, 3, 1)
            yield split, images, records[:, 0].astype(np.int64)


def _from_sheets(found: Mapping[str, Path]) -> Iterator[tuple[str, CifarPixels, CifarLabels]]:
    for split, names in SHEETS.items():
        labels = [int(line) for line in read_lines(found[f"{split}_labels.txt"])]
        yield split, np.concatenate([_cut_sheet(found[name]) for name in names]), np.array(labels, np.int64)


def _cut_sheet(path: Path) -> CifarPixels:
    """Cut an image into its tiles of 32 x 32 pixels, row by row."""
    from PIL import Image

    with Image.open(path) as picture:
        pixels = np.asarray(picture.convert("RGB"))
    rows, columns = pixels.shape[0] // SIDE, pixels.shape[1] // SIDE
    tiles = pixels.reshape(rows, SIDE, columns, SIDE, 3).swapaxes(1, 2)
    return tiles.reshape(-1, SIDE, SIDE, 3)
