"""Read JSON and TOML that may be damaged or hostile: every mistake is one line, and nesting is limited.

Everything that reads a file from outside as JSON uses `read_json` or `parse_json`; `tests/test_untrusted.py` checks it.
"""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

from regard.errors import ConfigError, RegardError

DEEPEST = 100  # tables inside tables; functions that walk through a table call themselves for each
RATIO, SPARE = 100, 64 * 1024 * 1024  # an archive may hold 100 times its size, and 64 MiB more


class JsonError(RegardError):
    """A file or text that is not the JSON it should be; `reason` is the message without the place."""

    def __init__(self, place: object, reason: str) -> None:
        super().__init__(f"{place}: {reason}")
        self.reason = reason


def parse_json(text: str | bytes, place: object, **options: Any) -> Any:
    """Return the value of a JSON text; `place` is where it comes from, for messages."""
    try:
        value = json.loads(text, **options)
        _check_depth(value)
    except RecursionError:
        raise JsonError(place, "is not valid JSON: nested too deeply") from None
    except ValueError as error:  # bad UTF-8 as well
        raise JsonError(place, f"is not valid JSON: {error}") from None
    return value


def read_json(path: Path) -> dict[str, Any]:
    """Read a table from a JSON file."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise JsonError(path, f"cannot be read: {error.strerror}") from None
    table = parse_json(data, path)
    if not isinstance(table, dict):
        raise JsonError(path, f"must contain a table, not {type(table).__name__}")
    return table


def parse_toml(text: str, place: str) -> dict[str, Any]:
    """Return the table of a TOML text, which may begin with a byte order mark."""
    try:
        table = tomllib.loads(text.removeprefix("\ufeff"))
        _check_depth(table)
    except RecursionError:
        raise ConfigError("is not valid TOML: nested too deeply", place) from None
    except ValueError as error:  # TOMLDecodeError, or a number of more digits than Python reads
        raise ConfigError(f"is not valid TOML: {error}", place) from None
    return table


def _check_depth(value: Any) -> None:
    level, depth = [value], 0
    while level:
        depth += 1
        if depth > DEEPEST:
            raise RecursionError
        tables = [item.values() if isinstance(item, dict) else item for item in level if isinstance(item, dict | list)]
        level = [item for table in tables for item in table]


def too_much(most: int) -> str:
    """Return the rule that an archive breaks which holds more than `most_unpacked`."""
    return f"holds more than {most:,} bytes, over {RATIO} times its own size"


def most_unpacked(packed: int) -> int:
    """Return the most bytes that an archive of `packed` bytes may hold. Numbers shrink by less; a bomb does not."""
    return RATIO * packed + SPARE
