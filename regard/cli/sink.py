"""Where the verbs write their answers: standard output, or a file."""

import errno
import os
import sys
from contextlib import suppress
from io import TextIOWrapper
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Any

from regard.atomic import NO_PERMISSION
from regard.cli.console import complain
from regard.errors import InputError, RegardError
from regard.escape import escape_controls


def named(file: Path | None) -> Path | None:
    """Return the path of a file, or None for `-`, which means standard input or output."""
    return None if file == Path("-") else file


def check_apart(output: Path | None, other: Path | None, what: str) -> None:
    """Raise an error if the answers and something else would be written to the same place."""
    if other is None:
        return
    places = [None if path is None else path.resolve() for path in (named(output), named(other))]
    if places[0] == places[1]:
        where = named(other) or "standard output"
        raise InputError(f"{where}: would hold both the answers and the {what}; name another file for one of them")


class Sink:
    """The output: standard output, or a file that gets its name when it is complete.

    After an interruption or an error, the answers so far are kept in FILE.part (or FILE.part2, ... if there is such a
    file already). So `regard.atomic`, which would remove them, is not used. On a terminal control characters are
    escaped.
    """

    def __init__(self, path: Path | None, mode: str = "w", option: str = "-o") -> None:
        self.path, self.mode, self.option = named(path), mode, option
        self.direct = self.path is None or (self.path.exists() and not self.path.is_file()) or _is_device(self.path)
        if self.path is not None and not self.direct and self.path.is_symlink():
            self.path = Path(os.path.realpath(self.path))  # the file is replaced, not the link to it
        self.part = self.path  # a pipe, /dev/null or /dev/stdout is written directly
        self.file: Any = sys.stdout
        self.escapes = False
        self.size = 0  # number of writes

    def __enter__(self) -> "Sink":
        if self.path is None:
            if isinstance(sys.stdout, TextIOWrapper):
                sys.stdout.reconfigure(encoding="utf-8", errors="backslashreplace")  # as the input is
            self.escapes = sys.stdout.isatty()
            return self
        try:
            self.file = self._open(self.path)
        except OSError as error:
            raise self._refusal(error) from None
        return self

    def _open(self, path: Path) -> Any:
        encoding, errors = (None, None) if "b" in self.mode else ("utf-8", "backslashreplace")
        if self.direct:  # "a": /dev/stdout may be a file that has content already
            return path.open(self.mode.replace("w", "a"), encoding=encoding, errors=errors)
        for number in count(1):
            self.part = path.with_name(f"{path.name}.part{number if number > 1 else ''}")
            with suppress(FileExistsError):  # what is there belongs to the user, or to an interrupted command
                return self.part.open(self.mode.replace("w", "x"), encoding=encoding, errors=errors)
        raise AssertionError

    def write(self, text: Any, *, flush: bool = False) -> None:
        """Write text or bytes; as they are, unless a terminal would obey them."""
        try:
            self.file.write(escape_controls(text, keep="\n\t") if self.escapes else text)
            if flush:
                self.file.flush()
        except BrokenPipeError:
            raise
        except OSError as error:
            raise self._refusal(error) from None
        self.size += 1

    def finish(self) -> None:
        """Complete what was written, after the last answer."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None:
                self.finish()
            self.file.flush()
            if self.path is not None:
                self.file.close()
        except BrokenPipeError:
            raise
        except OSError as trouble:
            raise self._refusal(trouble) from None
        if self.part is not None and self.path is not None and not self.direct:
            self._name(self.part, self.path, error)

    def _name(self, part: Path, path: Path, error: BaseException | None) -> None:
        """Rename a complete file; of an incomplete one, report where the answers so far are."""
        if error is None:
            part.replace(path)
        elif not self.size:
            part.unlink()
        elif isinstance(error, KeyboardInterrupt):
            complain(f"stopped; the answers so far are in {part}")
        else:
            error.add_note(f"the answers so far are in {part}")  # which `main` prints with the error

    def _refusal(self, error: OSError) -> RegardError:
        place, reason, remedy = self.path or "standard output", error.strerror, "free some space, or"
        if self.path is not None and not self.path.parent.is_dir():
            reason, remedy = f"the folder {self.path.parent} does not exist", "create it, or"
        elif error.errno == errno.EISDIR:
            reason, remedy = "it is a folder", "name a file in it, or"
        elif error.errno in NO_PERMISSION:
            remedy = "make the folder writable, or"
        return RegardError(f"{place}: cannot be written: {reason}; {remedy} choose another {self.option}")


def _is_device(path: Path) -> bool:
    """Return whether a name is one of the system's, such as /dev/stdout: a link, which must never be replaced."""
    return any(Path(os.path.abspath(path)).is_relative_to(folder) for folder in ("/dev", "/proc")) and path.exists()
