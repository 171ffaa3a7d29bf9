"""Lines of standard input as they come: a pipe that pauses is answered, one that is full read in large parts."""

import os
import sys
from codecs import BOM_UTF8
from collections.abc import Iterator
from select import select

from regard.errors import InputError

BLOCK = 1 << 16
ENOUGH = 1 << 20  # bytes that are worked on together
PAUSE = 0.05  # seconds without more, after which what is there is answered


def read_available() -> Iterator[list[str]]:
    """Yield lists of lines, each with what has arrived; a line without an end is the last."""
    source = sys.stdin.fileno()
    rest, number, open_ = b"", 1, True
    while open_:
        data, open_ = _arrived(source)
        *whole, rest = (rest + data).split(b"\n")
        lines = whole if open_ or not rest else [*whole, rest]
        if lines:
            if number == 1:
                lines[0] = lines[0].removeprefix(BOM_UTF8)
            yield [_text(line, number + place) for place, line in enumerate(lines)]
            number += len(lines)


def _arrived(source: int) -> tuple[bytes, bool]:
    """Wait for something, then take all that comes without a pause; say whether there may be more."""
    data = b""
    while block := os.read(source, BLOCK):
        data += block
        if len(data) >= ENOUGH or not select([source], [], [], PAUSE)[0]:
            return data, True
    return data, False


def _text(line: bytes, number: int) -> str:
    try:
        return line.removesuffix(b"\r").decode()
    except UnicodeDecodeError as error:
        wrong = f"byte 0x{line[error.start]:02x}"
        raise InputError(f"standard input:{number}: not valid UTF-8 ({wrong}); give it as UTF-8") from None
