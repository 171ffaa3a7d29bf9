"""Read labelled images: folders of class folders, idx files (MNIST) and npz files, all as one kind of array."""

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Int64, UInt8

from regard.data.image_arrays import SPLITS, Arrays, is_idx, read_idx, read_npz
from regard.data.image_files import EXTENSIONS, decode_splits, resize_images
from regard.data.read import Skipped
from regard.errors import InputError, choices

KINDS = "a folder with a folder of images for each class, idx files (train-images-idx3-ubyte) or .npz"


@dataclass(frozen=True)
class Images:
    """Images of one split; images from files are mapped from a cache. `classes[labels[i]]` is the class of image i."""

    pixels: UInt8[np.ndarray, "N H W C"]
    labels: Int64[np.ndarray, "N"]
    classes: tuple[str, ...]
    first: str = ""  # the file of the first image; empty if the images are stored as arrays


def read_images(
    path: Path, skipped: Skipped, size: int | None = None, classes: tuple[str, ...] | None = None
) -> dict[str, Images]:
    """Read "train" and, if the source has them, "valid" and "test".

    All have one shape, `size` x `size` if given. The classes are those of "train", or, for a model that has its classes
    already, `classes` in this order; then the source may lack "train". Where images are stored with numbers, number i
    is the class i of `classes`, unless these are numbers, too.
    """
    try:
        splits = _read(path, skipped, size)
    except OSError as error:
        raise InputError(f"{error.filename or path}: cannot be read: {error.strerror or error}") from None
    return _agree(splits, classes, path)


def _read(path: Path, skipped: Skipped, size: int | None) -> dict[str, Images]:
    """Read every split, each with its own classes."""
    if not path.exists():
        raise InputError(f"{path}: there is no such file or folder")
    files = _entries(path) if path.is_dir() else [path]
    if idx := [file for file in files if is_idx(file)]:
        return _from_arrays(read_idx(idx), size, path)
    if npz := [file for file in files if file.suffix == ".npz"]:
        return _from_arrays(read_npz(npz), size, path)
    if path.is_dir():
        return _from_folder(path, skipped, size)
    raise InputError(f"{path}: no images can be read from {path.suffix or 'this'}; give {KINDS}")


def _from_arrays(arrays: Arrays, size: int | None, path: Path) -> dict[str, Images]:
    splits, shapes = {}, {}
    for split in (split for split in SPLITS if split in arrays):
        pixels, labels = arrays[split]
        if size is not None and pixels.shape[1:3] != (size, size):
            pixels = resize_images(pixels, size)
        numbers, places = np.unique(labels, return_inverse=True)
        splits[split] = Images(pixels, places.astype(np.int64), tuple(map(str, numbers)))
        shapes[" x ".join(map(str, pixels.shape[1:]))] = split
    if len(shapes) > 1:
        (one, first), (other, second), *_ = shapes.items()
        raise InputError(
            f"{path}: the images for {first} are {one}, those for {second} {other}; they must have the same shape"
        )
    return splits


def _agree(splits: dict[str, Images], classes: tuple[str, ...] | None, path: Path) -> dict[str, Images]:
    """Number the classes of all splits in the same way."""
    known = "the model" if classes else "train"
    if classes is None:
        if "train" not in splits:
            raise lacks_training(path, splits)
        classes = splits["train"].classes
        if len(classes) == 1:
            raise InputError(f"{path}: all images for train are of one class, {classes[0]!r}; give two or more classes")
    number = {name: label for label, name in enumerate(classes)}
    if _are_numbers(splits) and not any(name.isdecimal() for name in classes):  # arrays store numbers, not names
        number = {str(label): label for label in range(len(classes))}
    agreed = {}
    for split, images in splits.items():
        for name in images.classes:
            if name not in number:
                both = f"{split} has images of the class {name!r}, which {known} does not have"
                raise InputError(f"{path}: {both}; {choices(name, classes)}")
        numbers = np.array([number[name] for name in images.classes], np.int64)
        agreed[split] = Images(images.pixels, numbers[images.labels], classes, images.first)
    return agreed


