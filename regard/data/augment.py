"""Prepare batches of images on the model's device: normalise them, and augment them by random shifts and flips.

Random numbers come from the device's generator, which the trainer seeds. No function waits for an accelerator.
"""

import numpy as np
import torch
from einops import rearrange
from jaxtyping import Float, UInt8
from torch import Tensor

CHUNK = 2**22  # bytes of pixels that are read together


def channel_statistics(pixels: UInt8[np.ndarray, "N H W C"]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return the mean and standard deviation of each channel, with pixels scaled to 0..1.

    It reads a few images at a time, so that a memory map is not loaded completely, and sums integers, so that nothing
    is rounded. A constant channel gets the deviation 1, since images are divided by it.
    """
    count, height, width, channels = pixels.shape
    assert count, "there are no images"
    total, squares = [0] * channels, [0] * channels
    step = max(1, CHUNK // (height * width * channels))
    for start in range(0, count, step):
        some = pixels[start : start + step].reshape(-1, channels)
        for channel in range(channels):
            counts = np.bincount(some[:, channel], minlength=256)
            total[channel] += int(counts @ np.arange(256))
            squares[channel] += int(counts @ np.arange(256) ** 2)
    size = count * height * width
    mean = tuple(t / size / 255 for t in total)
    variances = ((s * size - t * t) / size**2 for s, t in zip(squares, total, strict=True))
    return mean, tuple(variance**0.5 / 255 or 1.0 for variance in variances)


def normalise(
    pixels: UInt8[Tensor, "B H W C"], mean: Float[Tensor, "C"], std: Float[Tensor, "C"]
) -> Float[Tensor, "B C H W"]:
    """Return x = (pixels / 255 - mean) / std, with the channels first."""
    return rearrange((pixels / 255 - mean) / std, "B H W C -> B C H W")


def shift(images: Float[Tensor, "B C H W"], by: int) -> Float[Tensor, "B C H W"]:
    """Shift each image by up to `by` pixels in both directions; its border is repeated where nothing is left."""
    B, _, H, W = images.shape
    device = images.device
    down, right = torch.randint(-by, by + 1, (2, B, 1), device=device)
    rows = (down + torch.arange(H, device=device)).clamp(0, H - 1)
    columns = (right + torch.arange(W, device=device)).clamp(0, W - 1)
    image = torch.arange(B, device=device)[:, None, None]
    last = rearrange(images, "B C H W -> B H W C")
    return rearrange(last[image, rows[:, :, None], columns[:, None, :]], "B H W C -> B C H W")


def flip(images: Float[Tensor, "B C H W"]) -> Float[Tensor, "B C H W"]:
    """Flip each image left to right with probability 1/2."""
    chosen = torch.rand(len(images), 1, 1, 1, device=images.device) < 0.5
    return torch.where(chosen, images.flip(-1), images)
