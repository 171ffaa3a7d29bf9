"""Folders of images, idx and npz files as users have them, and every mistake that can be in them."""

import os
import struct
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from regard.data.images import KINDS, Images, read_images
from regard.data.read import Skipped
from regard.errors import InputError


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def pets(tmp_path: Path) -> Path:
    """Two cats and a dog, the second cat in a folder within."""
    folder = tmp_path / "pets"
    picture(folder / "cats/1.png", 10)
    picture(folder / "cats/old/2.bmp", 20)
    picture(folder / "dogs/3.png", 30)
    return folder


def picture(path: Path, shade: int) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("L", (3, 2), shade).save(path)
    return path


def read(path: Path, size: int | None = None, classes: tuple[str, ...] | None = None) -> dict[str, Images]:
    """Read; nothing may be skipped."""
    skipped = Skipped()
    found = read_images(path, skipped, size, classes)
    assert skipped.report() == []
    return found


def shown(images: Images) -> list[tuple[int, str]]:
    """Return the shade and the class of each image."""
    assert (images.pixels == images.pixels[:, :1, :1]).all()
    return [
        (int(pixels[0, 0, 0]), images.classes[label])
        for pixels, label in zip(images.pixels, images.labels, strict=True)
    ]


def refused(path: Path, size: int | None = None, classes: tuple[str, ...] | None = None) -> str:
    with pytest.raises(InputError) as error:
        read_images(path, Skipped(), size, classes)
    assert "\n" not in str(error.value)
    return str(error.value)


# --- folders ---------------------------------------------------------------------------------------------------------


def test_a_folder_of_class_folders(pets: Path) -> None:
    [(split, images)] = read(pets).items()
    assert split == "train"
    assert images.pixels.shape == (3, 2, 3, 1)
    assert images.labels.tolist() == [0, 0, 1]
    assert images.classes == ("cats", "dogs")
    assert shown(images) == [(10, "cats"), (20, "cats"), (30, "dogs")]


@pytest.mark.parametrize("valid", ["valid", "val", "dev"])
def test_a_folder_of_splits(tmp_path: Path, pets: Path, valid: str) -> None:
    (tmp_path / "data").mkdir()
    pets.rename(tmp_path / "data/train")
    picture(tmp_path / "data" / valid / "dogs/a.png", 40)
    picture(tmp_path / "data/test/dogs/a.png", 50)
    picture(tmp_path / "data/test/cats/a.png", 60)
    found = read(tmp_path / "data")
    assert {split: shown(images) for split, images in found.items()} == {
        "train": [(10, "cats"), (20, "cats"), (30, "dogs")],
        "valid": [(40, "dogs")],
        "test": [(60, "cats"), (50, "dogs")],
    }
    assert all(images.classes == ("cats", "dogs") for images in found.values())


def test_a_class_may_be_called_train(tmp_path: Path) -> None:
    for shade, name in enumerate(("bus", "test", "train")):
        picture(tmp_path / "a" / name / "1.png", shade)
    assert shown(read(tmp_path / "a")["train"]) == [(0, "bus"), (1, "test"), (2, "train")]


def test_a_size_may_be_asked_for(pets: Path) -> None:
    assert read(pets, size=5)["train"].pixels.shape == (3, 5, 5, 1)


def test_a_linked_class_folder_counts(tmp_path: Path, pets: Path) -> None:
    picture(tmp_path / "elsewhere/4.png", 40)
    (pets / "emus").symlink_to(tmp_path / "elsewhere")
    assert shown(read(pets)["train"])[-1] == (40, "emus")


def test_files_of_file_managers_are_ignored(pets: Path) -> None:
    for name in (".DS_Store", "Thumbs.db", "cats/.hidden.png", "cats/desktop.ini", "__MACOSX/cats/1.png"):
        (pets / name).parent.mkdir(parents=True, exist_ok=True)
        (pets / name).write_text("what is this")
    assert len(read(pets)["train"].labels) == 3


def test_what_is_left_out_is_counted(tmp_path: Path, pets: Path) -> None:
    (tmp_path / "data").mkdir()
    pets.rename(tmp_path / "data/train")
    picture(tmp_path / "data/maps/1.png", 1)
    train = tmp_path / "data/train"
    (train / "dogs/notes.txt").write_text("woof")
    (train / "cats/gone.png").symlink_to("nowhere")
    picture(train / "loose.png", 1)
    (train / "dogs/2.png").write_bytes((train / "dogs/3.png").read_bytes()[:40])
    for _ in ("decoded", "from the cache"):
        skipped = Skipped()
        assert shown(read_images(tmp_path / "data", skipped)["train"]) == [(10, "cats"), (20, "cats"), (30, "dogs")]
        assert skipped.report() == [
            f"1 stray folder skipped (first: {tmp_path / 'data/maps'})",
            f"2 stray files skipped (first: {train / 'cats/gone.png'})",
            f"1 unsorted image skipped (first: {train / 'loose.png'})",
            f"1 broken image skipped (first: {train / 'dogs/2.png'})",
        ]


