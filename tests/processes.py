"""Processes that tests start: forked from a server without threads, and waited for with a time limit.

A fork of the process that runs the tests would inherit every lock that another thread holds at that moment, and could
deadlock.
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

FAREWELL = 60.0  # seconds for an aborted process to print its stacks
PATIENCE = 240.0  # seconds after which a process counts as hanging; on an idle machine none takes a tenth of that
IMPORTED = [
    "tests.conftest",
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
    """How a process ended: its exit code, or minus the signal, and its output."""

    code: int
    said: str


class Forked:
    """A process that does one job with the current environment.

    The job is sent by name, so it is a function of a module, or a `partial` of one.
    """

    def __init__(self, job: Callable[..., Any], *arguments: Any) -> None:
        server = fork_server()
        self._output, theirs = server.Pipe(duplex=False)
        self._process = server.Process(target=_work, args=(theirs, dict(os.environ), job, arguments))
        self._process.start()
        theirs.close()
        self._said = b""

    def end(self) -> Ended:
        """Wait for its end; if it hangs, fail the test and show its stacks."""
        try:
            if not self._read(PATIENCE):
                pytest.fail(f"a process hangs; its output:\n{self.abort()}")
            return Ended(self._process.exitcode, self._said.decode(errors="replace"))
        finally:
            self.kill()

    def abort(self) -> str:
        """Abort it, if it still runs, so that it prints its stacks; return its output."""
        if self._process.exitcode is None:
            with suppress(ProcessLookupError):
                os.kill(self._process.pid, signal.SIGABRT)
        self._read(FAREWELL)
        self.kill()
        return self._said.decode(errors="replace")

    def kill(self) -> None:
        """Kill it."""
        self._process.kill()
        self._process.join(PATIENCE)

    def _read(self, patience: float) -> bool:
        """Read its output until it ends; return whether it has ended.

        The end of the process counts, not that of its output, which a child of it may hold open.
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
def fork_server() -> ForkServerContext:
    """Start the only server; return what starts processes from it."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(IMPORTED)
    with pytest.MonkeyPatch.context() as patch:
        # a missing module would not be reported
        patch.setenv("PYTHONPATH", str(Path(__file__).parents[1]), prepend=os.pathsep)
        patch.setenv("OMP_NUM_THREADS", "1")  # otherwise numpy starts a thread on import
        forkserver.ensure_running()
    return context


def _work(output: Connection, environment: dict[str, str], job: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    """Do a job; send its output to the test, and its stacks when it is aborted."""
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
    """Signal a program that has not ended in time, so that its output ends too; kill it at the end of the block."""
    timer = threading.Timer(PATIENCE, process.send_signal, [number])
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        process.kill()
        process.wait()
