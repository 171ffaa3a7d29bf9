"""Jobs for two processes, as `torchrun` would start them, but quickly."""

import os
import traceback
from collections.abc import Callable
from datetime import timedelta
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import pytest
import torch.distributed as dist

from ..processes import PATIENCE, Forked


class Failure(NamedTuple):
    """What a job raised."""

    kind: type[BaseException]
    text: str
    trace: str


class Pair:
    """Runs each job in two processes, with a few variables in their environment."""

    def __init__(self, environment: dict[str, str]) -> None:
        self.environment = environment | {"TORCHELASTIC_USE_AGENT_STORE": "True"}

    def __call__(self, job: Callable[..., Any], *arguments: Any) -> list[Any]:
        """Run a function of a module, which is sent by name; return what both processes returned, or their failures."""
        store = dist.TCPStore("127.0.0.1", 0, None, True, timedelta(seconds=PATIENCE), wait_for_workers=False)
        place = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(store.port)}
        ends: list[Connection] = []
        processes: list[Forked] = []
        try:
            for rank in ("0", "1"):
                end, theirs = Pipe(duplex=False)
                environment = self.environment | place | {"RANK": rank, "LOCAL_RANK": rank}
                processes.append(Forked(_work, theirs, environment, job, arguments))
                theirs.close()
                ends.append(end)
            return [_answer(end, processes) for end in ends]
        finally:
            for process in processes:
                process.kill()


def _answer(end: Connection, processes: list[Forked]) -> Any:
    """Return the answer of a process; if there is none, fail with the output of all processes."""
    try:
        if end.poll(PATIENCE):
            return end.recv()
        fault = "hangs"
    except EOFError:
        fault = "has died"
    said = "\n---\n".join(process.abort() for process in processes)
    return pytest.fail(f"a process {fault}; they said:\n{said}")


def _work(end: Connection, environment: dict[str, str], job: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    """Do one job, then end."""
    os.environ |= environment
    try:
        answer = job(*arguments)
    except BaseException as error:
        answer = Failure(type(error), str(error), traceback.format_exc())
    end.send(answer)
