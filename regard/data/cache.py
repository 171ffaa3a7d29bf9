"""Data that is made once from the user's files and kept: tokenizers, tokenised texts, decoded images, converted models.

An entry is a folder whose name is the checksum of a `CacheKey`: everything that decides its content. It is written
under a temporary name, flushed to the disk and renamed, with the SHA-256 of each of its files. An entry whose files do
not have these checksums is made again. One process makes an entry while others that need it wait.

Computing checksums takes about a second for 1.5 GB, so it is done once for the files as they are: the result is kept
with their sizes, times and inodes, of which one changes whenever a file is written. It is not trusted after the machine
has restarted, since a crash can lose what was written before.
"""

import json
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from regard import __version__
from regard.atomic import make_folder, remove_leftovers, wait_for_lock, write_folder, write_text
from regard.atomic import sha256 as file_checksum
from regard.errors import InputError, RegardError
from regard.untrusted import read_json

FORMAT = 4  # of all entries; raise it with every change of what is made from the same files and settings
CHECKSUMS, CHECKED = "checksums.json", "checked.json"
BOOT = Path("/proc/sys/kernel/random/boot_id")  # differs after every start of a Linux machine
REMEDY = "free some space, or set REGARD_CACHE to another folder"


def cache_folder() -> Path:
    """Return the folder for data that can be made again: $REGARD_CACHE, $XDG_CACHE_HOME/regard or ~/.cache/regard."""
    if own := os.environ.get("REGARD_CACHE"):
        return Path(own).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "regard"


def digest(*parts: str | bytes | np.ndarray) -> str:
    """Return one SHA-256 of several texts, bytes and arrays in this order, in hexadecimal."""
    total = sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        total.update(sha256(np.ascontiguousarray(data).data if isinstance(data, np.ndarray) else data).digest())
    return total.hexdigest()


# --- keys ------------------------------------------------------------------------------------------------------------


def file_key(path: Path) -> list[Any]:
    """Describe a file, or all files of a folder, without reading them; every change of a file changes this."""
    try:
        inside = [file_key(each) for each in sorted(path.iterdir())] if path.is_dir() else []
        return [os.path.abspath(path), *_identity(path), *inside]
    except FileNotFoundError:
        raise RegardError(f"{path}: no such file; check the path") from None
    except OSError as error:
        raise RegardError(f"{path}: cannot be read: {error.strerror}; check its name and permissions") from None


@dataclass(frozen=True)
class CacheKey:
    """Everything that decides the content of an entry: files, by their role, and settings.

    The files are described when the key is made, so make it before they are read.
    """

    files: Mapping[str, Sequence[Path]]
    settings: Mapping[str, Any]
    described: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.described:
            object.__setattr__(self, "described", self._describe())

    def adding(self, **settings: Any) -> "CacheKey":
        """Return a key of the same files, as they were when this key was made, with more settings."""
        return replace(self, settings={**self.settings, **settings})

    def name(self) -> str:
        """Return the checksum of the key, which names the entry."""
        return digest(json.dumps([FORMAT, __version__, self.described, self.settings], sort_keys=True))

    def check_files(self) -> None:
        """Raise an error if a file has changed since the key was made."""
        for role, known in self._describe().items():
            for path, now, before in zip(self.files[role], known, self.described[role], strict=True):
                if now != before:
                    rule = "has changed since this program began to read it"
                    raise InputError(f"{path}: {rule}; restore it, or start again when it is complete")

    def _describe(self) -> dict[str, Any]:
        return {role: [file_key(path) for path in paths] for role, paths in self.files.items()}


# --- entries ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Entry:
    """A complete folder of the cache, and the SHA-256 of each of its files."""

    folder: Path
    checksums: Mapping[str, str]


def cached(kind: str, key: CacheKey, write: Callable[[Path], None]) -> Entry:
    """Return the entry of this kind that `key` describes: from the cache, or written by `write` into an empty folder.

    A damaged entry is replaced. If several processes need an entry that is missing, one makes it and the others wait.
    """
    folder = cache_folder() / kind / key.name()
    entry = _open(folder)
    if entry is not None:
        return entry
    lock_file = cache_folder() / "locks" / f"{kind}-{folder.name}"
    make_folder(folder.parent, REMEDY)
    make_folder(lock_file.parent, REMEDY)
    with wait_for_lock(lock_file, REMEDY) as held:
        entry = _open(folder)  # made by another process meanwhile
        if entry is not None:
            return entry
        key.check_files()  # long after the key was made, if the entry is a later version of BPE-dropout
        if held:
            remove_leftovers(folder.parent, folder.name)
        with write_folder(folder, "replace" if folder.exists() else "keep", REMEDY) as part:
            write(part)
            key.check_files()
            checksums = {name: file_checksum(part / name) for name in _names(part)}
            (part / CHECKSUMS).write_text(json.dumps(checksums, indent=1), encoding="utf-8")
        entry = _open(folder)
    assert entry is not None, "an entry that was just written is complete"
    return entry


def _open(folder: Path) -> Entry | None:
    """Return the entry in a folder; None if there is none, or its files do not have their checksums."""
    try:
        checksums = read_json(folder / CHECKSUMS)
        state = {"boot": _boot(), "files": {name: _identity(folder / name) for name in checksums}}
        if state != _checked(folder):
            if any(file_checksum(folder / name) != checksum for name, checksum in checksums.items()):
                return None
            with suppress(RegardError):  # in a folder that cannot be written, they are computed every time
                write_text(folder / CHECKED, json.dumps(state))
    except (OSError, ValueError, TypeError, AttributeError, RegardError):
        return None
    return Entry(folder, checksums)


def _checked(folder: Path) -> Any:
    """Return the state of the files whose checksums were computed last; None if that is not known."""
    try:
        return read_json(folder / CHECKED)
    except RegardError:
        return None


def _identity(path: Path) -> list[int]:
    """Return size, times and inode; no program can write a file without changing its ctime."""
    facts = path.stat()
    return [facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns, facts.st_ino]


def _boot() -> str:
    try:
        return BOOT.read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return ""


def _names(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
