"""Run one case in this process, and check what it did: how it ended, what it said, and which files it touched."""

import errno
import os
import re
import shlex
import shutil
import signal
import sys
import tempfile
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random
from types import FrameType
from typing import Any

from regard.cli.main import main
from regard.viewer import server

from .cases import Case, draw_case
from .damage import damage_file, damage_tree

SECONDS = 60  # of computing, for a case; most take less than one
WRITES = {  # events of Python, and which of their arguments are paths that change
    "os.remove": (0,),
    "os.rename": (0, 1),
    "os.mkdir": (0,),
    "os.rmdir": (0,),
    "os.link": (1,),
    "os.symlink": (1,),
    "os.truncate": (0,),
    "os.chmod": (0,),
    "shutil.rmtree": (0,),
}
DEVICES = ("/dev/null", "/dev/full", "/dev/tty", "/dev/stdin", "/dev/stdout", "/dev/stderr", "/proc/self/")
WRONG = re.compile(r"Traceback \(most recent|Error ignored|panicked at|^\S+\.py:\d+: \w*Warning", re.MULTILINE)
ENVIRONMENT = {
    "COLUMNS": "200",
    "http_proxy": "http://127.0.0.1:9",
    "https_proxy": "http://127.0.0.1:9",
    "NO_COLOR": "1",
}


class HangError(BaseException):
    """The case takes too long."""


@dataclass(frozen=True)
class Failure:
    """What a case did wrong."""

    case: Case
    rule: str
    details: str


