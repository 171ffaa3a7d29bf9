"""idx and npz files against files written byte by byte and by NumPy."""

import gzip
import lzma
import struct
from io import BytesIO
from pathlib import Path
from zipfile import ZipFile

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.data.image_arrays import as_pixels, is_idx, read_idx, read_npz
from regard.errors import InputError

PACK = {"": bytes, ".gz": gzip.compress, ".xz": lzma.compress}


def idx(array: np.ndarray) -> bytes:
    return bytes((0, 0, 8, array.ndim)) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


def some_images(count: int = 4, height: int = 3, width: int = 5) -> np.ndarray:
    return np.random.default_rng(count).integers(0, 256, (count, height, width), np.uint8)


def labels(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.uint8)


def write_idx(folder: Path, name: str, images: np.ndarray, numbers: np.ndarray, suffix: str = "") -> Path:
    path = folder / f"{name}images-idx3-ubyte{suffix}"
    path.write_bytes(PACK[suffix](idx(images)))
    (folder / f"{name}labels-idx1-ubyte{suffix}").write_bytes(PACK[suffix](idx(numbers)))
    return path


# --- idx -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", ["", ".gz", ".xz"])
def test_idx(tmp_path: Path, suffix: str) -> None:
    path = write_idx(tmp_path, "train-", some_images(), labels(3, 0, 9, 3), suffix)
    [(split, (pixels, numbers))] = read_idx([path]).items()
    assert split == "train"
    assert np.array_equal(pixels, some_images()[..., None])
    assert numbers.tolist() == [3, 0, 9, 3]


def test_a_plain_idx_file_is_mapped_not_read(tmp_path: Path) -> None:
    path = write_idx(tmp_path, "train-", some_images(), labels(0, 1, 2, 3))
    pixels, _ = read_idx([path])["train"]
    assert isinstance(pixels, np.memmap)


@pytest.mark.parametrize(
    ("name", "split"),
    [("train-", "train"), ("t10k-", "test"), ("", "train"), ("emnist-letters-test-", "test"), ("my-val-", "valid")],
)
def test_the_name_of_an_idx_file_tells_the_split(tmp_path: Path, name: str, split: str) -> None:
    assert list(read_idx([write_idx(tmp_path, name, some_images(), labels(0, 1, 2, 3))])) == [split]


def test_labels_may_be_packed_otherwise_and_named_with_a_dot(tmp_path: Path) -> None:
    path = tmp_path / "t10k-images.idx3-ubyte"
    path.write_bytes(idx(some_images(2)))
    (tmp_path / "t10k-labels.idx1-ubyte.gz").write_bytes(gzip.compress(idx(labels(7, 1))))
    assert read_idx([path])["test"][1].tolist() == [7, 1]


def test_names_of_idx_files() -> None:
    assert is_idx(Path("a/train-images-idx3-ubyte.gz"))
    assert not is_idx(Path("a/train-labels-idx1-ubyte.gz"))
    assert not is_idx(Path("a/train-images-idx3-ubyte.zip"))


def test_a_compressed_copy_beside_the_plain_file_is_the_same_set(tmp_path: Path) -> None:
    files = [write_idx(tmp_path, "train-", some_images(2), labels(0, 1), suffix) for suffix in (".gz", "")]
    assert isinstance(read_idx(files)["train"][0], np.memmap)


def test_two_idx_sets_in_one_folder(tmp_path: Path) -> None:
    files = [write_idx(tmp_path, name, some_images(2), labels(0, 1)) for name in ("train-", "b-train-")]
    message = (
        f"{tmp_path}: b-train-images-idx3-ubyte and train-images-idx3-ubyte are both images for train; "
        "name one of the files instead of the folder"
    )
    with pytest.raises(InputError) as error:
        read_idx(files)
    assert str(error.value) == message