def lacks_training(path: Path, splits: Iterable[str]) -> InputError:
    """Return the error for a source that has other splits only."""
    return InputError(f"{path}: there are images for {' and '.join(splits)}, but none for train")


def _are_numbers(splits: dict[str, Images]) -> bool:
    """Return whether all classes are numbers that were stored with the images, not names of folders."""
    return all(name.isdecimal() and not images.first for images in splits.values() for name in images.classes)


# --- folders ---------------------------------------------------------------------------------------------------------


def _from_folder(path: Path, skipped: Skipped, size: int | None) -> dict[str, Images]:
    found = {split: _labelled_files(folder, skipped) for split, folder in _split_folders(path, skipped).items()}
    decoded = decode_splits({split: [file for file, _ in files] for split, files in found.items()}, size)
    splits = {}
    for split, (pixels, kept) in decoded.items():
        for (file, _), good in zip(found[split], kept, strict=True):
            if not good:
                skipped.note("broken image", str(file))
        names = np.array([name for _, name in found[split]])[kept]
        classes, labels = np.unique(names, return_inverse=True)
        first = next(str(file) for (file, _), good in zip(found[split], kept, strict=True) if good)
        splits[split] = Images(pixels, labels.astype(np.int64), tuple(map(str, classes)), first)
    return splits


def _split_folders(path: Path, skipped: Skipped) -> dict[str, Path]:
    """Find train/, valid/ and test/; without a train/ the whole folder is for training.

    A class can also be called "train": then there are other classes beside it, and images, not folders, inside.
    """
    inside = [entry for entry in _entries(path) if entry.is_dir()]
    usual = {name for names in SPLITS.values() for name in names}
    others = [folder for folder in inside if folder.name not in usual]
    train = path / "train"
    if not train.is_dir() or (others and not any(entry.is_dir() for entry in _entries(train))):
        return {"train": path}
    for folder in others:
        skipped.note("stray folder", str(folder))
    folders: dict[str, Path] = {}
    for split, names in SPLITS.items():
        for folder in (folder for folder in inside if folder.name in names):
            if split in folders:
                raise InputError(f"{folder}: {folders[split].name} also exists; keep one of them for {split}")
            folders[split] = folder
    return folders


def _labelled_files(folder: Path, skipped: Skipped) -> list[tuple[Path, str]]:
    """List the images of class folders, at any depth, each with its class, sorted by name."""
    found, loose = [], []
    for entry in _entries(folder):
        for file in _files_below(entry) if entry.is_dir() else [entry]:
            if file.suffix.lower() not in EXTENSIONS or not file.is_file():
                skipped.note("stray file", str(file))
            elif file == entry:
                loose.append(file)
            else:
                found.append((file, entry.name))
    if not found and loose:
        remedy = f"put the images of each class into a folder of its own, {folder.name}/CLASS/{loose[0].name}"
        raise InputError(f"{folder}: the images in it are not in class folders; {remedy}")
    if not found:
        raise InputError(f"{folder}: there are no images ({' '.join(EXTENSIONS)}) in it; give {KINDS}")
    for file in loose:
        skipped.note("unsorted image", str(file))
    return found


def _files_below(folder: Path) -> Iterator[Path]:
    def reject(error: OSError) -> None:
        raise error

    for place, inner, names in os.walk(folder, onerror=reject):
        inner[:] = sorted(name for name in inner if _visible(name))
        yield from (Path(place, name) for name in sorted(names) if _visible(name))


def _entries(folder: Path) -> list[Path]:
    return sorted(entry for entry in folder.iterdir() if _visible(entry.name))


def _visible(name: str) -> bool:
    """Return whether a file is the user's, not one that a file manager or an archive added."""
    return not name.startswith((".", "__MACOSX")) and name not in ("Thumbs.db", "desktop.ini")
