"""Read the lines of standard input as they arrive: small groups when the pipe pauses, large ones when it is full."""

import os
import sys
from codecs import BOM_UTF8
from collections.abc import Callable, Iterator
from select import select

from regard.data.lines import LONGEST
from regard.errors import InputError

BLOCK = 1 << 16
ENOUGH = 1 << 20  # bytes that are returned together at most, plus one block
PAUSE = 0.05  # seconds without new bytes after which the lines so far are returned


def read_available(cut: Callable[[str], None]) -> Iterator[list[str]]:
    """Yield lists of the lines that have arrived; only the last line of all may lack its line break.

    A line of more than 1 MiB loses its end; `cut` is called with its place.
    """
    source = sys.stdin.fileno()
    rest, number, open_ = b"", 1, True
    while open_:
        data, open_ = _arrived(source)
        *whole, rest = (rest + data).split(b"\n")
        rest = rest[: LONGEST + 1]  # one byte more than is kept of a line, so that it is known to be too long
        lines = whole if open_ or not rest else [*whole, rest]
        if lines:
            if number == 1:
                lines[0] = lines[0].removeprefix(BOM_UTF8)
            yield [_text(line, f"standard input:{number + place}", cut) for place, line in enumerate(lines)]
            number += len(lines)


def _arrived(source: int) -> tuple[bytes, bool]:
    """Wait for input and read until it pauses; return the bytes, and whether more may follow."""
    data = b""
    while block := os.read(source, BLOCK):
        data += block
        if len(data) >= ENOUGH or not select([source], [], [], PAUSE)[0]:
            return data, True
    return data, False


def _text(line: bytes, place: str, cut: Callable[[str], None]) -> str:
    if len(line) > LONGEST:
        cut(place)
        line = line[:LONGEST].decode(errors="ignore").encode()  # without a character that was cut in two
    try:
        return line.removesuffix(b"\r").decode()
    except UnicodeDecodeError as error:
        wrong = f"byte 0x{line[error.start]:02x}"
        raise InputError(f"{place}: not valid UTF-8 ({wrong}); convert it to UTF-8") from None