def test_missing_labels(tmp_path: Path) -> None:
    path = write_idx(tmp_path, "train-", some_images(), labels(0, 1, 2, 3))
    (tmp_path / "train-labels-idx1-ubyte").unlink()
    with pytest.raises(InputError) as error:
        read_idx([path])
    wanted = f"{path}: its labels are missing; put train-labels-idx1-ubyte (or .gz, .xz) beside it"
    assert str(error.value) == wanted


def test_other_number_of_labels(tmp_path: Path) -> None:
    path = write_idx(tmp_path, "train-", some_images(4), labels(0, 1, 2))
    with pytest.raises(InputError) as error:
        read_idx([path])
    assert str(error.value) == f"{path}: there are 4 images but 3 labels; each image needs one label"


def test_no_images(tmp_path: Path) -> None:
    path = write_idx(tmp_path, "train-", some_images(0), labels())
    with pytest.raises(InputError) as error:
        read_idx([path])
    assert str(error.value) == f"{path}: there are no images in it"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "not an idx file of 3 dimension(s) of bytes: it begins with nothing instead of 00 00 08 03"),
        (idx(labels(1, 2)), "not an idx file of 3 dimension(s) of bytes: it begins with 00 00 08 01 instead of"),
        (idx(some_images())[:10], "not an idx file of 3 dimension(s) of bytes"),
        (idx(some_images())[:-1], "the file is damaged: its header says 4 x 3 x 5 bytes, but 59 follow"),
        (idx(some_images()) + b"x", "the file is damaged: its header says 4 x 3 x 5 bytes, but 61 follow"),
        (bytes((0, 0, 8, 3)) + b"\xff" * 12, "says 4294967295 x 4294967295 x 4294967295 bytes, but 0 follow"),
    ],
)
@pytest.mark.parametrize("suffix", ["", ".gz", ".xz"])
def test_broken_idx(tmp_path: Path, content: bytes, reason: str, suffix: str) -> None:
    path = write_idx(tmp_path, "train-", some_images(), labels(0, 1, 2, 3), suffix)
    path.write_bytes(PACK[suffix](content))
    with pytest.raises(InputError) as error:
        read_idx([path])
    assert str(error.value).startswith(f"{path}: ")
    assert reason in str(error.value)
    assert str(error.value).endswith("; download it again")


@pytest.mark.parametrize("suffix", [".gz", ".xz"])
@pytest.mark.parametrize("cut", [0.5, 0.0])
def test_broken_archive(tmp_path: Path, suffix: str, cut: float) -> None:
    path = write_idx(tmp_path, "train-", some_images(), labels(0, 1, 2, 3), suffix)
    whole = path.read_bytes()
    path.write_bytes(whole[: int(len(whole) * cut)] or b"not packed at all")
    with pytest.raises(InputError, match="cannot be read: .*; download it again"):
        read_idx([path])


# --- npz -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("x", "y"), [("images", "labels"), ("x", "y"), ("X", "Y"), ("x_train", "y_train")])
def test_npz(tmp_path: Path, x: str, y: str) -> None:
    np.savez(tmp_path / "a.npz", **{x: some_images(), y: labels(1, 0, 2, 2)})
    [(split, (pixels, numbers))] = read_npz([tmp_path / "a.npz"]).items()
    assert split == "train"
    assert np.array_equal(pixels, some_images()[..., None])
    assert numbers.tolist() == [1, 0, 2, 2]


def test_one_npz_with_all_splits(tmp_path: Path) -> None:
    keras = {"x_train": some_images(4), "y_train": labels(1, 0, 2, 2), "x_test": some_images(1), "y_test": labels(2)}
    medical = {"val_images": some_images(2), "val_labels": np.array([[1], [2]])}
    np.savez_compressed(tmp_path / "a.npz", **keras, **medical)
    found = read_npz([tmp_path / "a.npz"])
    assert {split: numbers.tolist() for split, (_, numbers) in found.items()} == {
        "train": [1, 0, 2, 2],
        "valid": [1, 2],
        "test": [2],
    }
    assert np.array_equal(found["test"][0], some_images(1)[..., None])


