"""The processes of a run: one, or several under `torchrun`, each with a device of its own."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

from regard.errors import RegardError


@dataclass(frozen=True)
class Ranks:
    """Which of how many processes this is."""

    rank: int
    world: int
    device: torch.device

    @property
    def first(self) -> bool:
        """Whether this process writes and speaks for all."""
        return self.rank == 0

    def sum(self, tensor: Tensor) -> Tensor:
        """Add a tensor up over all processes, in place."""
        if self.world > 1:
            dist.all_reduce(tensor)
        return tensor

    def wait(self) -> None:
        """Go on when all processes are here."""
        if self.world > 1:
            dist.barrier()

    @contextmanager
    def first_first(self) -> Iterator[None]:
        """Let the first process do something before the others: what it leaves in a cache they find there."""
        if not self.first:
            self.wait()
        yield
        if self.first:
            self.wait()


@contextmanager
def join_ranks(device: str = "auto") -> Iterator[Ranks]:
    """Find out which process this is; under `torchrun`, meet the others."""
    world = int(os.environ.get("WORLD_SIZE", "1"))
    chosen = choose_device(device)
    if world == 1:
        yield Ranks(0, 1, chosen)
        return
    local = int(os.environ["LOCAL_RANK"])
    if chosen.type == "cuda":
        chosen = torch.device("cuda", local)
        torch.cuda.set_device(chosen)
    dist.init_process_group("nccl" if chosen.type == "cuda" else "gloo")
    try:
        yield Ranks(dist.get_rank(), world, chosen)
    finally:
        dist.destroy_process_group()


def choose_device(name: str) -> torch.device:
    """Take the accelerator if there is one, or what was asked for."""
    if name == "auto":
        return torch.accelerator.current_accelerator(check_available=True) or torch.device("cpu")
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise RegardError(f"the device {name!r} cannot be used: {reason}; try --device cpu") from None
    return device
