"""The processes that tests start: no threads, the right environment, and a time limit."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from functools import partial
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path

import pytest
import torch

from . import processes
from .processes import PATIENCE, Ended, Forked, patient

pytestmark = pytest.mark.slow


def look_around() -> None:
    """Print the properties of a process."""
    imported = "tests.training.command" in sys.modules
    tasks = Path(f"/proc/{os.getppid()}/task")  # the threads of the server, on Linux
    threads = len(list(tasks.iterdir())) if tasks.exists() else 1
    print(imported, threads, torch.get_num_threads(), os.environ["COLOUR"], "PYTHONPATH" in os.environ)


def test_the_server_has_no_threads_and_all_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only then is a fork both safe and quick; the environment is the current one."""
    monkeypatch.delenv("PYTHONPATH", raising=False)
    for colour in ("red", "blue"):
        monkeypatch.setenv("COLOUR", colour)
        ended = Forked(look_around).end()
        assert (ended.code, ended.said) == (0, f"True 1 1 {colour} False\n")


@pytest.mark.parametrize(
    ("job", "ended"),
    [
        (partial(print, "é"), Ended(0, "é\n")),
        (partial(sys.exit, 3), Ended(3, "")),
        (partial(sys.exit, "why"), Ended(1, "why\n")),
        (partial(signal.raise_signal, signal.SIGKILL), Ended(-signal.SIGKILL, "")),
    ],
    ids=["done", "code", "word", "killed"],
)
def test_how_it_ended(job: Callable[[], None], ended: Ended) -> None:
    assert Forked(job).end() == ended


def hold_on(ready: Connection) -> None:
    """Wait forever, in a thread and in the main thread."""
    lock = threading.Lock()
    lock.acquire()
    threading.Thread(target=lock.acquire).start()
    print("all is well")
    ready.send(True)
    lock.acquire()


def test_a_process_that_hangs_shows_its_stacks(monkeypatch: pytest.MonkeyPatch) -> None:
    ready, theirs = Pipe(duplex=False)
    process = Forked(hold_on, theirs)
    assert ready.poll(PATIENCE)
    monkeypatch.setattr(processes, "PATIENCE", 0.0)
    with pytest.raises(pytest.fail.Exception) as failure:
        process.end()
    said = str(failure.value)
    assert said.startswith("a process hangs; its output:\nall is well\nFatal Python error: Aborted\n")
    assert "in hold_on" in said
    assert said.count("(most recent call first)") == 2


def test_an_output_that_a_child_holds_open_does_not_matter() -> None:
    ended = Forked(leave_child).end()
    assert ended.code == 0
    os.kill(int(ended.said), signal.SIGKILL)  # the child


def leave_child() -> None:
    """End before a child does."""
    print(subprocess.Popen(["sleep", "1000"]).pid)


def test_a_program_can_be_interrupted() -> None:
    """Even if the tests run in a background job, which a shell starts with SIGINT ignored."""
    code = "import signal; print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE)
    assert run.stdout == "True\n"


def test_a_program_that_hangs_shows_its_stacks(monkeypatch: pytest.MonkeyPatch) -> None:
    code = "def hold_on():\n  print('ready', flush=True)\n  input()\nhold_on()"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    process = subprocess.Popen([sys.executable, "-c", code], text=True, **pipes)
    assert process.stdout.readline() == "ready\n"
    monkeypatch.setattr(processes, "PATIENCE", 0.0)
    with patient(process):
        said = process.stdout.read()
        assert process.wait() == -signal.SIGABRT
    assert "in hold_on" in said
    process.stdout.close()
    process.stdin.close()


def test_no_program_outlives_its_test() -> None:
    process = subprocess.Popen(["sleep", "1000"])
    with pytest.raises(KeyError), patient(process):
        raise KeyError
    assert process.returncode == -signal.SIGKILL
