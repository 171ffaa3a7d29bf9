"""The processes of a run: one, or several under `torchrun`, each with a device of its own."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor

from regard.data.device import choose_device
from regard.errors import RegardError

PATIENCE = timedelta(hours=6)  # how long the other processes wait while the first one tokenises


@dataclass(frozen=True)
class Ranks:
    """Which of how many processes this is."""

    rank: int
    world: int
    device: torch.device

    @property
    def first(self) -> bool:
        """Return whether this process writes files and prints for all."""
        return self.rank == 0

    def sum(self, tensor: Tensor) -> Tensor:
        """Sum a tensor over all processes, in place."""
        if self.world > 1:
            dist.all_reduce(tensor)
        return tensor

    def largest(self, number: int) -> int:
        """Return the largest number of all processes. It uses the CPU, so that it does not wait for an accelerator."""
        if self.world == 1:
            return number
        shared = torch.tensor(number)
        dist.all_reduce(shared, dist.ReduceOp.MAX)
        return int(shared)

    def of_first(self, number: float) -> float:
        """Return the first process's number: accelerators may differ in the last digit, decisions must not."""
        if self.world == 1:
            return number
        shared = torch.tensor(number, dtype=torch.float64)
        dist.broadcast(shared, 0)
        return float(shared)

    def wait(self) -> None:
        """Wait for all processes."""
        self.largest(0)

    @contextmanager
    def rank_zero_first(self) -> Iterator[None]:
        """Run something in the first process before the others, which then find its results in a cache.

        If it fails, the others fail in the same way, and none waits for another.
        """
        if not self.first:
            self.wait()
        try:
            yield
        finally:
            if self.first:
                self.wait()


@contextmanager
def join_ranks(device: str = "auto") -> Iterator[Ranks]:
    """Find out which process this is; under `torchrun`, connect to the others."""
    world = int(os.environ.get("WORLD_SIZE", "1"))
    chosen = choose_device(device)
    if world == 1:
        yield Ranks(0, 1, chosen)
        return
    ranks = _meet(world, chosen)
    try:
        yield ranks
    except RegardError as error:
        if not _is_new(str(error)):
            raise SystemExit(getattr(error, "exit_code", 2)) from None
        raise
    except RuntimeError as error:
        if not _is_loss(error):
            raise
        if _was_reported():
            raise SystemExit(2) from None
        raise RegardError("another process of this run was lost; when its fault is mended, use --resume") from None
    else:  # after an error the others may have ended, and this would wait for them
        dist.destroy_process_group()


def _meet(world: int, device: torch.device) -> Ranks:
    """Wait for all processes; numbers on the CPU go another way than those on accelerators, and never wait for them."""
    if "LOCAL_RANK" not in os.environ:
        raise RegardError(f"WORLD_SIZE={world} is set, but not LOCAL_RANK; start several processes with torchrun")
    local = int(os.environ["LOCAL_RANK"])
    if device.type == "cuda":
        if local >= torch.cuda.device_count():
            found = f"process {local} has no GPU of its own, since there are {torch.cuda.device_count()}"
            raise RegardError(f"{found}; start fewer processes, or use --device cpu")
        device = torch.device("cuda", local)
        torch.cuda.set_device(device)
    backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
    dist.init_process_group(backend, timeout=PATIENCE)
    return Ranks(dist.get_rank(), world, device)


# --- one voice -------------------------------------------------------------------------------------------------------


def _is_new(text: str) -> bool:
    """Return whether no other process has reported this yet, so that an error of all is printed once."""
    try:
        store = dist.distributed_c10d._get_default_store()
        store.add("regard/spoken", 1)
        return bool(store.add(f"regard/said/{text}", 1) == 1)
    except RuntimeError:  # the process that holds the store has ended
        return True


def _was_reported() -> bool:
    try:
        return dist.distributed_c10d._get_default_store().add("regard/spoken", 0) > 0
    except RuntimeError:
        return False


def _is_loss(error: RuntimeError) -> bool:
    """Return whether an error comes from the connection to another process."""
    return isinstance(error, dist.DistError) or "gloo" in str(error)