def test_an_npz_for_each_split(tmp_path: Path) -> None:
    files = []
    for name, count in (("train", 4), ("dev", 2), ("test", 1)):
        files.append(tmp_path / f"{name}.npz")
        np.savez(files[-1], images=some_images(count), labels=np.zeros(count, np.int32))
    assert {split: len(pixels) for split, (pixels, _) in read_npz(files).items()} == {"train": 4, "valid": 2, "test": 1}
    assert list(read_npz(files[-1:])) == ["test"]


@pytest.mark.parametrize("name", ["extra", "val"])
def test_npz_files_of_unclear_split(tmp_path: Path, name: str) -> None:
    files = [tmp_path / f"{stem}.npz" for stem in ("train", "dev", name)]
    for file in files:
        np.savez(file, images=some_images(), labels=labels(0, 1, 2, 3))
    asked = f"keep only train.npz, valid.npz and test.npz in {tmp_path}, or name one file"
    with pytest.raises(InputError) as error:
        read_npz(files)
    assert str(error.value) == f"{tmp_path / name}.npz: it is not clear which split these images are for; {asked}"


@pytest.mark.parametrize(
    ("arrays", "reason"),
    [
        ({"images": some_images(), "z": labels(1)}, "there are no labels for 'images', only images, z"),
        ({"a": labels(1)}, "holds a; it needs the arrays images and labels (or x_train, y_train, ...)"),
        ({}, "holds nothing; it needs the arrays images and labels (or x_train, y_train, ...)"),
        ({"x": some_images(2), "y": labels(1)}, "x: there are 2 images but 1 labels; each image needs one label"),
        ({"x": some_images(0), "y": labels()}, "x: there are no images in it"),
        ({"x": some_images(2)[:, :0], "y": labels(0, 1)}, "x: its images have no pixels (0 x "),
        (
            {"x": some_images(1), "y": np.array([1.0])},
            "x: the labels are float64 of shape (1,); each image needs one",
        ),
        (
            {"x": some_images(1), "y": np.eye(2, dtype=int)},
            "x: the labels are int64 of shape (2, 2); each image needs one",
        ),
        ({"x": some_images(1), "y": np.array(3)}, "x: the labels are int64 of shape (); each image needs one"),
        (
            {"x": some_images()[0], "y": labels(1)},
            "x: the images have shape (3, 5); it must be (N, H, W), (N, H, W, C) or",
        ),
        ({"x": np.zeros((1, 5, 6, 7), np.uint8), "y": labels(1)}, "x: the images have shape (1, 5, 6, 7); it must be"),
        (
            {"x": np.full((1, 2, 2), 1.5), "y": labels(1)},
            "x: the pixels are float64 from 1.5 to 1.5; they must be whole numbers",
        ),
        ({"x": np.full((1, 2, 2), -0.1), "y": labels(1)}, "x: the pixels are float64 from -0.1 to -0.1; they must be"),
        ({"x": np.full((1, 2, 2), np.nan), "y": labels(1)}, "x: the pixels are float64 from nan to nan; they must be"),
        (
            {"x": np.full((1, 2, 2), 256), "y": labels(1)},
            "x: the pixels are int64 from 256 to 256; they must be whole numbers",
        ),
        (
            {"x": np.full((1, 2, 2), "a"), "y": labels(1)},
            "x: the pixels are <U1; they must be whole numbers from 0 to 255, or floats from 0 to",
        ),
        ({"x": np.full((1, 2, 2), None), "y": labels(1)}, "cannot be read as npz: it contains Python objects"),
        (
            {"x": some_images(1), "y": labels(1), "labels": labels(0)},
            "labels and y could both be the labels; keep one of them in the file",
        ),
    ],
)
def test_npz_files_that_cannot_be_used(tmp_path: Path, arrays: dict[str, np.ndarray], reason: str) -> None:
    np.savez(tmp_path / "a.npz", **arrays)
    with pytest.raises(InputError) as error:
        read_npz([tmp_path / "a.npz"])
    assert str(error.value).startswith(f"{tmp_path / 'a.npz'}: {reason}")
    assert "\n" not in str(error.value)


