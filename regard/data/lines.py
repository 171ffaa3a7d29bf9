"""Read lines of text files, plain or compressed: streaming, strict UTF-8, errors with file and line."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import zlib
from codecs import BOM_UTF8
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from regard.errors import InputError, RegardError

BLOCK = 64 * 1024
LONGEST = 1024 * 1024  # bytes; `read_blocks` cuts a longer line, so that a file without line ends needs little memory
PACKED = (".gz", ".xz", ".bz2", ".zst")
READABLE = (
    "text (.txt, .md, .de, ...) and tables (.tsv, .csv, .jsonl, .ndjson), also as .gz, .xz, .bz2 or .zst; .parquet; "
    "folders saved by Hugging Face datasets"
)
NOT_TEXT = {  # not .pt and .so, which can also be Portuguese and Somali text: NUL bytes tell them apart
    *(".7z", ".jar", ".rar", ".tar", ".tbz2", ".tgz", ".txz", ".z", ".zip"),
    *(".bmp", ".gif", ".ico", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp"),
    *(".avi", ".flac", ".mkv", ".mov", ".mp3", ".mp4", ".ogg", ".wav"),
    *(".doc", ".docx", ".epub", ".odp", ".ods", ".odt", ".pdf", ".ppt", ".pptx", ".rtf", ".xls", ".xlsx"),
    *(".arrow", ".db", ".feather", ".h5", ".hdf5", ".npy", ".npz", ".orc", ".parquet", ".sqlite", ".sqlite3"),
    *(".bin", ".ckpt", ".dll", ".dylib", ".exe", ".onnx", ".pickle", ".pkl", ".pth", ".pyc", ".safetensors"),
}


class EmptyError(InputError):
    """A file without any line."""


def content_suffix(path: Path) -> str:
    """Return the suffix that says what a file holds: the one before .gz, .xz, .bz2 or .zst."""
    name = path.name.lower()
    return Path(name.removesuffix(Path(name).suffix) if name.endswith(PACKED) else name).suffix


def read_lines(path: Path) -> Iterator[str]:
    r"""Yield the lines of a text file without their ends (`\n` or `\r\n`; nothing else ends a line)."""
    begun = ""
    for _, text in read_blocks(path):
        *lines, rest = text.split("\n")
        if lines:
            yield begun + lines[0]
            yield from lines[1:]
            begun = rest
        else:
            begun += rest
    if begun:
        yield begun


def read_blocks(path: Path) -> Iterator[tuple[int, str]]:
    r"""Yield (number of its first line, text) of blocks of about 64 KiB that end with a line; line ends are `\n`.

    A line longer than 1 MiB is cut after a space. Joined, the blocks are exactly the text.
    """
    line, rest, started = 1, b"", False
    with open_unpacked(path) as stream:
        while True:
            try:
                block = rest + stream.read(BLOCK)
                tail = stream.readline(LONGEST)
            except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
                raise InputError(f"{path}: {_what_broke(path, error)}") from None
            block, rest = block + tail, b""
            if not started:
                block = block.removeprefix(BOM_UTF8)
            if len(tail) == LONGEST and not tail.endswith(b"\n"):
                cut = _where_to_cut(block)
                block, rest = block[:cut], block[cut:]
            if not block:
                break
            started = True
            text = _decode(block, path, line)
            yield line, text
            line += text.count("\n")
    if not started:
        raise EmptyError(f"{path}: is empty; it must hold at least one line")


def _where_to_cut(block: bytes) -> int:
    """Return the index after the last space; without any, that of the last character, which may be incomplete."""
    cut = block.rfind(b" ") + 1
    if not cut:
        cut = len(block) - 1
        while cut > len(block) - 4 and block[cut] & 0xC0 == 0x80:  # a continuation byte of UTF-8
            cut -= 1
    return cut


def _decode(block: bytes, path: Path, line: int) -> str:
    if b"\0" in block:
        line += block.count(b"\n", 0, block.index(b"\0"))
        raise InputError(f"{path}:{line}: not text (it holds NUL bytes); if it is UTF-16, save the file as UTF-8")
    try:
        return block.replace(b"\r\n", b"\n").decode("utf-8")
    except UnicodeDecodeError as error:
        line += error.object.count(b"\n", 0, error.start)
        wrong = f"byte 0x{error.object[error.start]:02x}"
        raise InputError(f"{path}:{line}: not valid UTF-8 ({wrong}); save the file as UTF-8") from None


def _what_broke(path: Path, error: Exception) -> str:
    if path.name.lower().endswith(PACKED):
        return f"broken or truncated archive ({error}); download or compress it again"
    return f"cannot be read ({error})"


def open_unpacked(path: Path) -> io.BufferedIOBase:
    """Open a file for reading, decompressed as its suffix says."""
    if path.is_dir():
        raise InputError(f"{path}: is a folder; name a file in it")
    if not path.exists():
        raise InputError(f"{path}: no such file; check the path")
    if content_suffix(path) in NOT_TEXT:
        raise InputError(f"{path}: cannot be read as text; what can be read: {READABLE}")
    suffix = path.suffix.lower()
    try:
        if suffix == ".gz":
            return gzip.open(path)
        if suffix == ".xz":
            return lzma.open(path)
        if suffix == ".bz2":
            return bz2.open(path)
        if suffix == ".zst":
            return io.BufferedReader(_Zstandard(path))
        return path.open("rb")
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from None


class _Zstandard(io.RawIOBase):
    """The decompressed bytes of a .zst file, frame by frame; unlike the library's own reader, it detects truncation."""

    def __init__(self, path: Path) -> None:
        try:
            import zstandard
        except ImportError:
            raise RegardError(f'{path}: reading .zst needs zstandard: pip install "regard[zst]"') from None
        self.file = path.open("rb")
        self.package = zstandard
        self.frame: Any = None  # None between two frames
        self.packed = self.ready = b""

    def readable(self) -> bool:
        """Return True: the stream can be read."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill the buffer with at most one block."""
        while not self.ready:
            self.packed = self.packed or self.file.read(16 * 1024)
            if not self.packed:
                if self.frame is not None:
                    raise EOFError("the end is missing")
                return 0
            self._unpack()
        size = min(len(buffer), len(self.ready))
        buffer[:size], self.ready = self.ready[:size], self.ready[size:]
        return size

    def _unpack(self) -> None:
        self.frame = self.frame or self.package.ZstdDecompressor(max_window_size=2**31).decompressobj()
        try:
            self.ready = self.frame.decompress(self.packed)
        except self.package.ZstdError as error:
            raise OSError(str(error)) from None
        self.packed = self.frame.unused_data
        if self.frame.eof:
            self.frame = None

    def close(self) -> None:
        """Close the stream and the file."""
        self.file.close()
        super().close()
