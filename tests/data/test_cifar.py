"""CIFAR-10 from its archive and from sheets, against images known in advance."""

import gzip
import io
import tarfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from regard.data.cifar import pack_cifar
from regard.errors import InputError

Set = tuple[np.ndarray, np.ndarray]


def random_set(count: int, seed: int) -> Set:
    """Images of one colour each, which survive JPEG."""
    random = np.random.default_rng(seed)
    images = np.repeat(random.integers(0, 200, (count, 1, 1, 3), np.uint8), 32, 1).repeat(32, 2)
    return images, random.integers(0, 10, count)


def archive_of(splits: dict[str, Set]) -> bytes:
    """Write the official layout: label, then the planes of red, green and blue; five batches and one."""
    members = {}
    for split, (images, labels) in splits.items():
        records = [
            bytes([label]) + b"".join(image[:, :, colour].tobytes() for colour in range(3))
            for image, label in zip(images, labels, strict=True)
        ]
        if split == "test":
            members["test_batch.bin"] = b"".join(records)
        else:
            fifth = len(records) // 5
            for number in range(5):
                members[f"data_batch_{number + 1}.bin"] = b"".join(records[number * fifth : (number + 1) * fifth])
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, content in {**members, "readme.html": b"x"}.items():
            info = tarfile.TarInfo(f"cifar-10-batches-bin/{name}")
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return gzip.compress(buffer.getvalue(), mtime=0)


def sheets_of(splits: dict[str, Set]) -> dict[str, bytes]:
    """Paste tiles of 32 x 32 row by row, three in a row: five JPEG sheets to train on, one lossless WebP to test."""
    files = {}
    for split, (images, labels) in splits.items():
        files[f"{split}_labels.txt"] = "".join(f"{label}\n" for label in labels).encode()
        sheets = 5 if split == "train" else 1
        each = len(images) // sheets
        for number in range(sheets):
            sheet = Image.new("RGB", (3 * 32, each // 3 * 32))
            for index, image in enumerate(images[number * each : (number + 1) * each]):
                sheet.paste(Image.fromarray(image), (index % 3 * 32, index // 3 * 32))
            buffer = io.BytesIO()
            if split == "train":
                sheet.save(buffer, "JPEG", quality=95, subsampling=0)
                files[f"train_{number + 1}.jpg"] = buffer.getvalue()
            else:
                sheet.save(buffer, "WEBP", lossless=True)
                files["test.webp"] = buffer.getvalue()
    return files


def write(folder: Path, files: dict[str, bytes]) -> dict[str, Path]:
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return {name: folder / name for name in files}


def load(path: Path) -> Set:
    with np.load(path, allow_pickle=False) as made:
        assert (made["images"].dtype, made["labels"].dtype) == (np.uint8, np.int64)
        return made["images"], made["labels"]


def test_the_archive_is_exact(tmp_path):
    random = np.random.default_rng(0)
    splits = {
        "train": (random.integers(0, 256, (10, 32, 32, 3), np.uint8), random.integers(0, 10, 10)),
        "test": (random.integers(0, 256, (3, 32, 32, 3), np.uint8), random.integers(0, 10, 3)),
    }
    pack_cifar(write(tmp_path, {"cifar-10-binary.tar.gz": archive_of(splits)}), tmp_path)
    for split, (images, labels) in splits.items():
        made = load(tmp_path / f"{split}.npz")
        np.testing.assert_array_equal(made[0], images)
        np.testing.assert_array_equal(made[1], labels)


def test_sheets_are_cut_row_by_row(tmp_path):
    random = np.random.default_rng(0)
    splits = {
        "train": random_set(30, 0),
        "test": (random.integers(0, 256, (6, 32, 32, 3), np.uint8), random.integers(0, 10, 6)),
    }
    pack_cifar(write(tmp_path, sheets_of(splits)), tmp_path)
    images, labels = load(tmp_path / "test.npz")
    np.testing.assert_array_equal(images, splits["test"][0])  # lossless
    np.testing.assert_array_equal(labels, splits["test"][1])
    images, labels = load(tmp_path / "train.npz")
    np.testing.assert_allclose(images.astype(int), splits["train"][0].astype(int), atol=4)
    np.testing.assert_array_equal(labels, splits["train"][1])


def test_labels_must_match(tmp_path):
    files = write(tmp_path, sheets_of({"train": random_set(30, 0), "test": random_set(6, 1)}))
    files["train_labels.txt"].write_text("1\n2\n")
    with pytest.raises(InputError, match="^cifar10 train: 30 images but 2 labels; fetch the files again$"):
        pack_cifar(files, tmp_path)
    assert not (tmp_path / "train.npz").exists()
