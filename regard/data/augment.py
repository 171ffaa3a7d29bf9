"""Prepare batches of images on the model's device: normalise them, and augment them at random.

Random numbers come from the device's generator, which the trainer seeds. No function waits for an accelerator.
"""

import numpy as np
import torch
import torch.nn.functional as F
from einops import rearrange
from jaxtyping import Bool, Float, UInt8
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


def distort(images: Float[Tensor, "B C H W"], strength: float) -> Float[Tensor, "B C H W"]:
    """Rotate, shear and scale half of the images, and change their contrast and brightness, by random amounts.

    With strength 1: up to 30 degrees, 0.3 of a side, 30 percent, and twice or half the contrast. The operations are
    among those of AutoAugment (Cubuk et al. 2019), here as one affine map; its border is repeated outside the image.
    The other half stays as it is: the map blurs images a little, and those that a model is used for are not blurred.
    """
    B, device = len(images), images.device
    turn, shear, stretch = (2 * torch.rand(3, B, device=device) - 1) * strength
    angle, scale = turn * (torch.pi / 6), 1 + 0.3 * stretch
    cos, sin, zero = scale * angle.cos(), scale * angle.sin(), torch.zeros_like(angle)
    rows = torch.stack((cos, 0.3 * shear - sin, zero)), torch.stack((sin, cos, zero))
    grid = F.affine_grid(torch.stack(rows).permute(2, 0, 1), list(images.shape), align_corners=False)
    moved = F.grid_sample(images, grid.to(images.dtype), padding_mode="border", align_corners=False)
    contrast, lightness = torch.rand(2, B, 1, 1, 1, device=device)
    changed = moved * 2 ** ((2 * contrast - 1) * strength) + (lightness - 0.5) * strength
    chosen = torch.rand(B, 1, 1, 1, device=device) < 0.5
    return torch.where(chosen, changed, images)


def erase(images: Float[Tensor, "B C H W"], rate: float) -> Float[Tensor, "B C H W"]:
    """Set a rectangle of a share `rate` of the images to zero, the mean colour (random erasing, Zhong et al. 2020)."""
    hidden = rectangles(torch.rand(len(images), device=images.device) * 0.3, images)
    chosen = torch.rand(len(images), 1, 1, 1, device=images.device) < rate
    return images.masked_fill(chosen & hidden, 0.0)


def rectangles(area: Float[Tensor, "B"], images: Float[Tensor, "B C H W"]) -> Bool[Tensor, "B 1 H W"]:
    """Return rectangles of about these shares of an image, with the image's proportions, at random places inside."""
    *_, H, W = images.shape
    side = area.sqrt()
    inside = []
    for pixels in (H, W):
        length = (side * pixels).round()
        first = (torch.rand_like(side) * (pixels - length + 1)).floor()
        place = torch.arange(pixels, device=images.device) - first[:, None]
        inside.append((place >= 0) & (place < length[:, None]))
    down, across = inside
    return (down[:, :, None] & across[:, None, :])[:, None]


def mix(images: Float[Tensor, "B C H W"], rate: float) -> tuple[Float[Tensor, "B C H W"], Float[Tensor, "B"]]:
    """Mix a share `rate` of the images with the image before, and return the share that is left of each.

    Half of them are blended, x = s a + (1 - s) b with s uniform in 0..1 (mixup, Zhang et al. 2018), half get a
    rectangle of the other image (CutMix, Yun et al. 2019).
    """
    B, device = len(images), images.device
    others = images.roll(1, 0)
    chance, kind = torch.rand(2, B, device=device)
    chosen, blends = chance < rate, kind < 0.5
    share = torch.rand(B, device=device)
    pasted = rectangles(1 - share, images)
    kept = torch.where(blends, share, 1 - pasted.float().mean((1, 2, 3)))
    kept = torch.where(chosen, kept, 1.0)
    weight = torch.where(blends[:, None, None, None], share[:, None, None, None], (~pasted).float())
    weight = torch.where(chosen[:, None, None, None], weight, 1.0)
    return weight * images + (1 - weight) * others, kept
