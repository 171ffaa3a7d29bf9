import errno
import hashlib
import os
import platform
import re
import stat
import subprocess
import sys
import urllib.error
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from regard.atomic import (
    explain_write_errors,
    lock,
    make_folder,
    remove_leftovers,
    sha256,
    wait_for_lock,
    write_file,
    write_folder,
    write_text,
)
from regard.errors import RegardError

from .processes import PATIENCE


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def umask():
    """Set the umask that most systems have."""
    before = os.umask(0o022)
    yield
    os.umask(before)


# --- files -----------------------------------------------------------------------------------------------------------


def test_a_file_appears_when_it_is_complete(tmp_path: Path):
    path = tmp_path / "a.txt"
    path.write_text("old")
    with write_file(path) as part:
        assert part.parent == tmp_path
        part.write_text("new")
        assert path.read_text() == "old"
    assert (path.read_text(), names(tmp_path)) == ("new", ["a.txt"])


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit, RegardError])
def test_after_an_exception_the_old_file_stays_and_nothing_else(tmp_path: Path, error: type[BaseException]):
    path = tmp_path / "a.txt"
    path.write_text("old")
    with pytest.raises(error), write_file(path) as part:  # noqa: PT012
        part.write_text("half")
        raise error
    assert (path.read_text(), names(tmp_path)) == ("old", ["a.txt"])


def test_a_file_gets_the_permissions_of_a_new_file(tmp_path: Path, umask: None):
    with write_file(tmp_path / "a") as part:
        part.unlink()
        part.touch(mode=0o600)  # as safetensors does
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o644


def test_two_writers_of_one_file_do_not_disturb_each_other(tmp_path: Path):
    path = tmp_path / "a.txt"
    with write_file(path) as first:
        with write_file(path) as second:
            second.write_text("second")
        first.write_text("first")
    assert (path.read_text(), names(tmp_path)) == ("first", ["a.txt"])


def test_a_link_stays_and_its_file_is_written(tmp_path: Path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "a").symlink_to(tmp_path / "elsewhere" / "b")
    write_text(tmp_path / "a", "Grüße")
    assert (tmp_path / "a").is_symlink()
    assert (tmp_path / "elsewhere" / "b").read_text(encoding="utf-8") == "Grüße"


def test_a_pipe_gets_the_content_and_is_not_replaced(tmp_path: Path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to(tmp_path / "pipe")  # as /dev/stdout is one
    for name in ("pipe", "link"):
        reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)  # devices are handled in the same way
        write_text(tmp_path / name, "Grüße")
        assert os.read(reader, 100).decode() == "Grüße"
        os.close(reader)
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)
    assert names(tmp_path) == ["link", "pipe"]


def test_a_lock_that_is_a_link_changes_no_other_file(tmp_path: Path):
    (tmp_path / "precious").write_text("old")
    (tmp_path / "lock").symlink_to(tmp_path / "precious")
    with pytest.raises(RegardError, match="lock: cannot be written"), lock(tmp_path / "lock"):
        pass
    assert (tmp_path / "precious").read_text() == "old"


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        (errno.ENOSPC, "cannot be written: No space left on device; free some space, or choose another folder"),
        (errno.EACCES, "cannot be written: Permission denied; make the folder writable, or choose another folder"),
        (errno.EIO, "cannot be written: Input/output error; choose another folder"),
    ],
)
def test_an_error_of_the_system_is_one_line(tmp_path: Path, number: int, expected: str):
    path = tmp_path / "a"
    with pytest.raises(RegardError) as caught, write_file(path):
        raise OSError(number, os.strerror(number))
    assert str(caught.value) == f"{path}: {expected}"
    with pytest.raises(RegardError, match=r"; use --to$"), write_folder(path, remedy="use --to") as part:
        raise OSError(number, os.strerror(number), str(part / "file"))
    assert names(tmp_path) == []


