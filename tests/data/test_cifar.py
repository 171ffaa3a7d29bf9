"""CIFAR-10 from its archive and from sheets, against images known in advance."""

from pathlib import Path

import numpy as np
import pytest

from regard.data.cifar import pack_cifar
from regard.errors import InputError

from .cifar import Set, archive_of, random_set, sheets_of


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
