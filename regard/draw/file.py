"""Pictures as files: the same figure gives the same bytes, whole or not at all."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

from regard.draw.style import house
from regard.errors import RegardError, choices

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# What would make two files of one figure differ: the time, and in a PNG which matplotlib it was.
SILENT = {"png": {"Software": None}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}
PRINT_DPI = 300  # of cells inside an SVG or PDF


def write(figure: Figure, path: Path) -> None:
    """Write a picture as PNG, SVG or PDF, as the suffix of the path says."""
    suffix = path.suffix.lower()
    if suffix.removeprefix(".") not in SILENT:
        raise RegardError(
            f"{path}: no picture is written as '{suffix}'; {choices(suffix, [f'.{kind}' for kind in SILENT])}"
        )
    put(path, encode(figure, suffix.removeprefix(".")))


def encode(figure: Figure, kind: str) -> bytes:
    """Give the bytes of a file of this kind: png, svg or pdf. Text in an SVG stays text."""
    file = BytesIO()
    with house():
        figure.savefig(file, format=kind, metadata=SILENT[kind], dpi=figure.dpi if kind == "png" else PRINT_DPI)
    return file.getvalue()


def put(path: Path, content: bytes) -> None:
    """Write a file beside its place first, so that it is whole or not there."""
    part = path.with_name(f"{path.name}.part")
    try:
        part.write_bytes(content)
        part.replace(path)
    except FileNotFoundError:
        raise RegardError(f"{path}: there is no folder {path.parent}; make it, or choose another") from None
    except OSError as error:
        part.unlink(missing_ok=True)
        raise RegardError(f"{path}: cannot be written: {error.strerror}; make room or choose another folder") from None
