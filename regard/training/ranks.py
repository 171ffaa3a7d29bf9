"""The processes of a run: one, or several under `torchrun`, each with a device of its own."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from regard.data.device import choose_device
from regard.errors import RegardError

RESTARTS = ("TORCHELASTIC_RESTART_COUNT", "SLURM_RESTART_COUNT")  # set by torchrun and by Slurm
PATIENCE = timedelta(hours=6)  # how long the other processes wait while the first one tokenises


@dataclass(frozen=True)
class Ranks:
    """Which of how many processes this is."""

    rank: int
    world: int
    device: torch.device

    @property
    def first(self) -> bool:
        """Return whether this is the process that writes files and prints."""
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
        """Return the first process's number: all must decide alike, but accelerators may differ in the last digit."""
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

        If it fails in the first process, the others still run it and fail in the same way, instead of waiting.
        """
        if not self.first:
            self.wait()
        try:
            yield
        finally:
            if self.first:
                self.wait()


def was_restarted(ranks: Ranks) -> bool:
    """Return whether torchrun or Slurm has started this command again, in any process, after one was lost."""
    return ranks.largest(max(int(os.environ.get(name, "0")) for name in RESTARTS)) > 0


@contextmanager
def join_ranks(device: str = "auto") -> Iterator[Ranks]:
    """Find out which process this is; under `torchrun`, connect to the others."""
    world = int(os.environ.get("WORLD_SIZE", "1"))
    chosen = choose_device(device)
    if world == 1:
        yield Ranks(0, 1, chosen)
        return
    ranks = _connect(world, chosen)
    try:
        yield ranks
    except RegardError as error:
        if not _is_first_report(str(error)):
            raise SystemExit(getattr(error, "exit_code", 2)) from None
        raise
    except RuntimeError as error:
        if not _is_lost_connection(error):
            raise
        if _was_reported():
            raise SystemExit(2) from None
        raise RegardError("another process of this run was lost; find out why, then continue with --resume") from None
    else:  # after an error the others may have ended, and this would wait for them
        dist.destroy_process_group()


def _connect(world: int, device: torch.device) -> Ranks:
    """Connect all processes. CPU tensors are exchanged by gloo, which does not wait for accelerators."""
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
    store = _store_of_restart()
    named = {} if store is None else {"store": store, "rank": int(os.environ["RANK"]), "world_size": world}
    dist.init_process_group(backend, timeout=PATIENCE, **named)
    return Ranks(dist.get_rank(), world, device)


def _store_of_restart() -> Any:
    """Return where restarted processes of one machine find each other; None: torch decides.

    torchrun keeps one store for all its restarts, in which torch would read the addresses of processes that have ended.
    Agents of several machines count restarts differently (docs/scaling.md has the remedy).
    """
    environment = os.environ.get
    restarts = environment("TORCHELASTIC_RESTART_COUNT", "0")
    one_machine = environment("GROUP_WORLD_SIZE", "1") == "1" and environment("TORCHELASTIC_USE_AGENT_STORE") == "True"
    if restarts == "0" or not one_machine:
        return None
    stores: Any = dist  # which does not declare them
    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    return stores.PrefixStore(f"restart-{restarts}", stores.TCPStore(address, port, is_master=False, timeout=PATIENCE))


# --- report an error once --------------------------------------------------------------------------------------------


def _is_first_report(text: str) -> bool:
    """Return whether no other process has reported this error yet, so that it is printed once."""
    try:
        store = dist.distributed_c10d._get_default_store()
        store.add("regard/reports", 1)
        return bool(store.add(f"regard/report/{text}", 1) == 1)
    except RuntimeError:  # the process that holds the store has ended
        return True


def _was_reported() -> bool:
    try:
        return dist.distributed_c10d._get_default_store().add("regard/reports", 0) > 0
    except RuntimeError:
        return False


def _is_lost_connection(error: RuntimeError) -> bool:
    """Return whether an error comes from the connection to another process."""
    return isinstance(error, dist.DistError) or "gloo" in str(error)
