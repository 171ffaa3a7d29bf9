"""Texts or image files through a model that answers at once, and not token by token."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from regard.data.augment import normalise
from regard.data.device import to_device
from regard.data.image_files import decode_file
from regard.decode.engine import in_use
from regard.errors import InputError
from regard.models.vision import VisionTransformer
from regard.use.batches import Answer, Done, by_line, default_tokens, padded
from regard.use.fit import Fit, Part
from regard.use.ready import Ready


def fit_for(ready: Ready) -> Fit | None:
    """Give what makes texts fit; images need none."""
    return None if isinstance(ready.model, VisionTransformer) else Fit(ready.words, ready.limit)


def read_all(
    ready: Ready,
    chunks: Iterable[Sequence[str]],
    fit: Fit | None,
    work: Callable[[dict[str, Tensor]], list[Answer]],
    batch_tokens: int | None,
    done: Done,
) -> Iterator[list[Answer]]:
    """Let a model read texts or images, and give what `work` makes of those of each line.

    `work` is called with the model in use, and the arguments to call it with.
    """
    tokens = batch_tokens or default_tokens(ready.device)
    if fit is None:
        assert isinstance(ready.model, VisionTransformer)
        patches = ready.model.patches.count

        def look(paths: list[str]) -> list[Answer]:
            with in_use(ready.model):
                return work({"images": open_images(ready, paths)})

        return by_line(chunks, _paths, lambda path: patches, look, tokens, done)

    def read(parts: list[Part]) -> list[Answer]:
        before, after = ready.frame.before, ready.frame.after
        rows = [[*before, *part.ids.tolist(), *after] for part in parts]
        table, lengths = padded(rows, ready.words.pad, ready.device)
        with in_use(ready.model):
            return work({"tokens": table, "lengths": lengths})

    return by_line(chunks, fit, lambda part: len(part.ids) + 2, read, tokens, done)


def _paths(lines: Sequence[str]) -> list[list[str]]:
    return [[line.strip()] if line.strip() else [] for line in lines]


def open_images(ready: Ready, paths: list[str]) -> Tensor:
    """Decode image files in the shape the model was made for."""
    assert isinstance(ready.model, VisionTransformer)
    patches = ready.model.patches
    shape = patches.height, patches.width, patches.conv.in_channels
    pixels = np.stack([_open(Path(path), shape) for path in paths])
    mean, std = (torch.tensor(numbers, device=ready.device) for numbers in (ready.mean, ready.std))
    return normalise(to_device(pixels, ready.device), mean, std).to(patches.conv.weight.dtype)


def _open(path: Path, shape: tuple[int, int, int]) -> np.ndarray:
    if not path.is_file():
        raise InputError(f"{path}: there is no such image file; give paths of images, one a line")
    pixels = decode_file(path, shape)
    if pixels is None:
        raise InputError(f"{path}: cannot be decoded as an image; is it whole, and a PNG, JPEG, WEBP, BMP or GIF?")
    return pixels