def test_a_missing_folder_is_named(tmp_path: Path):
    path = tmp_path / "missing" / "a"
    rule = f"{path}: cannot be written: the folder {path.parent} does not exist; create it, or choose another folder"
    for attempt in (lambda: write_text(path, ""), lambda: write_folder(path).__enter__()):
        with pytest.raises(RegardError) as caught:
            attempt()
        assert str(caught.value) == rule
    make_folder(path.parent)
    write_text(path, "")


def test_a_file_cannot_be_a_folder(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RegardError, match="file/a: cannot be written: Not a directory"):
        write_text(tmp_path / "file" / "a", "")
    with pytest.raises(RegardError, match="file/a/b: cannot be written: Not a directory"):
        make_folder(tmp_path / "file" / "a" / "b")


@pytest.mark.parametrize(
    "error", [FileNotFoundError(errno.ENOENT, "No such file", "input.txt"), BrokenPipeError(errno.EPIPE, "Broken pipe")]
)
def test_errors_that_are_not_about_writing_pass_unchanged(tmp_path: Path, error: OSError):
    with pytest.raises(type(error)) as caught, write_file(tmp_path / "a"):
        raise error
    assert caught.value is error
    with pytest.raises(urllib.error.URLError), explain_write_errors(tmp_path / "a"):
        raise urllib.error.URLError("no network")


# --- folders ---------------------------------------------------------------------------------------------------------


def test_a_folder_appears_when_it_is_complete(tmp_path: Path, umask: None):
    path = tmp_path / "a"
    path.mkdir()  # an empty folder counts as free
    with write_folder(path) as part:
        (part / "inside").mkdir()
        (part / "inside" / "file").write_text("new")
        assert names(path) == []
    assert (path / "inside" / "file").read_text() == "new"
    assert (names(tmp_path), stat.S_IMODE(path.stat().st_mode)) == (["a"], 0o755)


def test_a_folder_that_holds_something_is_refused_before_the_work(tmp_path: Path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "mine").write_text("")
    with pytest.raises(RegardError, match=r"a: is not empty; choose another folder$"), write_folder(tmp_path / "a"):
        pytest.fail("the block must not run")
    with pytest.raises(RegardError, match="mine: is a file"), write_folder(tmp_path / "a" / "mine", "replace"):
        pytest.fail("the block must not run")
    assert names(tmp_path / "a") == ["mine"]


def test_an_error_about_a_file_of_a_folder_names_the_folder(tmp_path: Path):
    def write(remedy: str | None) -> None:
        with write_folder(tmp_path / "new", remedy=remedy) as part, write_file(part / "a.txt"):
            raise OSError(errno.ENOSPC, "No space left on device")

    place = f"^{re.escape(str(tmp_path / 'new'))}: cannot be written: No space left on device; "
    with pytest.raises(RegardError, match=f"{place}free some space, or choose another folder$"):
        write(None)
    with pytest.raises(RegardError, match=f"{place}set REGARD_CACHE$"):
        write("set REGARD_CACHE")


@pytest.mark.parametrize(("existing", "kept"), [("refuse", "other"), ("keep", "other"), ("replace", "ours")])
def test_a_folder_that_another_process_has_made_meanwhile(tmp_path: Path, existing: str, kept: str):
    path = tmp_path / "a"
    raised = None
    try:
        with write_folder(path, existing) as part:
            (part / "ours").write_text("")
            path.mkdir()
            (path / "other").write_text("")
    except RegardError as error:
        raised = error
    assert (raised is not None) == (existing == "refuse")
    assert (names(tmp_path), names(path)) == (["a"], [kept])


def test_after_an_exception_a_replaced_folder_is_as_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "a"
    path.mkdir()
    (path / "old").write_text("")
    with pytest.raises(KeyboardInterrupt), write_folder(path, "replace") as part:  # noqa: PT012
        (part / "new").write_text("")
        raise KeyboardInterrupt
    assert (names(tmp_path), names(path)) == (["a"], ["old"])
    rename = Path.rename

    def fail_second(part: Path, target: Path) -> Path:
        if "new" in names(part):
            raise OSError(errno.EIO, "Input/output error", str(part))
        return rename(part, target)

    monkeypatch.setattr(Path, "rename", fail_second)
    with pytest.raises(RegardError, match="Input/output error"), write_folder(path, "replace") as part:
        (part / "new").write_text("")
    assert (names(tmp_path), names(path)) == (["a"], ["old"])