def test_classes_that_a_model_knows_keep_their_numbers(pets: Path) -> None:
    known = ("emus", "dogs", "cats")
    images = read(pets, classes=known)["train"]
    assert images.labels.tolist() == [2, 2, 1]
    assert images.classes == known


def test_one_class_is_enough_if_the_classes_are_known(tmp_path: Path) -> None:
    picture(tmp_path / "a/cats/1.png", 1)
    assert shown(read(tmp_path / "a", classes=("cats", "dogs"))["train"]) == [(1, "cats")]


# --- arrays ----------------------------------------------------------------------------------------------------------


def idx(array: np.ndarray) -> bytes:
    return bytes((0, 0, 8, array.ndim)) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


def shades(*values: int) -> np.ndarray:
    return np.broadcast_to(np.array(values, np.uint8)[:, None, None], (len(values), 2, 3))


@pytest.fixture
def digits(tmp_path: Path) -> Path:
    folder = tmp_path / "digits"
    folder.mkdir()
    for name, values, labels in (("train", (10, 20, 30), (2, 10, 1)), ("t10k", (40,), (10,))):
        (folder / f"{name}-images-idx3-ubyte").write_bytes(idx(shades(*values)))
        (folder / f"{name}-labels-idx1-ubyte").write_bytes(idx(np.array(labels, np.uint8)))
    return folder


def test_a_folder_of_idx_files(digits: Path) -> None:
    found = read(digits)
    assert {split: shown(images) for split, images in found.items()} == {
        "train": [(10, "2"), (20, "10"), (30, "1")],
        "test": [(40, "10")],
    }
    assert list(found) == ["train", "test"]
    assert found["train"].classes == found["test"].classes == ("1", "2", "10")
    assert isinstance(found["train"].pixels, np.memmap)


def test_one_idx_file(digits: Path) -> None:
    assert list(read(digits / "train-images-idx3-ubyte")) == ["train"]
    known = tuple(map(str, range(11)))
    assert read(digits / "t10k-images-idx3-ubyte", classes=known)["test"].labels.tolist() == [10]


def test_numbers_are_positions_among_named_classes(digits: Path) -> None:
    names = tuple("abcdefghijk")
    found = read(digits, classes=names)
    assert shown(found["train"]) == [(10, "c"), (20, "k"), (30, "b")]
    assert found["train"].classes == names
    assert "train has images of the class '10', which the model does not have" in refused(digits, classes=names[:10])


def test_npz(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", images=shades(10, 20), labels=[0, 1])
    assert shown(read(tmp_path / "a.npz")["train"]) == [(10, "0"), (20, "1")]
    (tmp_path / "b").mkdir()
    np.savez(tmp_path / "b/train.npz", images=shades(10, 20), labels=[0, 1])
    np.savez(tmp_path / "b/test.npz", images=shades(30), labels=[1])
    assert {split: shown(images) for split, images in read(tmp_path / "b").items()} == {
        "train": [(10, "0"), (20, "1")],
        "test": [(30, "1")],
    }


def test_arrays_are_resized(digits: Path) -> None:
    found = read(digits, size=5)
    assert found["train"].pixels.shape == (3, 5, 5, 1)
    assert shown(found["train"]) == shown(read(digits)["train"])


# --- mistakes --------------------------------------------------------------------------------------------------------


def test_nothing_there(tmp_path: Path) -> None:
    assert refused(tmp_path / "a") == f"{tmp_path / 'a'}: there is no such file or folder"


@pytest.mark.parametrize("inside", [[], ["cats/", "dogs/"], ["cats/1.tiff", "dogs/1.txt"]])
def test_no_images(tmp_path: Path, inside: list[str]) -> None:
    folder = tmp_path / "a"
    for name in inside:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).mkdir(parents=True) if name.endswith("/") else (folder / name).write_text("x")
    folder.mkdir(exist_ok=True)
    wanted = f"{folder}: there are no images (.png .jpg .jpeg .webp .bmp .gif) in it; give {KINDS}"
    assert refused(folder) == wanted


@pytest.mark.parametrize("folder", ["a", "a/train"])
def test_no_class_folders(tmp_path: Path, folder: str) -> None:
    place = picture(tmp_path / folder / "1.png", 1).parent
    remedy = f"put the images of each class into a folder of its own, {place.name}/CLASS/1.png"
    assert refused(tmp_path / "a") == f"{place}: the images in it are not in class folders; {remedy}"