class Fuzzer:
    """Runs cases on copies of a world; those that fail are kept."""

    def __init__(self, world: Path, folder: Path) -> None:
        self.world, self.folder = world, folder
        self.written: list[str] = []  # by the current case, with Python's functions
        self.place: Path | None = None  # the folder of the current case
        sys.addaudithook(self._hear)

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Note what the case writes, and prevent it outside of the folder of the case: fuzzing must do no harm."""
        if self.place is None:
            return
        for name in _paths_written(event, arguments):
            opened = event == "open"  # which follows a link; the others act on the link itself
            real = (
                os.path.realpath(name)
                if opened
                else os.path.join(os.path.realpath(os.path.dirname(name)), os.path.basename(name))
            )
            if opened and real.startswith(DEVICES):
                continue
            self.written.append(name)
            if not real.startswith(_own(self.place)):
                raise PermissionError(errno.EACCES, "the fuzzer allows this in its own folder only", name)

    def try_seed(self, seed: int, only: str = "") -> Failure | None:
        """Draw a case and run it; return what is wrong. Its folder stays if something is."""
        return self.try_case(draw_case(seed, only))

    def try_case(self, case: Case) -> Failure | None:
        """Run a case; return what is wrong."""
        place = self.folder / str(case.seed)
        shutil.rmtree(place, ignore_errors=True)
        for name in ("home", "tmp"):
            (place / name).mkdir(parents=True)
        shutil.copytree(self.world, place / "here", symlinks=True)
        done = prepare(case, place / "here")
        (place / "stdin").write_bytes(case.stdin)
        before = _snapshot(place)
        with _inside(place), self._hearing(place):
            code = _run(case)
        out, err = ((place / name).read_text("utf-8", "backslashreplace") for name in ("stdout", "stderr"))
        rule = _broken(case, place, code, err) or self._touched(case, place, before)
        if rule is None:
            shutil.rmtree(place, ignore_errors=True)
            return None
        command = "regard " + shlex.join(case.arguments)
        details = f"{rule}\n\n$ {command}\n\nexit code {code}\ndamage: {'; '.join(done)}\n\n"
        details += f"stdout:\n{out[-3000:]}\nstderr:\n{err[-6000:]}\n"
        return Failure(case, rule, details)

    @contextmanager
    def _hearing(self, place: Path) -> Iterator[None]:
        self.written, self.place = [], place
        try:
            yield
        finally:
            self.place = None

    def _touched(self, case: Case, place: Path, before: dict[str, Any]) -> str | None:
        """Return which file was changed that the command does not name as its output."""
        outputs = [os.path.normpath(place / "here" / one) for one in case.outputs if one]
        own = [str(place / name) for name in ("cache", "stdout", "stderr", "torch")]
        after = _snapshot(place)
        changed = {str(place / name) for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
        elsewhere = {name for name in self.written if not name.startswith(_own(place))}
        for name in sorted(changed | elsewhere):
            if not any(
                name == one
                or name.startswith((os.path.join(one, ""), f"{one}.", f"{Path(one).parent}/.{Path(one).name}"))
                for one in [*outputs, *own]
            ):
                return f"touched {name.removeprefix(str(place) + '/')}"
        return None


def _own(place: Path) -> tuple[str, ...]:
    """Return how the paths begin that a case may write to at all."""
    return f"{place}/", os.path.join(os.environ.get("MPLCONFIGDIR", place), "")


def _paths_written(event: str, arguments: tuple[Any, ...]) -> list[str]:
    """Return the absolute paths that an event of Python changes."""
    if event == "open":
        name, _, flags = arguments
        writes = (flags or 0) & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        names = [name] if writes else []
    else:
        names = [arguments[number] for number in WRITES.get(event, ())]
    with suppress(TypeError, ValueError, OSError):  # not a name, or not a possible one
        return [os.path.abspath(os.fsdecode(name)) for name in names if not isinstance(name, int)]
    return []


def prepare(case: Case, here: Path) -> list[str]:
    """Damage and rename files; return what was done."""
    chance, done = Random(case.seed), []
    for name in case.damaged:
        path = here / name
        what = damage_tree(path, chance) if path.is_dir() else damage_file(path, chance)
        done.append(f"{name}: {what}")
    for name, other in case.renamed.items():
        if not os.path.lexists(here / other):
            (here / other).parent.mkdir(exist_ok=True)  # of a name with a slash
            (here / name).rename(here / other)
            done.append(f"{name} is now {other!r}")
    return done


def _snapshot(place: Path) -> dict[str, Any]:
    """Return size, time and number of every file."""
    found = {}
    for folder, _, names in os.walk(place):
        for name in names:
            path = os.path.join(folder, name)
            with suppress(OSError):
                about = os.lstat(path)
                found[os.path.relpath(path, place)] = (about.st_size, about.st_mtime_ns, about.st_ino)
    return found


@contextmanager
def _inside(place: Path) -> Iterator[None]:
    """Work in the folder of a case, with its own home, cache and standard streams, down to the file descriptors."""
    environment, folder = dict(os.environ), os.getcwd()
    streams = sys.stdin, sys.stdout, sys.stderr
    saved = [os.dup(number) for number in (0, 1, 2)]
    before, tempfile.tempdir = tempfile.tempdir, str(place / "tmp")
    os.environ.update(ENVIRONMENT)
    os.environ.update(
        HOME=str(place / "home"),
        TMPDIR=str(place / "tmp"),
        REGARD_CACHE=str(place / "cache"),
        TORCHINDUCTOR_CACHE_DIR=str(place / "torch"),
    )
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"):
        os.environ.pop(name, None)
    os.chdir(place / "here")
    for stream in streams[1:]:
        stream.flush()
    names = (("stdin", os.O_RDONLY), ("stdout", os.O_WRONLY | os.O_CREAT), ("stderr", os.O_WRONLY | os.O_CREAT))
    for number, (name, flags) in enumerate(names):
        opened = os.open(place / name, flags, 0o600)
        os.dup2(opened, number)
        os.close(opened)
    sys.stdin = os.fdopen(0, closefd=False, encoding="utf-8", errors="surrogateescape")
    sys.stdout = os.fdopen(1, "w", closefd=False, encoding="utf-8")
    sys.stderr = os.fdopen(2, "w", 1, closefd=False, encoding="utf-8", errors="backslashreplace")
    try:
        yield
    finally:
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):
                stream.flush()
        sys.stdin, sys.stdout, sys.stderr = streams
        for number, one in enumerate(saved):
            os.dup2(one, number)
            os.close(one)
        tempfile.tempdir = before
        os.chdir(folder)
        os.environ.clear()
        os.environ.update(environment)


def _run(case: Case) -> object:
    """Run the command; return its exit code, or the exception that escaped."""
    before = signal.signal(signal.SIGPROF, _hang)
    arguments, serve = sys.argv, server.serve
    sys.argv = ["regard", *case.arguments]
    server.serve = _serve_nothing
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        main()
        return 0
    except SystemExit as done:
        return 0 if done.code is None else done.code
    except BaseException as error:
        traceback.print_exception(error)
        return error
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
        sys.argv, server.serve = arguments, serve


def _serve_nothing(app: Any, listening: Any) -> None:
    """Wait until the viewer has loaded its models, and end as by Ctrl-C."""
    for thread in threading.enumerate():
        if thread.name == "models":
            thread.join()
    listening.close()


def _hang(number: int, frame: FrameType | None) -> None:
    raise HangError


def _broken(case: Case, place: Path, code: object, err: str) -> str | None:
    """Return the rule that is broken by how a case ended and what it said."""
    if isinstance(code, BaseException):
        return "no end in time" if isinstance(code, HangError) else f"an exception: {type(code).__name__}"
    if code not in (0, 1, 2):
        return f"exit code {code}"
    if found := WRONG.search(err):
        return f"standard error has {found[0]!r}"
    return _wrong_error(err) if code != 0 else None


def _wrong_error(err: str) -> str | None:
    """Return what is wrong with the message of an error: it is one line, or one for each mistake in a recipe."""
    lines = err.rstrip("\n").split("\n")
    if any("\x1b" in line for line in lines):
        return "the error has an escape sequence"
    if lines[0].startswith("Usage:"):
        return None if "Commands:" in lines else "a usage error instead of one line"  # `regard` alone prints its help
    errors = [number for number, line in enumerate(lines) if line.startswith("regard: ")]
    if not errors:
        return "an error without a message"
    rest = lines[errors[-1] + 1 :]
    if not all(re.match(r"[\w.\[\]-]+: ", line) for line in rest):
        return "an error of several lines"
    return None