def test_broken_npz(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    np.savez_compressed(path, images=some_images(), labels=labels(0, 1, 2, 3))
    whole = path.read_bytes()
    np.save(tmp_path / "lone.npy", some_images())
    damaged = bytearray(whole)
    damaged[60:100] = bytes(40)
    odd = BytesIO()
    with ZipFile(odd, "w") as archive:
        for name in ("images.npy", "labels.npy"):
            archive.writestr(name, "what is this")
    broken = "it is not a complete npz file"
    for content, reason in (
        (b"", broken),
        (b"what is this", broken),
        (whole[:50], broken),
        (whole[:-30], broken),
        (bytes(damaged), ".+"),
        ((tmp_path / "lone.npy").read_bytes(), "it holds one unnamed array"),
        (odd.getvalue(), "images is not an array"),
    ):
        path.write_bytes(content)
        rule = rf"a\.npz: cannot be read as npz: {reason}; write it with np\.savez"
        with pytest.raises(InputError, match=rule) as error:
            read_npz([path])
        assert "\n" not in str(error.value)
        assert "pickle" not in str(error.value)


# --- pixels ----------------------------------------------------------------------------------------------------------


@given(st.integers(1, 5), st.integers(4, 9), st.integers(4, 9), st.sampled_from([1, 3]), st.booleans(), st.booleans())
def test_every_layout_gives_the_same_pixels(n: int, h: int, w: int, c: int, first: bool, floats: bool) -> None:
    wanted = np.random.default_rng(n).integers(0, 256, (n, h, w, c), np.uint8)
    given = wanted.transpose(0, 3, 1, 2) if first else wanted
    found = as_pixels((given / 255).astype(np.float32) if floats else given.astype(np.int64), "here")
    assert found.dtype == np.uint8
    assert np.array_equal(found, wanted)


def test_a_tiny_picture_with_channels_last_stays_so() -> None:
    images = np.arange(2 * 3 * 5 * 3, dtype=np.uint8).reshape(2, 3, 5, 3)
    assert np.array_equal(as_pixels(images, "here"), images)


@pytest.mark.parametrize("suffix", [".gz", ".xz"])
def test_an_idx_file_that_unpacks_to_far_more_than_its_size_is_refused(tmp_path, monkeypatch, suffix):
    monkeypatch.setattr("regard.untrusted.SPARE", 1000)
    path = write_idx(tmp_path, "train-", np.zeros((100, 200, 200), np.uint8), labels(*[0] * 100), suffix)
    with pytest.raises(InputError, match=r"holds more than [\d,]+ bytes, over 100 times its own size; unpack it first"):
        read_idx([path])


def test_an_npz_file_that_unpacks_to_far_more_than_its_size_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("regard.untrusted.SPARE", 1000)
    path = tmp_path / "train.npz"
    np.savez_compressed(path, images=np.zeros((100, 200, 200), np.uint8), labels=labels(*[0] * 100))
    with pytest.raises(InputError, match=r"images: holds more than [\d,]+ bytes, over 100 times its own size"):
        read_npz([path])


def test_an_npz_header_that_lies_about_its_size_gets_no_memory(tmp_path):
    path = tmp_path / "train.npz"
    with ZipFile(path, "w") as archive:
        for name, shape in (("images", (10**6, 1000, 1000)), ("labels", (1,))):
            head = BytesIO()
            np.lib.format.write_array_header_1_0(head, {"descr": "|u1", "fortran_order": False, "shape": shape})
            archive.writestr(f"{name}.npy", head.getvalue() + bytes(10))
    with pytest.raises(InputError, match=r"images: its header says 1,000,000,000,000 bytes, which it does not hold"):
        read_npz([path])