def test_a_test_set_without_class_folders(tmp_path: Path, pets: Path) -> None:
    (tmp_path / "data").mkdir()
    pets.rename(tmp_path / "data/train")
    picture(tmp_path / "data/test/1.png", 1)
    assert refused(tmp_path / "data").startswith(f"{tmp_path / 'data/test'}: the images in it are not in class folders")


def test_two_validation_sets(tmp_path: Path) -> None:
    for name in ("train", "val", "valid"):
        picture(tmp_path / "a" / name / "cats/1.png", 1)
    assert refused(tmp_path / "a") == f"{tmp_path / 'a/valid'}: val also exists; keep one of them for valid"


def test_one_class(tmp_path: Path) -> None:
    picture(tmp_path / "a/cats/1.png", 1)
    wanted = f"{tmp_path / 'a'}: all images for train are of one class, 'cats'; give two or more classes"
    assert refused(tmp_path / "a") == wanted


def test_a_class_of_broken_images_only_does_not_count(pets: Path) -> None:
    (pets / "dogs/3.png").write_bytes(b"")
    assert refused(pets).endswith("all images for train are of one class, 'cats'; give two or more classes")


def test_all_broken(pets: Path) -> None:
    for file in pets.rglob("*.*"):
        file.write_bytes(b"")
    wanted = f"{pets / 'cats/1.png'}: none of 3 images can be decoded, this one included; check that they are complete"
    assert refused(pets) == wanted


@pytest.mark.parametrize(("folder", "split"), [("dev", "valid"), ("test", "test")])
def test_a_class_that_training_does_not_see(tmp_path: Path, pets: Path, folder: str, split: str) -> None:
    (tmp_path / "data").mkdir()
    pets.rename(tmp_path / "data/train")
    picture(tmp_path / "data" / folder / "dog/1.png", 1)
    wanted = (
        f"{split} has images of the class 'dog', which train does not have; did you mean 'dogs'? (one of cats, dogs)"
    )
    assert refused(tmp_path / "data") == f"{tmp_path / 'data'}: {wanted}"


def test_a_label_that_training_does_not_see(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x_train=shades(1, 2), y_train=[0, 2], x_test=shades(1), y_test=[1])
    wanted = "test has images of the class '1', which train does not have; use one of 0, 2"
    assert refused(tmp_path / "a.npz") == f"{tmp_path / 'a.npz'}: {wanted}"


def test_a_class_that_the_model_does_not_know(pets: Path) -> None:
    wanted = "train has images of the class 'dogs', which the model does not have; use one of cats, emus"
    assert refused(pets, classes=("cats", "emus")) == f"{pets}: {wanted}"


def test_nothing_to_train_on(digits: Path) -> None:
    path = digits / "t10k-images-idx3-ubyte"
    assert refused(path) == f"{path}: there are images for test, but none for train"


@pytest.mark.parametrize("name", ["a.zip", "a.png", "train-labels-idx1-ubyte"])
def test_unknown_extension(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("x")
    suffix = Path(name).suffix or "this"
    assert refused(tmp_path / name) == f"{tmp_path / name}: no images can be read from {suffix}; give {KINDS}"


def test_splits_of_different_shapes(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    np.savez(path, x_train=shades(1, 2), y_train=[0, 1], x_test=np.zeros((1, 4, 4, 3), np.uint8), y_test=[1])
    alike = "the images for train are 2 x 3 x 1, those for test 4 x 4 x 3; they must have the same shape"
    assert refused(path) == f"{path}: {alike}"
    assert refused(path, size=4).endswith(
        "train are 4 x 4 x 1, those for test 4 x 4 x 3; they must have the same shape"
    )


def test_a_folder_that_cannot_be_opened(pets: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As root every folder can be opened, so the error is simulated."""
    scandir = os.scandir

    def guarded(path: str) -> object:
        if str(path).endswith("dogs"):
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", guarded)
    assert refused(pets) == f"{pets / 'dogs'}: cannot be read: Permission denied"


def test_broken_arrays_are_named(digits: Path, tmp_path: Path) -> None:
    path = digits / "train-images-idx3-ubyte"
    path.write_bytes(path.read_bytes()[:-1])
    assert refused(digits).startswith(f"{path}: the file is damaged: ")
    (tmp_path / "a.npz").write_bytes(b"PK?")
    assert refused(tmp_path / "a.npz").startswith(f"{tmp_path / 'a.npz'}: cannot be read as npz: ")
