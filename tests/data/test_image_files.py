"""Decoded images compared with the arrays that were stored, and the cache of decoded images."""

import os
import shutil
import tracemalloc
from pathlib import Path
from unittest.mock import MagicMock

import numpy as np
import pytest
from PIL import Image

from regard.data import image_files
from regard.data.image_files import decode_splits, resize_images
from regard.errors import InputError, RegardError


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def colours(height: int = 4, width: int = 6, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)


def greys(height: int = 4, width: int = 6, seed: int = 0) -> np.ndarray:
    return colours(height, width, seed)[..., 0]


def pixels_of(*files: Path, size: int | None = None) -> np.ndarray:
    pixels, kept = decode_splits({"train": files}, size)["train"]
    assert kept.tolist() == [True] * len(files)
    return pixels


def save(path: Path, array: np.ndarray, **options: object) -> Path:
    Image.fromarray(array).save(path, **options)
    return path


# --- one image -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["a.png", "a.bmp", "a.PNG"])
def test_colours_come_back_exactly(tmp_path: Path, name: str) -> None:
    assert np.array_equal(pixels_of(save(tmp_path / name, colours())), colours()[None])


def test_lossless_webp_comes_back_exactly(tmp_path: Path) -> None:
    assert np.array_equal(pixels_of(save(tmp_path / "a.webp", colours(), lossless=True)), colours()[None])


