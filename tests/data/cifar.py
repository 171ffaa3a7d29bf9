"""Tiny sets in the layouts of CIFAR-10: its archive, and sheets of tiles."""

import gzip
import io
import tarfile

import numpy as np
from PIL import Image

Set = tuple[np.ndarray, np.ndarray]


def random_set(count: int, seed: int) -> Set:
    """Images of one colour each, which survive JPEG."""
    random = np.random.default_rng(seed)
    images = np.repeat(random.integers(0, 200, (count, 1, 1, 3), np.uint8), 32, 1).repeat(32, 2)
    return images, random.integers(0, 10, count)


def archive_of(splits: dict[str, Set]) -> bytes:
    """Write the official layout: label, then the planes of red, green and blue; five batches and one."""
    members = {}
    for split, (images, labels) in splits.items():
        records = [
            bytes([label]) + b"".join(image[:, :, colour].tobytes() for colour in range(3))
            for image, label in zip(images, labels, strict=True)
        ]
        if split == "test":
            members["test_batch.bin"] = b"".join(records)
        else:
            fifth = len(records) // 5
            for number in range(5):
                members[f"data_batch_{number + 1}.bin"] = b"".join(records[number * fifth : (number + 1) * fifth])
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, content in {**members, "readme.html": b"x"}.items():
            info = tarfile.TarInfo(f"cifar-10-batches-bin/{name}")
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return gzip.compress(buffer.getvalue(), mtime=0)


def sheets_of(splits: dict[str, Set]) -> dict[str, bytes]:
    """Paste tiles of 32 x 32 row by row, three in a row: five JPEG sheets to train on, one lossless WebP to test."""
    files = {}
    for split, (images, labels) in splits.items():
        files[f"{split}_labels.txt"] = "".join(f"{label}\n" for label in labels).encode()
        sheets = 5 if split == "train" else 1
        each = len(images) // sheets
        for number in range(sheets):
            sheet = Image.new("RGB", (3 * 32, each // 3 * 32))
            for index, image in enumerate(images[number * each : (number + 1) * each]):
                sheet.paste(Image.fromarray(image), (index % 3 * 32, index // 3 * 32))
            buffer = io.BytesIO()
            if split == "train":
                sheet.save(buffer, "JPEG", quality=95, subsampling=0)
                files[f"train_{number + 1}.jpg"] = buffer.getvalue()
            else:
                sheet.save(buffer, "WEBP", lossless=True)
                files["test.webp"] = buffer.getvalue()
    return files