def test_leftovers_of_killed_processes_are_removed_and_nothing_else(tmp_path: Path):
    program = """if True:
        import os, sys, signal
        from regard.atomic import write_file, write_folder
        with write_file(sys.argv[1] + "/a") as part, write_folder(sys.argv[1] + "/b") as folder:
            part.write_text("half")
            (folder / "c").write_text("half")
            os.kill(os.getpid(), signal.SIGKILL)
    """
    for name in ("mine.part", "mine"):
        (tmp_path / name).write_text("")
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=False, timeout=PATIENCE)
    assert len(names(tmp_path)) == 4
    remove_leftovers(tmp_path)
    assert names(tmp_path) == ["mine", "mine.part"]
    remove_leftovers(tmp_path / "missing")


# --- checksums and locks ---------------------------------------------------------------------------------------------


def test_the_checksum_of_a_file(tmp_path: Path):
    (tmp_path / "a").write_bytes(b"abc" * 100_000)
    assert sha256(tmp_path / "a") == hashlib.sha256(b"abc" * 100_000).hexdigest()
    with pytest.raises(RegardError, match=r"missing: cannot be read: No such file or directory$"):
        sha256(tmp_path / "missing")


def test_a_lock_names_the_process_that_holds_it(tmp_path: Path):
    path = tmp_path / "lock"
    program = "import sys; from regard.atomic import lock\nwith lock(sys.argv[1]): print('held', flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", program, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(RegardError) as caught, lock(path):
            pytest.fail("the block must not run")
        who = f"process {holder.pid} on {re.escape(platform.node())} has used this folder since [-0-9]+ [:0-9]+"
        assert re.fullmatch(f"{tmp_path}: {who}; wait until it ends, or stop it", str(caught.value))
        holder.kill()  # the system releases the lock
    with lock(path):
        assert path.read_text().startswith(f"process {os.getpid()} on ")
        with pytest.raises(RegardError, match=f"process {os.getpid()} on "), lock(path):
            pytest.fail("the block must not run")
    assert not path.exists()


def test_a_lock_file_that_its_holder_removed_is_not_mistaken_for_the_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    path = tmp_path / "lock"
    first = lock(path)
    first.__enter__()
    opened = os.open

    def open_and_release(*given: Any) -> int:
        """Open the file; then its holder removes it, before it is locked."""
        monkeypatch.setattr(os, "open", opened)
        handle = opened(*given)
        first.__exit__(None, None, None)
        return handle

    monkeypatch.setattr(os, "open", open_and_release)
    with lock(path):
        with pytest.raises(RegardError, match="has used this folder since"), lock(path):
            pytest.fail("the block must not run")
        assert path.exists()


WAITING = """
import sys
from threading import Thread
from regard.atomic import wait_for_lock
Thread(target=lambda: wait_for_lock(sys.argv[1]).__enter__()).start()
"""


@pytest.mark.skipif(os.name != "posix", reason="files are locked on POSIX systems only")
def test_a_program_that_ends_does_not_wait_for_a_lock_that_one_of_its_threads_needs(tmp_path: Path):
    path = tmp_path / "lock"
    with wait_for_lock(path):
        line = [sys.executable, "-c", WAITING, str(path)]
        run = subprocess.run(line, capture_output=True, text=True, timeout=PATIENCE)
    assert "the program ends" in run.stderr


@pytest.mark.skipif(os.name != "posix", reason="files are locked on POSIX systems only")
def test_a_thread_gets_a_lock_after_those_who_held_it_before(tmp_path: Path):
    order = []

    def wait() -> None:
        with wait_for_lock(tmp_path / "lock") as held:
            order.append(("thread", held))

    thread = Thread(target=wait)
    with wait_for_lock(tmp_path / "lock") as held:
        thread.start()
        order.append(("main", held))
    thread.join(PATIENCE)
    assert order == [("main", True), ("thread", True)]
