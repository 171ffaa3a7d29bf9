"""Read images stored as arrays: idx files (LeCun et al. 1998; MNIST and others) and NumPy's npz.

Each split becomes pixels, uint8 (N, H, W, C), and labels, int64 (N,).
"""

import re
import struct
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from gzip import GzipFile
from lzma import LZMAError, LZMAFile
from math import prod
from pathlib import Path

import numpy as np
from jaxtyping import Int64, UInt8
from numpy.lib.npyio import NpzFile

from regard.errors import InputError
from regard.untrusted import most_unpacked, too_much

Pixels = UInt8[np.ndarray, "N H W C"]
Labels = Int64[np.ndarray, "N"]
Arrays = dict[str, tuple[np.ndarray, np.ndarray]]  # Pixels and Labels of each split

SPLITS = {"train": ("train",), "valid": ("valid", "val", "dev"), "test": ("test", "t10k")}
CHANNELS = (1, 3)
NPY, ZIP = b"\x93NUMPY", (b"PK\x03\x04", b"PK\x05\x06")  # the first bytes of one array, and of an archive


def pair_with_labels(labels: np.ndarray, pixels: Pixels, place: str) -> tuple[Pixels, Labels]:
    """Check that there is one integer label for each image, and return both."""
    if labels.ndim == 2 and labels.shape[1] == 1:  # as Keras stores CIFAR-10
        labels = labels[:, 0]
    if labels.ndim != 1 or labels.dtype.kind not in "iu":
        shown = f"{labels.dtype} of shape {labels.shape}"
        raise InputError(f"{place}: the labels are {shown}; each image needs one integer label")
    if len(labels) != len(pixels):
        raise InputError(
            f"{place}: there are {len(pixels)} images but {len(labels)} labels; each image needs one label"
        )
    if not len(pixels):
        raise InputError(f"{place}: there are no images in it")
    if not pixels.size:
        shape = " x ".join(map(str, pixels.shape[1:3]))
        raise InputError(f"{place}: its images have no pixels ({shape}); write it again")
    return pixels, labels.astype(np.int64)


# --- idx -------------------------------------------------------------------------------------------------------------

_IDX = re.compile(r"(?P<set>.*)images(?P<mark>[-.]idx)3-ubyte(\.gz|\.xz)?")
_COMPRESSED: dict[str, type[GzipFile] | type[LZMAFile]] = {".gz": GzipFile, ".xz": LZMAFile}


def is_idx(path: Path) -> bool:
    """Return whether a file holds idx images, by its name, such as `train-images-idx3-ubyte.gz`."""
    return _IDX.fullmatch(path.name) is not None


def read_idx(files: Sequence[Path]) -> Arrays:
    """Read files of images and the labels beside them; the name contains the split (`t10k-` means test)."""
    chosen: dict[str, Path] = {}
    for file in sorted(files):  # the plain file before its compressed copy
        split = _split(file)
        first = chosen.setdefault(split, file)
        if _plain(first) != _plain(file):
            both = f"{first.name} and {file.name} are both images for {split}"
            raise InputError(f"{file.parent}: {both}; name one of the files instead of the folder")
    arrays = {}
    for split, file in chosen.items():
        pixels = _idx(file, dimensions=3)[..., None]
        arrays[split] = pair_with_labels(_idx(_labels_beside(file), dimensions=1), pixels, str(file))
    return arrays


def _split(file: Path) -> str:
    found = _IDX.fullmatch(file.name)
    assert found is not None
    words = re.split("[-_.]", found["set"].lower())
    return next((split for split, names in SPLITS.items() if set(names) & set(words)), "train")


def _plain(file: Path) -> str:
    return file.name.removesuffix(file.suffix) if file.suffix in _COMPRESSED else file.name


def _labels_beside(file: Path) -> Path:
    found = _IDX.fullmatch(file.name)
    assert found is not None
    name = f"{found['set']}labels{found['mark']}1-ubyte"
    for suffix in ("", *_COMPRESSED):
        if (labels := file.with_name(name + suffix)).exists():
            return labels
    raise InputError(f"{file}: its labels are missing; put {name} (or .gz, .xz) beside it")


