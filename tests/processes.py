"""Processes that tests start: forked from a server without threads, and waited for with patience, never for ever.

A fork of the process that runs the tests would inherit every lock that another thread holds just then, and could wait
for it for ever.
"""

import faulthandler
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from multiprocessing import forkserver
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Any

import pytest

FAREWELL = 60.0  # seconds for one that is aborted to say where it is
PATIENCE = 240.0  # seconds after which a process counts as hanging; on a quiet machine none takes a tenth of that
IMPORTED = [
    "tests.conftest",  # first, for it installs the shape checker
    "torch._dynamo",
    "torch.distributed.fsdp",
    "torch.distributed.checkpoint",
    "torch.utils.tensorboard",
    "sacrebleu.metrics",
    "pydantic.type_adapter",  # for typer
    "pytest",
    "regard.training.start",
    "tests.training.command",
]


@dataclass(frozen=True)
class Ended:
    """How a process ended: its exit code, or minus the signal; and what it said."""

    code: int
    said: str


class Forked:
    """A process that does one job with the environment of this moment.

    The job is sent by name, so it is a function of a module, or a `partial` of one.
    """

    def __init__(self, job: Callable[..., Any], *arguments: Any) -> None:
        server = _server()
        self._output, theirs = server.Pipe(duplex=False)
        self._process = server.Process(target=_work, args=(theirs, dict(os.environ), job, arguments))
        self._process.start()
        theirs.close()
        self._said = b""

    def end(self) -> Ended:
        """Wait for its end; one that hangs fails the test with its stacks."""
        try:
            if not self._listen(PATIENCE):
                pytest.fail(f"a process hangs; it said:\n{self.abort()}")
            return Ended(self._process.exitcode, self._said.decode(errors="replace"))
        finally:
            self.kill()

    def abort(self) -> str:
        """End it, if it has not ended, but let it say first where it is; give all it said."""
        if self._process.exitcode is None:
            with suppress(ProcessLookupError):
                os.kill(self._process.pid, signal.SIGABRT)
        self._listen(FAREWELL)
        self.kill()
        return self._said.decode(errors="replace")

    def kill(self) -> None:
        """End it at once."""
        self._process.kill()
        self._process.join(PATIENCE)

    def _listen(self, patience: float) -> bool:
        """Take what it says until it ends; whether it has ended.

        The end of the process counts, not that of its output, which somebody else may hold open.
        """
        last = time.monotonic() + patience
        sources = [self._output, self._process.sentinel]
        while ready := wait(sources, last - time.monotonic()):
            if self._output not in ready:
                self._process.join(PATIENCE)
                return True
            block = os.read(self._output.fileno(), 1 << 16)
            self._said += block
            if not block:
                sources.remove(self._output)
        return False


@cache
def _server() -> ForkServerContext:
    """Start the server, of which there is one."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(IMPORTED)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(Path(__file__).parents[1]), prepend=os.pathsep)  # what is not found is not said
        patch.setenv("OMP_NUM_THREADS", "1")  # or numpy starts a thread when it is imported
        forkserver.ensure_running()
    return context


def _work(output: Connection, environment: dict[str, str], job: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    """Do a job; who waits for it hears what is printed, and where it is when it is aborted."""
    for stream in (1, 2):
        os.dup2(output.fileno(), stream)
    output.close()
    sys.stdout, sys.stderr = (os.fdopen(stream, "w", 1, encoding="utf-8", closefd=False) for stream in (1, 2))
    faulthandler.enable()
    os.environ.clear()
    os.environ.update(environment)
    job(*arguments)


@contextmanager
def patient(process: subprocess.Popen[Any], number: signal.Signals = signal.SIGABRT) -> Iterator[None]:
    """End a program that has not ended in time, upon which its output ends too; nor does it outlive its test."""
    timer = threading.Timer(PATIENCE, process.send_signal, [number])
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        process.kill()
        process.wait()
