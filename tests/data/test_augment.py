"""Batches of images against loops over single images."""

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from regard.data import augment
from regard.data.augment import channel_statistics, distort, erase, flip, mix, normalise, shift


def some_pixels(count: int, height: int, width: int, channels: int) -> np.ndarray:
    return np.random.default_rng(count).integers(0, 256, (count, height, width, channels), np.uint8)


def some_images(count: int, height: int = 4, width: int = 5) -> Tensor:
    return torch.randn(count, 2, height, width, generator=torch.Generator().manual_seed(count))


# --- statistics ------------------------------------------------------------------------------------------------------


@given(st.integers(1, 7), st.integers(1, 4), st.integers(2, 4), st.sampled_from([1, 3]), st.integers(1, 60))
def test_statistics_are_those_of_all_pixels_at_once(n: int, h: int, w: int, c: int, chunk: int) -> None:
    pixels = some_pixels(n, h, w, c)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(augment, "CHUNK", chunk)
        mean, std = channel_statistics(pixels)
    exact = pixels.astype(np.float64) / 255
    np.testing.assert_allclose(mean, exact.mean((0, 1, 2)), rtol=1e-12)
    np.testing.assert_allclose(std, exact.std((0, 1, 2)), rtol=1e-10)


def test_a_channel_that_never_changes_can_be_divided_by() -> None:
    pixels = some_pixels(3, 2, 2, 3)
    pixels[..., 1] = 51
    mean, std = channel_statistics(pixels)
    assert (mean[1], std[1]) == (0.2, 1.0)
    assert std[0] != 1.0


