"""Image files, decoded once into a cache that is mapped into memory.

Neither the first run nor a later one needs memory for all images. The cache knows a set of images by the paths, sizes
and times of its files and by the size asked for, so a changed file is decoded again.
"""

import hashlib
import json
import os
import shutil
import warnings
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from io import BytesIO
from math import prod
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Bool, UInt8

from regard.data.corpus import cache_folder
from regard.errors import InputError, RegardError

if TYPE_CHECKING:
    from PIL.Image import Image

EXTENSIONS = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif")
FORMATS = ("PNG", "JPEG", "WEBP", "BMP", "GIF")  # nothing else is tried, whatever is inside a file
GREY = ("1", "L", "LA", "I", "I;16", "I;16B", "I;16L")
SIDE = 64  # of images that have no size in common
WORKERS = min(8, os.cpu_count() or 1)
ORIENTATION = 0x0112  # in a camera's notes; from 5 on the picture lies on its side

Shape = tuple[int, int, int]  # height, width, channels
Decoded = tuple[UInt8[np.ndarray, "kept H W C"], Bool[np.ndarray, "N"]]


def decode(files: Mapping[str, Sequence[Path]], size: int | None) -> dict[str, Decoded]:
    """Give the pixels of all files that can be decoded, and which these are, for each split.

    All splits get the size and the channels of "train": `size` x `size`, or else the size that all images have, or else
    64 x 64; grey if all are grey, otherwise RGB.
    """
    folder = cache_folder() / "images" / _key(files, size)
    found = _open(folder, files)
    if found is None:
        _build(folder, files, size)
        found = _open(folder, files)
    assert found is not None
    return found


def resize(pixels: UInt8[np.ndarray, "N H W C"], size: int) -> UInt8[np.ndarray, "N {size} {size} C"]:
    """Bring images that are in memory to another size, as those in files."""
    from PIL.Image import fromarray

    count, *_, channels = pixels.shape
    resized = np.empty((count, size, size, channels), np.uint8)
    for image, row in zip(pixels, resized, strict=True):
        row[:] = _fit(fromarray(image[..., 0] if channels == 1 else image), (size, size, channels))
    return resized


# --- the cache -------------------------------------------------------------------------------------------------------


def _key(files: Mapping[str, Sequence[Path]], size: int | None) -> str:
    def known(file: Path) -> tuple[str, int, int]:
        status = file.stat()
        return os.path.abspath(file), status.st_size, status.st_mtime_ns

    key = {"size": size, "files": {split: [known(file) for file in paths] for split, paths in files.items()}}
    return hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()


def _open(folder: Path, splits: Iterable[str]) -> dict[str, Decoded] | None:
    """Map what the folder holds; None if it is not there, or damaged."""
    found = {}
    try:
        for split in splits:
            kept = np.load(folder / f"{split}-kept.npy", allow_pickle=False)
            pixels = np.load(folder / f"{split}.npy", mmap_mode="r", allow_pickle=False)
            found[split] = pixels[: int(kept.sum())], kept
    except (OSError, ValueError, EOFError):
        return None
    return found


