"""Batches of a run: on CUDA, the next one is prepared while the device computes an update.

Rows are gathered, packed and copied into pinned memory on the host; then they are copied to the device, where images
are normalised and varied, on a stream of its own. So neither waits for the other, even after a log line, for which the
host has waited for the device.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple

import torch

from regard.data.batches import Draw
from regard.tasks.task import Batch, Feed
from regard.training.seeds import seed_generators

Draws = Iterator[tuple[Draw, int, int]]  # a draw, its epoch, and the draws of that epoch up to it


class PreparedBatch(NamedTuple):
    """The batch of an update, and the position of the run after it."""

    batch: Batch
    draw: Draw
    epoch: int
    drawn: int


class Prefetcher:
    """Prepares the batches of updates, in the order of their draws."""

    def __init__(self, feed: Feed, device: torch.device, seed: int) -> None:
        self.feed, self.device, self.seed = feed, device, seed
        self.stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        self.ahead: PreparedBatch | None = None  # for the next update
        self.freed: torch.cuda.Event | None = None  # when the batch before the current one is no longer read

    def take(self, draws: Draws, step: int) -> PreparedBatch:
        """Return the batch of a step, which the device may use from now on."""
        if self.ahead is None and self.stream is not None:
            self.stream.wait_stream(torch.cuda.current_stream(self.device))  # data may still be copied to the device
        found, self.ahead = self.ahead or self._prepare(draws, step), None
        if self.stream is not None:
            torch.cuda.current_stream(self.device).wait_stream(self.stream)
        return found

    def prepare_next(self, draws: Draws, step: int) -> None:
        """Prepare the batch of the next step, `step`, on CUDA; the caller still holds that of the current step.

        The memory of the batch before that is used again. So the stream waits until it is no longer read.
        """
        if self.stream is None:
            return
        if self.freed is not None:
            self.stream.wait_event(self.freed)
        self.freed = torch.cuda.current_stream(self.device).record_event()
        self.ahead = self._prepare(draws, step)

    def _prepare(self, draws: Draws, step: int) -> PreparedBatch:
        draw, epoch, drawn = next(draws)
        seed_generators(self.device, self.seed, step, part=-1)
        with self._aside():
            return PreparedBatch(self.feed.batch(draw, epoch), draw, epoch, drawn)

    def _aside(self) -> AbstractContextManager[object]:
        return nullcontext() if self.stream is None else torch.cuda.stream(self.stream)
