"""Write files and folders completely or not at all; compute checksums; lock a folder.

`write_file` and `write_folder` write under a temporary name beside the target, flush to the disk, and rename. A reader
sees the old content or the new content, never a part of it, even after a crash. Temporary names are unique, so that two
processes can write the same target at the same time; the last one to finish wins.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from platform import node
from tempfile import TemporaryDirectory
from threading import current_thread, main_thread
from time import sleep, strftime
from typing import Literal
from uuid import uuid4

from regard.errors import RegardError

NO_SPACE = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
NO_PERMISSION = {errno.EACCES, errno.EPERM, errno.EROFS}
POLL_SECONDS = 0.1  # between two looks at a lock, in a thread that may not outlive the program
LEFTOVER = re.compile(r".*\.[0-9a-f]{12}\.part")  # a temporary name; see `_temporary`

Existing = Literal["refuse", "replace", "keep"]


class WriteError(RegardError):
    """A file or a folder that cannot be written, the reason, and what to do."""

    def __init__(self, path: Path, reason: str, advice: str) -> None:
        super().__init__(f"{path}: cannot be written: {reason}; {advice}")
        self.path, self.reason, self.advice = path, reason, advice


class LockedError(RegardError):
    """Another process holds a lock."""


@contextmanager
def write_file(path: str | Path, remedy: str | None = None) -> Iterator[Path]:
    """Yield a temporary path beside `path`; when the block ends, the file written there becomes `path`.

    The temporary file exists and is empty. After an exception it is removed and `path` is unchanged. The file gets the
    permissions of a new file (umask), whatever the block did with them. A symbolic link is followed. A device or a pipe
    (/dev/null, /dev/stdout) is never replaced: what was written is copied into it. `remedy` ends the error message in
    place of the usual advice.
    """
    path = Path(path)
    with explain_write_errors(path, remedy):
        if path.exists() and not (path.is_file() or path.is_dir()):
            with _copy_into(path) as part:
                yield part
            return
        target = Path(os.path.realpath(path))
        part = _temporary(target)
        try:
            part.touch(exist_ok=False)
            mode = part.stat().st_mode
            yield part
            part.chmod(mode)  # some libraries write files that only their owner can read
            _flush(part)
            part.replace(target)
            _flush(target.parent)
        finally:
            with suppress(OSError):
                part.unlink(missing_ok=True)


def write_text(path: str | Path, text: str, remedy: str | None = None) -> None:
    """Write a UTF-8 text file completely or not at all."""
    with write_file(path, remedy) as part:
        part.write_text(text, encoding="utf-8")


@contextmanager
def write_folder(path: str | Path, existing: Existing = "refuse", remedy: str | None = None) -> Iterator[Path]:
    """Yield a temporary folder beside `path`; when the block ends, it becomes `path`.

    After an exception the temporary folder is removed and `path` is unchanged. If `path` already exists and is not an
    empty folder: "refuse" raises an error before the block runs; "replace" replaces the folder, but not a file, when
    the new one is complete; "keep" keeps the old one and discards the new one (another process was faster).
    """
    path = Path(path)
    with explain_write_errors(path, remedy):
        target = Path(os.path.realpath(path))
        if (existing == "refuse" and _is_occupied(target)) or target.is_file():
            raise _occupied(path)
        part = _temporary(target)
        try:
            part.mkdir()
            yield part
            _flush_tree(part)
            if existing == "replace" and target.is_dir():
                _swap(part, target)
            elif not (_move(part, target) or existing == "keep"):
                raise _occupied(path)
            _flush(target.parent)
        finally:
            shutil.rmtree(part, ignore_errors=True)


def make_folder(path: str | Path, remedy: str | None = None) -> None:
    """Create a folder and its parents, if it does not exist."""
    with explain_write_errors(Path(path), remedy):
        Path(path).mkdir(parents=True, exist_ok=True)


def remove_leftovers(folder: str | Path, name: str = "") -> None:
    """Remove the temporary files and folders that killed processes left in `folder`, of `name` if given, else all.

    Call it only while no other process writes there, for example under `lock`.
    """
    folder = Path(folder)
    for part in folder.iterdir() if folder.is_dir() else []:
        if not (LEFTOVER.fullmatch(part.name) and part.name.startswith(name and f"{name}.")):
            continue
        if part.is_dir() and not part.is_symlink():
            shutil.rmtree(part, ignore_errors=True)
        else:
            with suppress(OSError):
                part.unlink()


def sha256(path: str | Path) -> str:
    """Return the SHA-256 checksum of a file, in hexadecimal."""
    try:
        with Path(path).open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise RegardError(f"{path}: cannot be read: {error.strerror}") from None


@contextmanager
def lock(path: str | Path, remedy: str = "wait until it ends, or stop it") -> Iterator[None]:
    """Hold the lock file `path` for the duration of the block; raise an error if another holder has it.

    The error names the folder of the file and its holder: process, machine, since when. The operating system releases
    the lock when the process ends, however it ends; a process that is killed leaves the file behind, which does no
    harm. Without `flock` (not POSIX, some network file systems), nothing is locked.
    """
    path = Path(path)
    with explain_write_errors(path, None):
        while (handle := _open_locked(path, remedy)) is None:
            pass  # the holder before removed the file meanwhile
    try:
        with explain_write_errors(path, None):
            os.ftruncate(handle, 0)
            since = strftime("%Y-%m-%d %H:%M:%S")
            os.pwrite(handle, f"process {os.getpid()} on {node()} has used this folder since {since}".encode(), 0)
        yield
    finally:
        with suppress(OSError):
            path.unlink()  # before it is released, so that no file of a later holder is removed
        os.close(handle)


@contextmanager
def wait_for_lock(path: str | Path, remedy: str | None = None) -> Iterator[bool]:
    """Hold the lock file `path` for the duration of the block, after those who held it before.

    In another thread than the main one, waiting ends with an error when the program ends, which would wait for it.
    Yield whether it is held: without `flock` (not POSIX, some network file systems), nothing is locked.
    """
    path = Path(path)
    with explain_write_errors(path, remedy):
        while (handle := _open_locked(path, None)) is None:
            pass  # the holder before removed the file meanwhile
    try:
        yield _flock(handle, waits=False) is True
    finally:
        with suppress(OSError):
            path.unlink()  # before it is released, so that no file of a later holder is removed
        os.close(handle)


@contextmanager
def explain_write_errors(path: Path, remedy: str | None = None) -> Iterator[None]:
    """Turn an OSError about `path`, or about what is written for it, into one line that says what to do.

    Errors that name another file, and errors of the network, pass unchanged.
    """
    try:
        yield
    except OSError as error:
        if error.errno is None or isinstance(error, ConnectionError | TimeoutError) or _is_elsewhere(error, path):
            raise
        if error.errno == errno.ENOENT and not path.parent.is_dir():
            reason = f"the folder {path.parent} does not exist"
            advice = remedy or "create it, or choose another folder"
        else:
            reason = error.strerror or str(error)
            advice = remedy or _usual_remedy(error.errno)
        raise WriteError(path, reason, advice) from None
    except WriteError as error:
        if not _is_temporary(error.path):
            raise
        raise WriteError(path, error.reason, remedy or error.advice) from None  # the user knows the final name only


# --- details ---------------------------------------------------------------------------------------------------------


@contextmanager
def _copy_into(path: Path) -> Iterator[Path]:
    """Yield the path of an empty file; after the block, write its content to a device or a pipe."""
    if path.is_block_device() or path.is_socket():
        raise RegardError(f"{path}: is not a file; choose another one")
    with TemporaryDirectory() as folder:
        part = Path(folder, "part")
        part.touch()
        yield part
        with part.open("rb") as source, path.open("wb") as target:
            shutil.copyfileobj(source, target)


def _temporary(target: Path) -> Path:
    return target.with_name(f"{target.name}.{uuid4().hex[:12]}.part")


def _usual_remedy(number: int) -> str:
    if number in NO_SPACE:
        return "free some space, or choose another folder"
    if number in NO_PERMISSION:
        return "make the folder writable, or choose another folder"
    return "choose another folder"


def _is_elsewhere(error: OSError, path: Path) -> bool:
    """Return whether the error names a file that has nothing to do with writing `path`."""
    if not isinstance(error.filename, str | os.PathLike):
        return False
    named = Path(os.path.realpath(error.filename))
    target = Path(os.path.realpath(path))
    if named == target or named in target.parents or target in named.parents:
        return False
    return not _is_temporary(named)


def _is_temporary(path: Path) -> bool:
    """Return whether a path is a temporary name, or inside of a folder that has one."""
    return any(LEFTOVER.fullmatch(part) for part in path.parts)


def _is_occupied(target: Path) -> bool:
    return target.exists() and not (target.is_dir() and next(target.iterdir(), None) is None)


def _occupied(path: Path) -> RegardError:
    what = "is not empty" if path.is_dir() else "is a file"
    return RegardError(f"{path}: {what}; choose another folder")


def _move(part: Path, target: Path) -> bool:
    """Rename a folder to its final name; return False if something is there already."""
    try:
        part.rename(target)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
            raise
        return False
    return True


def _swap(part: Path, target: Path) -> None:
    """Replace a folder by a complete one, then remove the old one; of several processes at once, the last one wins."""
    while not _move(part, target):
        old = _temporary(target)
        with suppress(FileNotFoundError):  # another process has just moved it
            target.rename(old)
        try:
            done = _move(part, target)
        except BaseException:
            with suppress(OSError):
                old.rename(target)
            raise
        shutil.rmtree(old, ignore_errors=True)
        if done:
            return


def _flush_tree(folder: Path) -> None:
    for parent, _, files in os.walk(folder):
        for name in files:
            if not (path := Path(parent, name)).is_symlink():
                _flush(path)
        _flush(Path(parent))


def _flush(path: Path) -> None:
    """Flush a file, or the names in a folder, to the disk."""
    if os.name != "posix" and path.is_dir():  # only POSIX systems can open a folder
        return
    handle = os.open(path, os.O_RDONLY if os.name == "posix" else os.O_RDWR)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _open_locked(path: Path, remedy: str | None) -> int | None:
    """Open and lock a file; return None if its name was removed before it was locked.

    If another process holds it, raise an error with the remedy; without one, wait.
    """
    handle = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o666)  # it is truncated later
    try:
        if _flock(handle, waits=remedy is None) is False:
            holder = os.pread(handle, 1000, 0).decode(errors="replace") or "another process uses this folder"
            raise LockedError(f"{path.parent}: {holder}; {remedy}")
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(handle), path.stat()):
                return handle
    except BaseException:
        os.close(handle)
        raise
    os.close(handle)
    return None


def _flock(handle: int, waits: bool) -> bool | None:
    """Lock an open file; return False if another process holds it, None if files cannot be locked here."""
    try:
        import fcntl
    except ImportError:  # not a POSIX system
        return None
    if waits and current_thread() is not main_thread():
        while (held := _flock(handle, waits=False)) is False:
            if not main_thread().is_alive():
                raise RegardError("the program ends")
            sleep(POLL_SECONDS)
        return held
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if waits else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in (errno.ENOLCK, errno.EOPNOTSUPP, errno.EINVAL):
            raise
        return None
    return True