def _build(folder: Path, files: Mapping[str, Sequence[Path]], size: int | None) -> None:
    """Fill the folder, which appears whole or not at all."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=folder.parent) as beside:
            part = Path(beside, "part")
            part.mkdir()
            _decode_all(files, size, part)
            try:
                part.rename(folder)
            except OSError:  # another process was quicker, with the same images, or what is there is damaged
                if _open(folder, files) is None:
                    shutil.rmtree(folder, ignore_errors=True)
                    part.rename(folder)
    except OSError as error:
        remedy = "make room, or let REGARD_CACHE name another folder"
        raise RegardError(f"{folder}: cannot keep the decoded images: {error.strerror or error}; {remedy}") from None


def _decode_all(files: Mapping[str, Sequence[Path]], size: int | None, folder: Path) -> None:
    with ThreadPoolExecutor(WORKERS) as pool, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Pillow's remarks on odd files; what it cannot decode is counted
        shape = _shape_for_all(files["train"], size, pool)
        for split, paths in files.items():
            kept = _write(folder / f"{split}.npy", paths, shape, pool)
            np.save(folder / f"{split}-kept.npy", kept)


def _write(path: Path, files: Sequence[Path], shape: Shape, pool: ThreadPoolExecutor) -> Bool[np.ndarray, "N"]:
    """Write the images one after the other as a .npy, and tell which could be decoded.

    By plain writing, since a full disk is an error there, but the end of the process in a memory map. The header comes
    first and counts all files, so zeros stand at the end for those that could not be decoded.
    """
    kept = np.zeros(len(files), bool)
    header = {"descr": "|u1", "fortran_order": False, "shape": (len(files), *shape)}
    with path.open("wb") as out:
        np.lib.format.write_array_header_1_0(out, header)
        for start in range(0, len(files), 4 * WORKERS):  # few at a time, so that few are in memory
            few = files[start : start + 4 * WORKERS]
            for row, pixels in enumerate(pool.map(partial(decode_file, shape=shape), few), start):
                if pixels is not None:
                    out.write(pixels.tobytes())
                    kept[row] = True
        for _ in range(int((~kept).sum())):
            out.write(bytes(prod(shape)))
    if not kept.any():
        raise _none_readable(files)
    return kept


# --- one image -------------------------------------------------------------------------------------------------------


def _shape_for_all(files: Sequence[Path], size: int | None, pool: ThreadPoolExecutor) -> Shape:
    looks = [look for look in pool.map(_look, files) if look is not None]
    if not looks:
        raise _none_readable(files)
    channels = 1 if all(grey for _, _, grey in looks) else 3
    sizes = {(height, width) for height, width, _ in looks}
    if size is not None:
        return size, size, channels
    return (*sizes.pop(), channels) if len(sizes) == 1 else (SIDE, SIDE, channels)


def _look(file: Path) -> tuple[int, int, bool] | None:
    """Read height, width and whether it is grey from the head of a file; None if that fails."""
    from PIL.Image import open as open_image

    try:
        with open_image(file, formats=FORMATS) as image:
            width, height = image.size
            if width != height and image.getexif().get(ORIENTATION, 1) >= 5:  # a PNG is decoded for its notes
                width, height = height, width
            return height, width, image.mode in GREY
    except Exception:  # Pillow's readers raise nearly anything on a broken file
        return None


def decode_file(file: Path | BytesIO, shape: Shape) -> UInt8[np.ndarray, "H W C"] | None:
    """Decode a file (the first frame, if it moves) upright and in this shape; None if it is broken.

    A JPEG that is much larger is decoded at a half, a quarter or an eighth; at twice the size wanted nothing is lost.
    """
    from PIL.Image import open as open_image
    from PIL.ImageOps import exif_transpose

    try:
        with open_image(file, formats=FORMATS) as image:
            enough = 2 * max(shape[:2])
            image.draft(None, (enough, enough))
            return _fit(exif_transpose(image), shape)
    except Exception:  # Pillow's readers raise nearly anything on a broken file
        return None


def _fit(image: "Image", shape: Shape) -> UInt8[np.ndarray, "H W C"]:
    """Scale the shorter side and cut the longer one around the centre; what is transparent becomes white."""
    from PIL.Image import alpha_composite, fromarray, new
    from PIL.ImageOps import fit

    height, width, channels = shape
    if image.mode.startswith("I"):  # 16 bits, which Pillow would clip instead of scaling
        image = fromarray((np.asarray(image) >> 8).astype(np.uint8))
    if image.has_transparency_data:
        image = alpha_composite(new("RGBA", image.size, "white"), image.convert("RGBA"))
    fitted = fit(image.convert("L" if channels == 1 else "RGB"), (width, height))
    return np.asarray(fitted).reshape(shape)


def _none_readable(files: Sequence[Path]) -> InputError:
    return InputError(f"{files[0]}: neither this image nor any other of {len(files)} can be decoded; are they whole?")
