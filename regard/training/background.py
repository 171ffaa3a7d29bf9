"""Work beside training: weights and checkpoints are written while updates continue.

One thread does all work in the order in which it is given, so files appear in the same order as without it, and a run
that is killed leaves the files of an earlier moment. After an error nothing more is done; the error is raised where
training gives the next work, or waits for it.
"""

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from types import TracebackType

import torch
from torch import Tensor

from regard.data.device import out_of_memory
from regard.training.ranks import Ranks

Work = Callable[[], object]

MOST_WORK = 4  # that waits or is done at the same time; each keeps copies of tensors
LARGEST_COPY = 2**30  # bytes of tensors that are copied in order to be written later; larger ones are written at once


class FileWriter:
    """Writes the files of a run: inside `later`, while updates continue; otherwise at once."""

    def __init__(self, ranks: Ranks) -> None:
        self._ranks = ranks
        self._background: Background | None = None

    @contextmanager
    def later(self) -> Iterator[None]:
        """During the block, write files while updates continue; with several processes at once, since all read them."""
        if self._ranks.world > 1:
            yield
            return
        try:
            with Background(self._ranks.device) as self._background:
                yield
        finally:
            self._background = None

    def write(self, weights: dict[str, Tensor], write: Callable[[dict[str, Tensor]], object]) -> None:
        """Write tensors as they are now; updates may continue meanwhile."""
        kept = None if self._background is None else copy_to_keep(weights)
        if kept is None:
            self.wait()
            write(weights)
        else:
            self.do(lambda: write(kept))

    def do(self, work: Work) -> None:
        """Do some work while updates continue, or at once."""
        if self._background is None:
            work()
        else:
            self._background.submit(work)

    def wait(self) -> None:
        """Wait until everything is written; raise the error if it could not be."""
        if self._background is not None:
            self._background.wait()


class Background:
    """A thread that does work in order; as a context, it ends with all work done."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="background")
        self._given: deque[Future[None]] = deque()
        self._failed = False

    def submit(self, work: Work) -> None:
        """Do some work later, after what the device has been given so far; raise the error of earlier work."""
        self._collect(MOST_WORK - 1)
        event = torch.cuda.current_stream(self._device).record_event() if self._device.type == "cuda" else None
        self._given.append(self._pool.submit(self._do, work, event))

    def wait(self) -> None:
        """Wait until all work is done; raise the error of the first that failed."""
        self._collect(0)

    def _collect(self, most: int) -> None:
        """Wait until no more than this number are left, and drop all that are done."""
        while self._given and (len(self._given) > most or self._given[0].done()):
            self._given.popleft().result()

    def _do(self, work: Work, event: torch.cuda.Event | None) -> None:
        if self._failed:
            return
        self._failed = True  # unless it ends well
        if event is not None:
            event.synchronize()
        work()
        self._failed = False

    def __enter__(self) -> "Background":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Wait for all work; after an error of training itself, that of work does not replace it."""
        try:
            with suppress(Exception) if kind else nullcontext():
                self.wait()
        finally:
            self._pool.shutdown()


def at_once(work: Work) -> None:
    """Do some work now."""
    work()


def copy_to_keep(tensors: Mapping[str, Tensor]) -> dict[str, Tensor] | None:
    """Copy tensors that training will change to the CPU; None if they are too large for that.

    The copies of an accelerator's tensors are complete when the work that they are for begins: its thread must not use
    the device, since waiting for it is an error while another thread finds out whether an update can be captured.
    """
    if sum(tensor.nbytes for tensor in tensors.values()) > LARGEST_COPY:
        return None
    try:
        return {name: _copy(tensor.detach()) for name, tensor in tensors.items()}
    except (MemoryError, RuntimeError) as error:
        if not out_of_memory(error):
            raise
        return None


def _copy(tensor: Tensor) -> Tensor:
    return tensor.clone() if tensor.device.type == "cpu" else tensor.to("cpu", non_blocking=tensor.is_cuda)
