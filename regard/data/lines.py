"""Read lines of text files, plain or compressed: streaming, strict UTF-8, errors with file and line."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import zlib
from codecs import BOM_UTF8
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from regard.errors import InputError, RegardError

BLOCK = 64 * 1024
LONGEST = 1024 * 1024  # bytes of a line in one block, and characters of a line; so no file needs much memory
WINDOW = 256 * 1024 * 1024  # bytes that an archive may ask to be kept; xz -9 asks for 64 MiB, zstd -22 for 128
PIECE = 512  # bytes of an archive that are decompressed together: they can become 16 MB
MARGIN = 1024 * 1024  # bytes that an xz decompressor needs beside its window
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


def read_lines(
    path: Path, cut: Callable[[str], None] = lambda place: None, longest: int | None = None
) -> Iterator[str]:
    r"""Yield the lines of a text file without their ends (`\n` or `\r\n`; nothing else ends a line).

    A line of more than `longest` characters (1 MiB, unless given) loses its end; `cut` is called with its place.
    """
    longest, begun, is_cut = longest or LONGEST, "", False
    for number, text in read_blocks(path):
        *lines, rest = text.split("\n")
        if lines and len(begun) + len(text) <= longest:  # the usual case, in which no line can be too long
            yield begun + lines[0]
            yield from lines[1:]
            begun = rest
            continue
        for place, line in enumerate([*lines, rest], number):
            begun += line
            if len(begun) > longest:
                if not is_cut:
                    cut(f"{path}:{place}")
                begun, is_cut = begun[:longest], True
            if place < number + len(lines):
                yield begun
                begun, is_cut = "", False
    if begun:
        yield begun


def read_line_parts(path: Path) -> Iterator[tuple[str, bool]]:
    """Yield (text, whether its line ends after it); a line of more than 1 MiB comes in several parts."""
    begun: str | None = None  # the end of the last block, which is followed by more of its line or by nothing
    for _, text in read_blocks(path):
        if begun is not None:
            yield begun, False
        *whole, rest = text.split("\n")
        for line in whole:
            yield line, True
        begun = rest or None
    if begun is not None:
        yield begun, True


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
        remedy = "if it is UTF-16, save the file as UTF-8; if it is compressed, give it its suffix, such as .xz"
        raise InputError(f"{path}:{line}: not text (it holds NUL bytes); {remedy}")
    try:
        return block.replace(b"\r\n", b"\n").decode("utf-8")
    except UnicodeDecodeError as error:
        line += error.object.count(b"\n", 0, error.start)
        wrong = f"byte 0x{error.object[error.start]:02x}"
        raise InputError(f"{path}:{line}: not valid UTF-8 ({wrong}); save the file as UTF-8") from None


def _what_broke(path: Path, error: Exception) -> str:
    if "memory" in str(error).lower():  # "Memory usage limit was exceeded", "Frame requires too much memory"
        return f"needs more than {WINDOW >> 20} MiB of memory to be unpacked; compress it again with a smaller window"
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
            return io.BufferedReader(_Unpacked(path, lambda: lzma.LZMADecompressor(memlimit=WINDOW + MARGIN)))
        if suffix == ".bz2":
            return bz2.open(path)
        if suffix == ".zst":
            return io.BufferedReader(_Unpacked(path, _zstandard(path)))
        return path.open("rb")
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from None


def _zstandard(path: Path) -> Callable[[], Any]:
    """Return a function that makes the decompressor of a frame."""
    try:
        import zstandard
    except ImportError:
        raise RegardError(f'{path}: reading .zst needs zstandard: pip install "regard[zst]"') from None
    return lambda: zstandard.ZstdDecompressor(max_window_size=WINDOW).decompressobj()


class _Unpacked(io.RawIOBase):
    """The decompressed bytes of a file, archive by archive, in limited memory, which the libraries' readers do not do.

    `start` makes the decompressor of an archive.
    """

    def __init__(self, path: Path, start: Callable[[], Any]) -> None:
        self.file = path.open("rb")
        self.start = start
        self.archive: Any = None  # None between two archives
        self.packed = b""
        self.ready = memoryview(b"")

    def readable(self) -> bool:
        """Return True: the stream can be read."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill the buffer with at most one block."""
        while not self.ready:
            self.packed = self.packed or self.file.read(PIECE)
            if not self.packed:
                if self.archive is not None:
                    raise EOFError("the end is missing")
                return 0
            if self.archive is None:
                self.packed = self.packed.lstrip(b"\0")  # padding
            if self.packed:
                self._unpack()
        size = min(len(buffer), len(self.ready))
        buffer[:size], self.ready = self.ready[:size], self.ready[size:]
        return size

    def _unpack(self) -> None:
        try:
            self.archive = self.archive or self.start()
            self.ready = memoryview(self.archive.decompress(self.packed))
        except Exception as error:  # zstandard, whose error class it is, may not be installed
            raise OSError(str(error)) from None
        self.packed = self.archive.unused_data
        if self.archive.eof:
            self.archive = None

    def close(self) -> None:
        """Close the stream and the file."""
        self.file.close()
        super().close()
