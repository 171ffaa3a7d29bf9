"""Accumulate the results of the updates since the last log line."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from regard.training.ranks import Ranks
from regard.training.update import Outcome


class LogWindow:
    """Sums over a few updates, on the device, so that nothing waits; and the time they took."""

    def __init__(self) -> None:
        self.updates = 0
        self._sums: list[Tensor] = []
        self._before = 0.0  # seconds up to the last pause
        self._begun: float | None = time.perf_counter()  # when the last pause ended; None during a pause

    def add(self, outcome: Outcome) -> None:
        """Add the values of an update; of one that was not finite, count only that."""
        loss, count, norm, bad = (value.detach().float() for value in outcome)
        good = 1 - bad
        new = [torch.nan_to_num(loss, 0.0, 0.0, 0.0) * good, count * good, torch.nan_to_num(norm, 0.0, 0.0, 0.0), bad]
        self._sums = [old + value for old, value in zip(self._sums, new, strict=True)] if self._sums else new
        self.updates += 1

    def sums(self) -> Tensor:
        """Return loss, count, norms and bad updates."""
        return torch.stack(self._sums)

    def seconds(self) -> float:
        """Return the time that the updates took."""
        running = 0.0 if self._begun is None else time.perf_counter() - self._begun
        return max(self._before + running, 1e-9)

    @contextmanager
    def paused(self, device: torch.device) -> Iterator[None]:
        """Do not count the time that a validation or a checkpoint takes; updates that were started before count."""
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        self._before, self._begun = self.seconds(), None
        yield
        self._begun = time.perf_counter()

    def facts(self, ranks: Ranks) -> dict[str, Any]:
        """Return what a checkpoint keeps, summed over all processes, so that a resumed run logs earlier updates."""
        loss, *others = self._sums  # which are the same in all processes
        sums = torch.stack((ranks.sum(loss.clone()), *others)).tolist()
        return {"updates": self.updates, "seconds": self.seconds(), "sums": sums}

    @classmethod
    def load(cls, facts: dict[str, Any], ranks: Ranks) -> "LogWindow":
        """Restore the window of a checkpoint; the first process gets the loss of all processes."""
        window = cls()
        window.updates, window._before = facts["updates"], facts["seconds"]
        loss, *others = torch.tensor(facts["sums"], device=ranks.device)
        window._sums = [loss if ranks.first else torch.zeros_like(loss), *others]
        return window
