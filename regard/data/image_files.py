"""Image files, decoded once into a cache that is mapped into memory.

A run does not need memory for all images. A changed file is decoded again (see `cache.py`).
"""

import os
import warnings
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from functools import partial
from io import BytesIO
from math import prod
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Bool, UInt8

from regard.data.cache import CacheKey, cached
from regard.errors import InputError

if TYPE_CHECKING:
    from PIL.Image import Image

EXTENSIONS = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif")
FORMATS = ("PNG", "JPEG", "WEBP", "BMP", "GIF")  # no other decoder of Pillow is tried
GREY = ("1", "L", "LA", "I", "I;16", "I;16B", "I;16L")
SIDE = 64  # of images of different sizes
MOST_PIXELS = 64_000_000  # of an image that is decoded; a larger JPEG is decoded at a part of its size
LARGE = 4_000_000  # pixels; images of more are decoded one at a time, since each may need a gigabyte
ONE_LARGE = Lock()
WORKERS = min(8, os.cpu_count() or 1)
ORIENTATION = 0x0112  # the EXIF tag; from 5 on the image is rotated by 90 degrees

ImageShape = tuple[int, int, int]  # height, width, channels
Decoded = tuple[UInt8[np.ndarray, "kept H W C"], Bool[np.ndarray, "N"]]


def decode_splits(files: Mapping[str, Sequence[Path]], size: int | None) -> dict[str, Decoded]:
    """Return, for each split, the pixels of the files that can be decoded, and a mask of these files.

    All splits get the size and the channels of "train": `size` x `size` if given, else the size that all images have,
    else 64 x 64; grey if all are grey, otherwise RGB.
    """
    from PIL import __version__ as decoder

    entry = cached("images", CacheKey(files, {"size": size, "decoder": decoder}), partial(_decode_all, files, size))
    return {split: _open(entry.folder, split) for split in files}


def resize_images(pixels: UInt8[np.ndarray, "N H W C"], size: int) -> UInt8[np.ndarray, "N {size} {size} C"]:
    """Resize images in memory in the same way as images in files."""
    from PIL.Image import fromarray

    count, *_, channels = pixels.shape
    resized = np.empty((count, size, size, channels), np.uint8)
    for image, row in zip(pixels, resized, strict=True):
        row[:] = _fit(fromarray(image[..., 0] if channels == 1 else image), (size, size, channels))
    return resized


# --- the cache -------------------------------------------------------------------------------------------------------


def _open(folder: Path, split: str) -> Decoded:
    """Map the images of a split into memory."""
    kept = np.load(folder / f"{split}-kept.npy", allow_pickle=False)
    pixels = np.load(folder / f"{split}.npy", mmap_mode="r", allow_pickle=False)
    return pixels[: int(kept.sum())], kept


def _decode_all(files: Mapping[str, Sequence[Path]], size: int | None, folder: Path) -> None:
    with ThreadPoolExecutor(WORKERS) as pool, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Pillow's about odd files; files that cannot be decoded are counted
        shape = _shape_for_all(files["train"], size, pool)
        for split, paths in files.items():
            kept = _write(folder / f"{split}.npy", paths, shape, pool)
            np.save(folder / f"{split}-kept.npy", kept)


def _write(path: Path, files: Sequence[Path], shape: ImageShape, pool: ThreadPoolExecutor) -> Bool[np.ndarray, "N"]:
    """Write the images one after the other as a .npy file; return which could be decoded.

    It does not write through a memory map, where a full disk would kill the process. The header comes first and counts
    all files, so the file ends with zeros for those that could not be decoded.
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


def _shape_for_all(files: Sequence[Path], size: int | None, pool: ThreadPoolExecutor) -> ImageShape:
    headers = [header for header in pool.map(_read_header, files) if header is not None]
    if not headers:
        raise _none_readable(files)
    channels = 1 if all(grey for _, _, grey in headers) else 3
    sizes = {(height, width) for height, width, _ in headers}
    if size is not None:
        return size, size, channels
    return (*sizes.pop(), channels) if len(sizes) == 1 else (SIDE, SIDE, channels)


def _read_header(file: Path) -> tuple[int, int, bool] | None:
    """Read height, width and whether it is grey from the header of a file; return None if that fails."""
    from PIL.Image import open as open_image

    try:
        with open_image(file, formats=FORMATS) as image:
            width, height = image.size
            if width != height and image.getexif().get(ORIENTATION, 1) >= 5:  # reading EXIF decodes a PNG
                width, height = height, width
            return height, width, image.mode in GREY
    except Exception:  # Pillow raises almost any error for a broken file
        return None


def decode_file(file: Path | BytesIO, shape: ImageShape) -> UInt8[np.ndarray, "H W C"] | None:
    """Decode a file (the first frame of an animation), upright and in this shape; return None if it is broken or huge.

    A much larger JPEG is decoded at a half, a quarter or an eighth of its size, but at least twice the size wanted.
    """
    from PIL.Image import open as open_image
    from PIL.ImageOps import exif_transpose

    try:
        with open_image(file, formats=FORMATS) as image:
            enough = 2 * max(shape[:2])
            image.draft(None, (enough, enough))
            pixels = image.width * image.height
            if pixels > MOST_PIXELS:
                return None
            with ONE_LARGE if pixels > LARGE else nullcontext():
                return _fit(exif_transpose(image), shape)
    except Exception:  # Pillow raises almost any error for a broken file
        return None


def _fit(image: "Image", shape: ImageShape) -> UInt8[np.ndarray, "H W C"]:
    """Scale to the shorter side and crop the longer one at the centre; transparent pixels become white."""
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
    return InputError(
        f"{files[0]}: none of {len(files)} images can be decoded, this one included; check that they are complete"
    )
