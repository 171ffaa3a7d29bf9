"""Archive: named bytes in one file, for bundled samples, exported pages and notebooks.

zlib( length of the index, 4 bytes, little-endian | the index as JSON {path: [offset, size]} | the bytes ), where
offsets count from the end of the index. A browser can read it without a library, since it can inflate zlib.
"""

import json
import zlib
from collections.abc import Iterable

from regard.errors import InputError
from regard.untrusted import JsonError, most_unpacked, parse_json


def pack_archive(entries: Iterable[tuple[str, bytes]]) -> bytes:
    """Pack paths with their bytes; the same entries always give the same archive."""
    index: dict[str, tuple[int, int]] = {}
    parts: list[bytes] = []
    offset = 0
    for path, data in entries:
        if path in index:
            raise ValueError(f"{path!r} is packed twice")
        index[path] = (offset, len(data))
        parts.append(data)
        offset += len(data)
    header = json.dumps(index, separators=(",", ":")).encode()
    return zlib.compress(b"".join((len(header).to_bytes(4, "little"), header, *parts)), 9)


def unpack_archive(archive: bytes) -> dict[str, bytes]:
    """Return the bytes of every path."""
    try:
        unpacker = zlib.decompressobj()
        whole = unpacker.decompress(archive, most_unpacked(len(archive)))
        begin = 4 + int.from_bytes(whole[:4], "little")
        index = parse_json(whole[4:begin], "index")
        if not unpacker.eof or sum(size for _, size in index.values()) > len(whole) - begin:
            raise ValueError("too large")
        found = {path: whole[begin + offset : begin + offset + size] for path, (offset, size) in index.items()}
        complete = all(len(found[path]) == size for path, (_, size) in index.items())
    except (zlib.error, JsonError, ValueError, TypeError, AttributeError):
        complete = False
    if not complete:
        raise InputError("not a recording file, or truncated; export it again")
    return found
