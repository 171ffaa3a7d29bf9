"""Pictures as files: the same figure gives the same bytes; files are written completely or not at all."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

from regard.atomic import write_file
from regard.draw.style import regard_style
from regard.errors import RegardError, choices

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Metadata that would make two files of one figure differ: the time, and in a PNG the version of matplotlib.
REMOVED_METADATA = {"png": {"Software": None}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}
PRINT_DPI = 300  # of cells inside an SVG or PDF


def write_figure(figure: Figure, path: str | Path) -> None:
    """Write a picture as PNG, SVG or PDF, depending on the suffix of the path."""
    path = Path(path)
    suffix = path.suffix.lower()
    if suffix.removeprefix(".") not in REMOVED_METADATA:
        raise RegardError(
            f"{path}: unknown picture format '{suffix}'; {choices(suffix, [f'.{kind}' for kind in REMOVED_METADATA])}"
        )
    write_bytes(path, encode_figure(figure, suffix.removeprefix(".")))


def encode_figure(figure: Figure, kind: str) -> bytes:
    """Return the bytes of a png, svg or pdf file. Text in an SVG stays text."""
    file = BytesIO()
    with regard_style():
        figure.savefig(
            file, format=kind, metadata=REMOVED_METADATA[kind], dpi=figure.dpi if kind == "png" else PRINT_DPI
        )
    return file.getvalue()


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file completely or not at all."""
    with write_file(path) as part:
        part.write_bytes(content)
