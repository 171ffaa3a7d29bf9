"""Jobs for two processes, as `torchrun` would start them: forked from one that has torch imported, so quickly."""

import multiprocessing
import os
import traceback
from collections.abc import Callable
from datetime import timedelta
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import torch
import torch.distributed as dist

IMPORTED = [
    "torch._dynamo",
    "torch.distributed.fsdp",
    "torch.distributed.checkpoint",
    "torch.utils.tensorboard",
    "pytest",
    "regard.train.start",
]
PATIENCE = 60  # seconds after which a job counts as hanging; none takes a tenth of that


class Failure(NamedTuple):
    """What a job raised."""

    kind: type[BaseException]
    text: str
    trace: str


class Pair:
    """Does jobs in two processes each, with a few variables in their environment."""

    def __init__(self, environment: dict[str, str]) -> None:
        self.environment = environment | {"TORCHELASTIC_USE_AGENT_STORE": "True"}
        self.context = multiprocessing.get_context("forkserver")
        self.context.set_forkserver_preload(IMPORTED)

    def __call__(self, job: Callable[..., Any], *arguments: Any) -> list[Any]:
        """Run a function of a module, so that it can be sent by name; give what both returned, or their failures."""
        store = dist.TCPStore("127.0.0.1", 0, None, True, timedelta(seconds=PATIENCE), wait_for_workers=False)
        place = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(store.port)}
        ends, processes = [], []
        for rank in ("0", "1"):
            end, theirs = self.context.Pipe(duplex=False)
            environment = self.environment | place | {"RANK": rank, "LOCAL_RANK": rank}
            process = self.context.Process(target=_work, args=(theirs, environment, job, arguments))
            process.start()
            theirs.close()
            ends.append(end)
            processes.append(process)
        try:
            return [_answer(end) for end in ends]
        finally:
            for process in processes:
                process.kill()
                process.join()


def _answer(end: Connection) -> Any:
    assert end.poll(PATIENCE), "a process hangs"
    return end.recv()


def _work(end: Connection, environment: dict[str, str], job: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    """Do one job and end."""
    torch.set_num_threads(1)
    os.environ |= environment
    try:
        answer = job(*arguments)
    except BaseException as error:
        answer = Failure(type(error), str(error), traceback.format_exc())
    end.send(answer)