def _idx(path: Path, dimensions: int) -> np.ndarray:
    """Read bytes 0, 0, 8 (for uint8) and the number of dimensions, the size of each as big-endian uint32, the data."""
    data = _content(path)
    start, magic = 4 + 4 * dimensions, bytes((0, 0, 8, dimensions))
    head = data[:start].tobytes()
    if len(head) < start or head[:4] != magic:
        begins = f"it begins with {head[:4].hex(' ') or 'nothing'} instead of {magic.hex(' ')}"
        raise InputError(f"{path}: not an idx file of {dimensions} dimension(s) of bytes: {begins}; download it again")
    shape = struct.unpack(f">{dimensions}I", head[4:])
    if len(data) - start != prod(shape):
        size = " x ".join(map(str, shape))
        found = f"its header says {size} bytes, but {len(data) - start} follow"
        raise InputError(f"{path}: the file is damaged: {found}; download it again")
    return data[start:].reshape(shape)


def _content(path: Path) -> UInt8[np.ndarray, "bytes"]:
    """Map a plain file into memory, or decompress it."""
    try:
        if path.suffix in _COMPRESSED:
            with _COMPRESSED[path.suffix](path) as file:
                most = most_unpacked(path.stat().st_size)
                data = bytearray()
                while block := file.read(1 << 20):
                    data += block
                    if len(data) > most:
                        raise InputError(f"{path}: {too_much(most)}; unpack it first if you trust it")
                return np.frombuffer(data, np.uint8)
        return np.memmap(path, np.uint8, "r") if path.stat().st_size else np.zeros(0, np.uint8)
    except (OSError, EOFError, LZMAError, zlib.error) as error:
        raise InputError(f"{path}: cannot be read: {error}; download it again") from None


# --- npz -------------------------------------------------------------------------------------------------------------


def read_npz(files: Sequence[Path]) -> Arrays:
    """Read one file with all splits (`x_train`, `y_train`, ...), or one file per split (`train.npz`, `test.npz`)."""
    arrays: Arrays = {}
    for file in sorted(files):
        split = next((split for split, names in SPLITS.items() if file.stem in names), None)
        if len(files) > 1 and (split is None or split in arrays):
            asked = f"keep only train.npz, valid.npz and test.npz in {file.parent}, or name one file"
            raise InputError(f"{file}: it is not clear which split these images are for; {asked}")
        arrays |= _pairs(file, default=split or "train")
    return arrays


def _pairs(path: Path, default: str) -> Arrays:
    """Read every pair of images and labels in a file; arrays that name no split belong to the split `default`."""
    arrays = {}
    with _open_npz(path) as stored:
        names = {name.lower(): name for name in stored}
        for split, spellings in SPLITS.items():
            spellings = ("", *spellings) if split == default else spellings
            pixels, labels = (
                _find_array(names, spellings, ("images", "x"), path),
                _find_array(names, spellings, ("labels", "y"), path),
            )
            if pixels and not labels:
                raise InputError(f"{path}: there are no labels for {pixels!r}, only {', '.join(names.values())}")
            if pixels and labels:
                place = f"{path}: {pixels}"
                images, numbers = _array(stored, pixels, path), _array(stored, labels, path)
                arrays[split] = pair_with_labels(numbers, as_pixels(images, place), place)
    if not arrays:
        found = ", ".join(names.values()) or "nothing"
        raise InputError(f"{path}: holds {found}; it needs the arrays images and labels (or x_train, y_train, ...)")
    return arrays


def _open_npz(path: Path) -> NpzFile:
    with _npz_errors(path):
        with path.open("rb") as file:  # NumPy would report any unknown file as a pickle
            head = file.read(len(NPY))
            if head == NPY:
                raise ValueError("it holds one unnamed array")
            if not head.startswith(ZIP) or not zipfile.is_zipfile(file):
                raise ValueError("it is not a complete npz file")
        stored: NpzFile = np.load(path, allow_pickle=False)
        return stored