def test_jpeg_comes_back_nearly(tmp_path: Path) -> None:
    smooth = np.add.outer(np.arange(16) * 8, np.arange(16) * 4).astype(np.uint8)
    found = pixels_of(save(tmp_path / "a.jpg", np.stack((smooth, smooth // 2, 255 - smooth), -1), quality=95))
    assert np.abs(found[0, ..., 0].astype(int) - smooth).max() < 12
    assert np.abs(found[0, ..., 2].astype(int) - (255 - smooth)).max() < 12


def test_a_large_jpeg_is_scaled_as_if_decoded_in_full(tmp_path: Path) -> None:
    image = Image.fromarray(colours(12, 12)).resize((384, 384), Image.Resampling.BICUBIC)
    image.save(tmp_path / "a.jpg", quality=95)
    [found] = pixels_of(tmp_path / "a.jpg", size=16)
    wanted = np.asarray(image.resize((16, 16), Image.Resampling.BICUBIC))
    assert np.abs(found.astype(int) - wanted).mean() < 3


def test_the_first_frame_of_a_gif(tmp_path: Path) -> None:
    frames = [Image.new("RGB", (5, 3), colour) for colour in ("red", "blue")]
    frames[0].save(tmp_path / "a.gif", save_all=True, append_images=frames[1:])
    assert np.array_equal(pixels_of(tmp_path / "a.gif"), np.full((1, 3, 5, 3), (255, 0, 0)))


def test_a_file_is_known_by_its_content_among_the_formats(tmp_path: Path) -> None:
    save(tmp_path / "a.png", colours()).rename(tmp_path / "a.jpg")
    assert np.array_equal(pixels_of(tmp_path / "a.jpg"), colours()[None])


def test_other_formats_are_not_tried_whatever_the_name(tmp_path: Path) -> None:
    save(tmp_path / "a.tiff", colours()).rename(tmp_path / "a.png")
    with pytest.raises(InputError, match="none of 1 images can be decoded"):
        pixels_of(tmp_path / "a.png")


@pytest.mark.parametrize("turn", range(1, 9))
def test_a_photograph_is_upright(tmp_path: Path, turn: int) -> None:
    """The camera stores the image rotated and writes the orientation; here the rotation is undone by hand."""
    stored = {
        1: lambda x: x,
        2: lambda x: x[:, ::-1],
        3: lambda x: x[::-1, ::-1],
        4: lambda x: x[::-1],
        5: lambda x: x.transpose(1, 0, 2),
        6: lambda x: np.rot90(x),
        7: lambda x: x[::-1, ::-1].transpose(1, 0, 2),
        8: lambda x: np.rot90(x, -1),
    }[turn](colours())
    notes = Image.Exif()
    notes[0x0112] = turn
    found = pixels_of(save(tmp_path / "a.png", np.ascontiguousarray(stored), exif=notes))
    assert np.array_equal(found, colours()[None])


def test_what_is_transparent_is_white(tmp_path: Path) -> None:
    alpha = np.full((4, 6, 1), 255, np.uint8)
    alpha[:2] = 0
    wanted = colours()
    wanted[:2] = 255
    assert np.array_equal(pixels_of(save(tmp_path / "a.png", np.concatenate((colours(), alpha), -1))), wanted[None])


def test_a_transparent_grey_image_stays_grey(tmp_path: Path) -> None:
    alpha = np.full((4, 6), 255, np.uint8)
    alpha[:, 3:] = 0
    wanted = greys()
    wanted[:, 3:] = 255
    image = Image.merge("LA", (Image.fromarray(greys()), Image.fromarray(alpha)))
    image.save(tmp_path / "a.png")
    assert np.array_equal(pixels_of(tmp_path / "a.png"), wanted[None, ..., None])


def test_sixteen_bits_are_scaled_not_clipped(tmp_path: Path) -> None:
    deep = greys().astype(np.uint16) * 256 + 77
    assert np.array_equal(pixels_of(save(tmp_path / "a.png", deep)), greys()[None, ..., None])


def test_a_palette_is_resolved(tmp_path: Path) -> None:
    image = Image.fromarray(colours()).quantize(16)
    image.save(tmp_path / "a.png")
    assert np.array_equal(pixels_of(tmp_path / "a.png"), np.asarray(image.convert("RGB"))[None])


# --- one shape for all -----------------------------------------------------------------------------------------------


def test_grey_if_all_are_grey(tmp_path: Path) -> None:
    grey, also = save(tmp_path / "a.png", greys()), save(tmp_path / "b.png", greys(seed=1))
    assert np.array_equal(pixels_of(grey, also), np.stack((greys(), greys(seed=1)))[..., None])


def test_one_colour_image_makes_all_rgb(tmp_path: Path) -> None:
    found = pixels_of(save(tmp_path / "a.png", greys()), save(tmp_path / "b.png", colours()))
    assert np.array_equal(found, np.stack((np.repeat(greys()[..., None], 3, -1), colours())))


def test_images_of_different_sizes_become_64_by_64(tmp_path: Path) -> None:
    files = [save(tmp_path / "a.png", colours(4, 6)), save(tmp_path / "b.png", colours(6, 4))]
    assert pixels_of(*files).shape == (2, 64, 64, 3)
    assert pixels_of(*files, size=5).shape == (2, 5, 5, 3)


def test_the_longer_side_is_cut_around_the_centre(tmp_path: Path) -> None:
    lying, standing = save(tmp_path / "a.png", colours(4, 8)), save(tmp_path / "b.png", colours(8, 4))
    assert np.array_equal(pixels_of(lying, standing, size=4), np.stack((colours(4, 8)[:, 2:6], colours(8, 4)[2:6])))


def test_the_shorter_side_is_scaled_before_the_longer_is_cut(tmp_path: Path) -> None:
    [found] = pixels_of(save(tmp_path / "a.png", colours(16, 48)), size=8)
    whole = np.asarray(Image.fromarray(colours(16, 48)).resize((24, 8), Image.Resampling.BICUBIC))
    assert np.array_equal(found, whole[:, 8:16])


def test_valid_and_test_get_the_shape_of_train(tmp_path: Path) -> None:
    train, test = save(tmp_path / "a.png", greys()), save(tmp_path / "b.png", colours(9, 9))
    found = decode_splits({"train": [train], "test": [test]}, None)
    assert [found[split][0].shape for split in ("train", "test")] == [(1, 4, 6, 1), (1, 4, 6, 1)]


@pytest.mark.parametrize("channels", [1, 3])
def test_resizing_in_memory_is_the_same_as_from_files(tmp_path: Path, channels: int) -> None:
    arrays = [colours(7, 9, seed)[..., :channels] for seed in range(3)]
    files = [save(tmp_path / f"{seed}.png", array.squeeze()) for seed, array in enumerate(arrays)]
    assert np.array_equal(resize_images(np.stack(arrays), 5), pixels_of(*files, size=5))


# --- broken files ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["b.png", "b.jpg", "b.webp", "b.bmp", "b.gif"])
@pytest.mark.parametrize("part", [0.0, 0.02, 0.5])
def test_broken_images_are_left_out(tmp_path: Path, name: str, part: float) -> None:
    files = [save(tmp_path / other, colours(40, 40)) for other in ("a.png", name, "c.png")]
    save(files[2], colours(40, 40, seed=2))
    whole = files[1].read_bytes()
    files[1].write_bytes(whole[: int(len(whole) * part)])
    for _ in ("decoded", "from the cache"):
        pixels, kept = decode_splits({"train": files}, None)["train"]
        assert kept.tolist() == [True, False, True]
        assert np.array_equal(pixels, np.stack((colours(40, 40), colours(40, 40, seed=2))))


@pytest.mark.parametrize("part", [0.0, 0.5])
def test_all_images_broken(tmp_path: Path, cache: Path, part: float) -> None:
    files = [save(tmp_path / name, colours(40, 40)) for name in ("a.png", "b.png")]
    for file in files:
        file.write_bytes(file.read_bytes()[: int(file.stat().st_size * part)])
    with pytest.raises(InputError) as error:
        decode_splits({"train": files}, None)
    wanted = f"{files[0]}: none of 2 images can be decoded, this one included; check that they are complete"
    assert str(error.value) == wanted
    assert list((cache / "images").iterdir()) == []


# --- the cache -------------------------------------------------------------------------------------------------------


def forbid_decoding(monkeypatch: pytest.MonkeyPatch) -> None:
    def decode_all(*_: object) -> None:
        raise AssertionError("decoded again")

    monkeypatch.setattr(image_files, "_decode_all", decode_all)


def test_images_are_decoded_once_and_mapped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = save(tmp_path / "a.png", colours())
    first = pixels_of(file)
    forbid_decoding(monkeypatch)
    second = pixels_of(file)
    assert isinstance(second, np.memmap)
    assert np.array_equal(first, second)
    with pytest.raises(AssertionError, match="decoded again"):
        pixels_of(file, size=3)


def test_a_changed_file_is_decoded_again(tmp_path: Path) -> None:
    file = save(tmp_path / "a.bmp", colours())
    pixels_of(file)
    save(file, colours(seed=1))
    os.utime(file, ns=(1, 1))  # of the same size, but of another time
    assert np.array_equal(pixels_of(file), colours(seed=1)[None])


def test_another_file_is_not_taken_for_this_one(tmp_path: Path) -> None:
    one, other = save(tmp_path / "a.bmp", colours()), save(tmp_path / "b.bmp", colours(seed=1))
    for file in (one, other):
        os.utime(file, ns=(1, 1))
    assert np.array_equal(pixels_of(one), colours()[None])
    assert np.array_equal(pixels_of(other), colours(seed=1)[None])


@pytest.mark.parametrize("victim", ["train.npy", "train-kept.npy"])
@pytest.mark.parametrize("size", [None, 0, 100])
def test_a_damaged_cache_is_made_again(tmp_path: Path, cache: Path, victim: str, size: int | None) -> None:
    file = save(tmp_path / "a.png", colours())
    pixels_of(file)
    [folder] = (cache / "images").iterdir()
    if size is None:
        (folder / victim).unlink()
    else:
        os.truncate(folder / victim, size)
    assert np.array_equal(pixels_of(file), colours()[None])
    assert list((cache / "images").iterdir()) == [folder]


def test_the_cache_of_a_faster_process_is_used(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = save(tmp_path / "a.png", colours())
    pixels_of(file)
    [folder] = (cache / "images").iterdir()
    folder.rename(tmp_path / "done by another")
    decode_all = image_files._decode_all

    def meanwhile(*arguments: object) -> None:
        decode_all(*arguments)  # type: ignore[arg-type]
        shutil.copytree(tmp_path / "done by another", folder)

    monkeypatch.setattr(image_files, "_decode_all", meanwhile)
    assert np.array_equal(pixels_of(file), colours()[None])
    assert list((cache / "images").iterdir()) == [folder]


def test_a_cache_that_cannot_be_written(tmp_path: Path, cache: Path) -> None:
    cache.write_text("not a folder")
    with pytest.raises(RegardError) as error:
        pixels_of(save(tmp_path / "a.png", colours()))
    assert str(error.value).startswith(f"{cache / 'images'}")
    wanted = ": cannot be written: Not a directory; free some space, or set REGARD_CACHE to another folder"
    assert str(error.value).endswith(wanted)


def test_a_full_disk(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np.lib.format, "write_array_header_1_0", full)
    with pytest.raises(RegardError, match="No space left on device; free some space, or set REGARD_CACHE"):
        pixels_of(save(tmp_path / "a.png", colours()))
    assert list((cache / "images").iterdir()) == []


def test_few_images_are_in_memory_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(image_files, "WORKERS", 2)
    file = save(tmp_path / "a.png", colours(100, 100))
    pixels_of(file)  # so that everything is imported
    files = [Path(shutil.copy(file, tmp_path / f"{number}.png")) for number in range(100)]
    tracemalloc.start()
    found = pixels_of(*files)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < found.nbytes / 3


def test_a_picture_of_too_many_pixels_is_not_decoded(tmp_path, monkeypatch):
    small, large = save(tmp_path / "a.png", colours(10, 10)), save(tmp_path / "b.png", colours(11, 10))
    monkeypatch.setattr(image_files, "MOST_PIXELS", 100)
    assert image_files.decode_file(small, (4, 4, 3)) is not None
    assert image_files.decode_file(large, (4, 4, 3)) is None
    photo = save(tmp_path / "c.jpg", colours(80, 80))  # decoded at an eighth of its size
    assert image_files.decode_file(photo, (4, 4, 3)) is not None


def test_large_pictures_are_decoded_one_at_a_time(tmp_path, monkeypatch):
    monkeypatch.setattr(image_files, "LARGE", 10)
    monkeypatch.setattr(image_files, "ONE_LARGE", lock := MagicMock())
    image_files.decode_file(save(tmp_path / "a.png", colours(10, 10)), (4, 4, 3))
    assert lock.__enter__.call_count == lock.__exit__.call_count == 1
