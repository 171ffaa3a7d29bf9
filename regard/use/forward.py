"""Run texts or image files through a model that answers in one forward pass."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from regard.data.augment import normalise
from regard.data.columns import shorten
from regard.data.device import to_device
from regard.data.image_files import decode_file
from regard.decode.engine import in_use
from regard.errors import InputError
from regard.use.batches import Answer, Chunks, Feedback, by_line, padded_batch, tokens_per_batch
from regard.use.box import is_file
from regard.use.bundle import Bundle
from regard.use.fit import Fit, Part, warn_of_cuts

SHOWN = 200  # characters of a path that does not exist: it may be a text


def forward_lines(
    bundle: Bundle,
    chunks: Chunks,
    work: Callable[[dict[str, Tensor]], list[Answer]],
    batch_tokens: int | None,
    feedback: Feedback,
) -> Iterator[tuple[str, Answer | None]]:
    """Yield each line (a text, or the path of an image) with what `work` returned for it; None if it is blank.

    `work` is called in evaluation mode, with the arguments of the model for a batch.
    """
    tokens = tokens_per_batch(batch_tokens, bundle.device)
    found = (_texts if bundle.model.image is None else _images)(bundle, chunks, work, tokens, feedback)
    return ((line, answers[0] if answers else None) for line, answers in found)


def _images(
    bundle: Bundle,
    chunks: Chunks,
    work: Callable[[dict[str, Tensor]], list[Answer]],
    tokens: int,
    feedback: Feedback,
) -> Iterator[tuple[str, list[Answer]]]:
    assert bundle.model.image is not None
    patches = bundle.model.image.patches

    def run(paths: list[str]) -> list[Answer]:
        with in_use(bundle.model):
            return work({"images": image_batch(bundle, paths)})

    return by_line(chunks, _paths, lambda path: patches, run, tokens, feedback.done)


def _texts(
    bundle: Bundle,
    chunks: Chunks,
    work: Callable[[dict[str, Tensor]], list[Answer]],
    tokens: int,
    feedback: Feedback,
) -> Iterator[tuple[str, list[Answer]]]:
    tokenizer, template = bundle.need_tokenizer(), bundle.template
    fit = Fit(tokenizer, bundle.text_limit)

    def run(parts: list[Part]) -> list[Answer]:
        rows = [[*template.before, *part.ids.tolist(), *template.after] for part in parts]
        table, lengths = padded_batch(rows, tokenizer.pad, bundle.device)
        with in_use(bundle.model):
            return work({"tokens": table, "lengths": lengths})

    def cleaned(lines: Sequence[str]) -> list[list[Part]]:
        return fit([bundle.model.clean_text(line) if line.strip() else line for line in lines])

    found = by_line(chunks, cleaned, lambda part: len(part.ids) + 2, run, tokens, feedback.done)
    return warn_of_cuts(found, fit, feedback)


def _paths(lines: Sequence[str]) -> list[list[str]]:
    return [[line.strip()] if line.strip() else [] for line in lines]


def image_batch(bundle: Bundle, paths: list[str]) -> Tensor:
    """Decode image files in the shape that the model needs."""
    image = bundle.model.image
    assert image is not None
    shape = image.height, image.width, image.channels
    pixels = np.stack([_open(Path(path), shape) for path in paths])
    mean, std = (torch.tensor(numbers, device=bundle.device) for numbers in (bundle.mean, bundle.std))
    return normalise(to_device(pixels, bundle.device), mean, std).to(next(bundle.model.parameters()).dtype)


def _open(path: Path, shape: tuple[int, int, int]) -> np.ndarray:
    if not is_file(str(path)):
        raise InputError(f"{shorten(str(path), SHOWN)}: no such image file; give paths of images, one per line")
    pixels = decode_file(path, shape)
    if pixels is None:
        formats = "a complete PNG, JPEG, WEBP, BMP or GIF of at most 64 megapixels"
        raise InputError(f"{path}: cannot be decoded as an image; give {formats}")
    return pixels