def _array(stored: NpzFile, name: str, path: Path) -> np.ndarray:
    with _npz_errors(path):
        _check_array_size(path, name)
        array = stored[name]
        if not isinstance(array, np.ndarray):
            raise ValueError(f"{name} is not an array")
        return array


def _check_array_size(path: Path, name: str) -> None:
    """Compare the size of an array with that of its file, before it gets memory: its header may lie."""
    with zipfile.ZipFile(path) as archive:
        packed = next((one for one in archive.infolist() if one.filename in (name, f"{name}.npy")), None)
        if packed is None:
            return
        if packed.file_size > (most := most_unpacked(path.stat().st_size)):
            raise ValueError(f"{name}: {too_much(most)}")
        with archive.open(packed) as file:
            if file.read(len(NPY)) != NPY:
                return
            file.seek(0)
            formats = np.lib.format
            first = formats.read_magic(file) == (1, 0)
            shape, _, dtype = (formats.read_array_header_1_0 if first else formats.read_array_header_2_0)(file)
            size = prod(shape) * dtype.itemsize
            if not dtype.hasobject and size > packed.file_size:
                raise ValueError(f"{name}: its header says {size:,} bytes, which it does not hold")


@contextmanager
def _npz_errors(path: Path) -> Iterator[None]:
    """Turn the errors of a broken file into one line."""
    try:
        yield
    except (OSError, ValueError, KeyError, EOFError, MemoryError, zipfile.BadZipFile, zlib.error) as error:
        reason = str(error).partition("\n")[0] or type(error).__name__
        if "allow_pickle" in reason:
            reason = "it contains Python objects, not numbers"
        raise InputError(f"{path}: cannot be read as npz: {reason}; write it with np.savez(images=, labels=)") from None


def _find_array(names: dict[str, str], splits: Sequence[str], kinds: Sequence[str], path: Path) -> str | None:
    """Find an array by its usual names: `x`, `x_train` (Keras), `train_images` (MedMNIST); two are an error."""
    usual = [
        spelling
        for kind in kinds
        for split in splits
        for spelling in ((f"{kind}_{split}", f"{split}_{kind}") if split else (kind,))
    ]
    found = [names[spelling] for spelling in usual if spelling in names]
    if len(found) > 1:
        raise InputError(f"{path}: {' and '.join(found)} could both be the {kinds[0]}; keep one of them in the file")
    return found[0] if found else None


def as_pixels(array: np.ndarray, place: str) -> Pixels:
    """Convert images to uint8 (N, H, W, C): from other integers, floats in 0..1, (N, H, W) and (N, C, H, W)."""
    if array.ndim == 3:
        array = array[..., None]
    if array.ndim == 4 and array.shape[-1] not in CHANNELS and array.shape[1] in CHANNELS:
        array = array.transpose(0, 2, 3, 1)
    if array.ndim != 4 or array.shape[-1] not in CHANNELS:
        wanted = "(N, H, W), (N, H, W, C) or (N, C, H, W) with 1 or 3 channels"
        raise InputError(f"{place}: the images have shape {array.shape}; it must be {wanted}")
    if array.dtype == np.uint8 or not array.size:
        return np.ascontiguousarray(array, np.uint8)
    highest = {"f": 1, "i": 255, "u": 255}.get(array.dtype.kind)
    if highest is None or not (array.min() >= 0 and array.max() <= highest):  # written so that NaN is rejected too
        limits = "" if highest is None else f" from {array.min():g} to {array.max():g}"
        rule = "they must be whole numbers from 0 to 255, or floats from 0 to 1"
        raise InputError(f"{place}: the pixels are {array.dtype}{limits}; {rule}")
    return np.ascontiguousarray(np.rint(array * 255) if highest == 1 else array, np.uint8)