def test_statistics_of_a_memory_map(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", some_pixels(5, 3, 3, 3))
    assert channel_statistics(np.load(tmp_path / "a.npy", mmap_mode="r")) == channel_statistics(some_pixels(5, 3, 3, 3))


# --- normalise -------------------------------------------------------------------------------------------------------


def test_normalise_pixel_by_pixel() -> None:
    pixels = torch.from_numpy(some_pixels(2, 3, 4, 3))
    mean, std = torch.tensor([0.1, 0.5, 0.9]), torch.tensor([0.2, 1.0, 0.3])
    found = normalise(pixels, mean, std)
    assert (found.shape, found.dtype) == ((2, 3, 3, 4), torch.float32)
    for b, h, w, c in np.ndindex(2, 3, 4, 3):
        wanted = (pixels[b, h, w, c].item() / 255 - mean[c].item()) / std[c].item()
        assert found[b, c, h, w].item() == pytest.approx(wanted, abs=1e-5)


def test_normalised_images_have_mean_zero_and_deviation_one() -> None:
    pixels = some_pixels(20, 4, 4, 3) // np.array([1, 2, 5], np.uint8)
    found = normalise(torch.from_numpy(pixels), *(torch.tensor(numbers) for numbers in channel_statistics(pixels)))
    torch.testing.assert_close(found.mean((0, 2, 3)), torch.zeros(3), rtol=0, atol=1e-5)
    torch.testing.assert_close(found.std((0, 2, 3), correction=0), torch.ones(3), rtol=0, atol=1e-5)


# --- shift and flip --------------------------------------------------------------------------------------------------


def moved(image: Tensor, down: int, right: int) -> Tensor:
    """Move one image pixel by pixel; where nothing is left, its border is repeated."""
    result = torch.zeros_like(image)
    _, height, width = image.shape
    for row in range(height):
        for column in range(width):
            from_row, from_column = min(max(row - down, 0), height - 1), min(max(column - right, 0), width - 1)
            result[:, row, column] = image[:, from_row, from_column]
    return result


@pytest.mark.parametrize("by", [1, 2, 6])
def test_every_image_is_shifted_on_its_own_by_every_distance(by: int) -> None:
    torch.manual_seed(0)
    image = some_images(1)[0]
    distances = [(down, right) for down in range(-by, by + 1) for right in range(-by, by + 1)]
    choices = {moved(image, *distance).numpy().tobytes() for distance in distances}
    shifted = shift(image.expand(60 * len(choices), -1, -1, -1), by)
    assert {one.numpy().tobytes() for one in shifted} == choices


def test_shift_keeps_images_apart() -> None:
    torch.manual_seed(0)
    images = some_images(8)
    for image, found in zip(images, shift(images, 1), strict=True):
        around = (-1, 0, 1)
        assert any(torch.equal(found, moved(image, down, right)) for down in around for right in around)


def test_a_shift_by_nothing_changes_nothing() -> None:
    assert torch.equal(shift(some_images(3), 0), some_images(3))


def test_flip_mirrors_some_and_leaves_the_others() -> None:
    torch.manual_seed(0)
    images = some_images(64)
    found = flip(images)
    same = [torch.equal(one, image) for one, image in zip(found, images, strict=True)]
    mirrored = [torch.equal(one, image.flip(-1)) for one, image in zip(found, images, strict=True)]
    assert all(a != b for a, b in zip(same, mirrored, strict=True))
    assert 16 < sum(mirrored) < 48


def test_chance_follows_the_seed_of_torch() -> None:
    def varied(seed: int) -> Tensor:
        torch.manual_seed(seed)
        return flip(shift(some_images(16), 2))

    assert torch.equal(varied(1), varied(1))
    assert not torch.equal(varied(1), varied(2))


# --- distort, erase, mix ---------------------------------------------------------------------------------------------


def test_a_distortion_of_strength_zero_changes_nothing() -> None:
    images = torch.rand(4, 3, 9, 7)
    assert torch.allclose(distort(images, 0.0), images, atol=1e-5)


def test_a_distortion_turns_images_and_changes_their_contrast() -> None:
    torch.manual_seed(0)
    image = torch.zeros(1, 1, 21, 21)
    image[..., 10] = 1.0  # a vertical line through the centre
    found = distort(image.expand(64, -1, -1, -1), 1.0)
    contrast = found.amax((1, 2, 3)) - found.amin((1, 2, 3))
    assert 0.4 < contrast.min() < 0.9 < 1.2 < contrast.max() <= 2.001
    top = found[:, 0, 2].argmax(-1)
    assert len(set(top.tolist())) > 5  # the line leans to both sides
    assert top.min() < 10 < top.max()


def test_half_of_the_images_are_not_distorted() -> None:
    torch.manual_seed(0)
    images = torch.rand(400, 1, 9, 7)
    same = (distort(images, 0.5) == images).flatten(1)
    assert torch.equal(same.all(1), same.any(1))
    assert 0.4 < same.all(1).float().mean() < 0.6


def test_erasing_hides_one_rectangle_of_some_images() -> None:
    torch.manual_seed(0)
    found = erase(torch.ones(400, 2, 12, 12), 0.5) == 0
    assert torch.equal(found[:, 0], found[:, 1])
    hidden = found[:, 0]
    down, across = hidden.any(2), hidden.any(1)
    assert torch.equal(hidden, down[:, :, None] & across[:, None, :])
    for side in (down, across):  # without gaps
        assert bool((side.float().diff(dim=1).abs().sum(1) <= 2).all())
    assert 0.4 < hidden.flatten(1).any(1).float().mean() < 0.6
    assert hidden.float().mean((1, 2)).max() < 0.36


def test_the_share_of_a_mixed_image_is_what_is_left_of_it() -> None:
    torch.manual_seed(0)
    images = torch.arange(200.0)[:, None, None, None].expand(-1, 1, 10, 10)
    found, share = mix(images, 0.8)
    before = images.roll(1, 0)
    expected = share[:, None, None, None] * images + (1 - share)[:, None, None, None] * before
    assert torch.allclose(found.mean((1, 2, 3)), expected.mean((1, 2, 3)), atol=1e-3)
    assert 0.1 < float((share == 1).float().mean()) < 0.35
    flat = found.flatten(1)
    blended = (flat == flat[:, :1]).all(1) & (share != 1)
    assert 0.25 < float(blended.float().mean()) < 0.55


def test_nothing_is_mixed_at_rate_zero() -> None:
    images = torch.rand(5, 1, 4, 4)
    found, share = mix(images, 0.0)
    assert torch.equal(found, images)
    assert share.tolist() == [1.0] * 5
