"""An image as a vision model sees it: cropped and scaled to the model's size, and cut into patches."""

from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, UInt8
from torch import Tensor

from regard.data.augment import normalise
from regard.data.device import to_device
from regard.data.image_files import decode_file
from regard.errors import InputError
from regard.models.model import ImageInput
from regard.use.bundle import Bundle
from regard.viewer.manifest import ImageInfo, Token

Image = str | Path | bytes | np.ndarray  # a file, its bytes, or pixels (height x width, or x channels, 0..255)


@dataclass(frozen=True, eq=False)
class PatchedImage:
    """An image, and how it is cut into patches."""

    pixels: UInt8[np.ndarray, "H W C"]
    rows: int
    columns: int
    first: int  # the token of the first patch: 1 after a class token, else 0

    def info(self) -> ImageInfo:
        """Describe the patches for the manifest."""
        height, width, _ = self.pixels.shape
        return {"rows": self.rows, "columns": self.columns, "first": self.first, "width": width, "height": height}

    def tokens(self) -> list[Token]:
        """Name the patches by row and column, counted from 1."""
        names = [f"{row},{column}" for row in range(1, self.rows + 1) for column in range(1, self.columns + 1)]
        texts = ["[class]"] * self.first + names
        return [
            Token(
                text=text, id=index, special=index < self.first, word=index - self.first if index >= self.first else -1
            )
            for index, text in enumerate(texts)
        ]

    def png(self) -> bytes:
        """Encode the image as PNG."""
        return _png(self.pixels)


def read_image(shape: ImageInput, image: Image) -> PatchedImage:
    """Read an image, cropped and scaled to the shape that the model expects."""
    return cut_into_patches(shape, _decode(image, (shape.height, shape.width, shape.channels)))


def cut_into_patches(shape: ImageInput, pixels: UInt8[np.ndarray, "H W C"]) -> PatchedImage:
    """Describe how a model cuts pixels into patches."""
    return PatchedImage(pixels, shape.rows, shape.columns, shape.first)


def image_tensor(bundle: Bundle, picture: PatchedImage) -> Float[Tensor, "1 C H W"]:
    """Return the pixels as the model's input; without a stored mean and standard deviation, scaled to -1..1."""
    channels = picture.pixels.shape[2]
    mean, std = (
        torch.tensor(numbers or (0.5,) * channels, device=bundle.device) for numbers in (bundle.mean, bundle.std)
    )
    dtype = next(bundle.model.parameters()).dtype
    return normalise(to_device(picture.pixels[None].copy(), bundle.device), mean, std).to(dtype)


def _decode(image: Image, shape: tuple[int, int, int]) -> UInt8[np.ndarray, "H W C"]:
    if isinstance(image, np.ndarray):
        image = _png(_checked(image))
    if isinstance(image, bytes):
        pixels, name = decode_file(BytesIO(image), shape), "the image"
    else:
        path = Path(image)
        if not path.is_file():
            raise InputError(f"{path}: there is no such image file; give the path of a PNG, JPEG, WEBP, BMP or GIF")
        pixels, name = decode_file(path, shape), str(path)
    if pixels is None:
        raise InputError(f"{name}: cannot be decoded as an image; use a complete PNG, JPEG, WEBP, BMP or GIF")
    return pixels


def _checked(pixels: np.ndarray) -> np.ndarray:
    if pixels.dtype != np.uint8 or pixels.ndim not in (2, 3) or (pixels.ndim == 3 and pixels.shape[2] not in (1, 3)):
        given = f"{pixels.dtype} of shape {pixels.shape}"
        raise InputError(f"pixels must be uint8, height x width or height x width x 1 or 3, not {given}")
    return pixels


def _png(pixels: np.ndarray) -> bytes:
    from PIL.Image import fromarray

    grey = pixels.ndim == 3 and pixels.shape[2] == 1
    file = BytesIO()
    fromarray(pixels[..., 0] if grey else pixels).save(file, "PNG")
    return file.getvalue()
