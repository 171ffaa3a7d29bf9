"""What a task is: how files become batches, what is minimised, and how the result is measured.

The trainer uses only this interface. A task is made by its config's `prepare`, which reads and tokenises. Its
`feed` says in which order a model sees the rows and makes the batches, and `loss` is what is minimised.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from regard.config import Table
from regard.data.batches import Draw, Indices, Order
from regard.data.columns import FileReading
from regard.data.device import out_of_memory, release_memory
from regard.data.read import Skipped
from regard.data.tokenizer import Tokenizer
from regard.tasks.baselines import Baseline
from regard.tasks.defaults import Amount
from regard.tasks.loss import Losses
from regard.tasks.metric import check_metric
from regard.tasks.sample import Sample

Result = TypeVar("Result")
Batch = dict[str, Tensor]  # every tensor has the rows of the batch in its first dimension

HELD_OUT = 0.05  # the share of the data kept for validation when no file is given for it
HELD_OUT_ROWS = 2000  # and at most this many rows
PASS_SECONDS = 0.018  # of a forward pass on an accelerator, whose kernels are launched one by one
LEAST_ROWS = 1000  # labelled ones that compare weights: by chance, their accuracy differs by about 0.01


@dataclass(frozen=True)
class Feed:
    """What one model is trained on: draws in an order, and the batch of each draw."""

    order: Order
    batch: Callable[[Draw, int], Batch]  # of a draw in an epoch, on the device


class Task(ABC):
    """What is learned, with its data."""

    name: ClassVar[str]
    unit: ClassVar[str] = "tok"  # what a loss is the mean over, and what the log counts as tokens
    metric: ClassVar[str]  # compares models; `tasks/metric.py` says whether higher is better
    least_rows: int | None = None  # that compare weights well while a model is trained; None: a part is never measured
    least_written: int | None = None  # rows that a search writes, likewise; None: there is no search

    def __init__(self, config: Any, tokenizer: Tokenizer | None, skipped: Skipped) -> None:
        check_metric(self.metric)  # now rather than at the first validation
        self.config = config  # as given, with what was found in the data: classes, means of images
        self.tokenizer = tokenizer
        self.skipped = skipped
        self.device = torch.device("cpu")

    @abstractmethod
    def facts(self) -> dict[str, int]:
        """Count what was read, for the plan, the report, and to notice that files have changed."""

    @abstractmethod
    def fingerprint(self) -> str:
        """Return a checksum of all data of training and validation: the same data gives the same, on any machine."""

    def readings(self, files: Sequence[str] = ()) -> list[FileReading]:
        """Return how files are read, by default those to train and validate on: columns, header, first example."""
        found: list[FileReading] = self.config.readings(files)
        return found

    @abstractmethod
    def amount(self) -> Amount:
        """Return how much there is to learn from."""

    @abstractmethod
    def longest(self) -> int | None:
        """Return the most tokens that a row has; None if the model itself decides it, as for images."""

    def usual_length(self) -> int | None:
        """Return the tokens of a row for which computation is estimated."""
        longest = self.longest()
        return None if longest is None else min(64, longest)

    @abstractmethod
    def needs(self) -> Table:
        """Return what the model must have to fit the data: the vocabulary, the classes, the size of images."""

    def adapt(self, model: Table, said: Table) -> Table:
        """Return the table of a model with the sizes that suit the data and what the user said of the model."""
        return model

    @abstractmethod
    def feed(self, model: nn.Module, tokens: int, seed: int) -> Feed:
        """Return the draws of about `tokens` tokens that suit a model, with their batches."""

    @abstractmethod
    def loss(self, model: nn.Module, batch: Batch) -> tuple[Losses, Batch]:
        """Compute what is minimised, and the state that the next batch of these rows is given."""

    def passes(self) -> int:
        """Return how often an update runs the model on each row."""
        return 1

    @abstractmethod
    def measure(self, model: nn.Module, rows: int | None = None) -> dict[str, float]:
        """Measure the model on the validation data: all of it, or about `rows` rows where that takes long.

        What is returned contains the metric of the task.
        """

    def validation_cost(self, rows: int | None = None) -> float:
        """Return the tokens, as `amount` counts them, whose forward pass takes as long as `measure`; 0 if not known."""
        return 0.0

    def validation_latency(self, rows: int | None = None) -> float:
        """Return the seconds that `measure` takes on an accelerator, however fast that computes; 0 if not known."""
        return 0.0

    def evaluate(self, model: nn.Module) -> dict[str, float]:
        """Measure the model on all validation data as it is used: a search may be wider than that of `measure`."""
        return self.measure(model)

    def validation_loss(self, model: nn.Module) -> float:
        """Measure only the loss on the validation data, the mean over what is predicted."""
        return self.measure(model)["loss"]

    # --- validation in little memory ---------------------------------------------------------------------------------

    parts = 1  # into which a batch of validation is split
    _most_rows = 0  # of a batch of validation so far

    def split_batch(self, batch: Batch) -> list[Batch]:
        """Split a batch of validation into `parts`, or into single rows; the result of `measure` stays the same."""
        rows = len(next(iter(batch.values())))
        size = self.rows_at_once(rows)
        return [{name: value[i : i + size] for name, value in batch.items()} for i in range(0, rows, size)]

    def rows_at_once(self, most: int) -> int:
        """Return how many rows of validation are computed together: `most`, divided by `parts`."""
        self._most_rows = max(self._most_rows, most)
        return max(most // self.parts, 1)

    def within_memory(self, measure: Callable[[], Result]) -> Result:
        """Return measure(); whenever memory runs out, batches are split into twice the number of parts."""
        while True:
            try:
                return measure()
            except (MemoryError, RuntimeError) as error:
                if not out_of_memory(error) or self.parts >= self._most_rows:
                    raise
            self.parts *= 2
            release_memory(self.device)

    def method(self, rows: int | None = None) -> str:
        """Return how `measure` measures, if that needs to be said: "greedy, 500 of 2,000 pairs"."""
        return ""

    @cached_property
    def baselines(self) -> tuple[Baseline, ...]:
        """What simple models reach on the validation data, in the metric of the task."""
        return tuple(self.measure_baselines())

    def measure_baselines(self) -> Iterable[Baseline]:
        """Measure simple models on the validation data; a task of the user may have none."""
        return ()

    def cautions(self) -> Iterable[str]:
        """Return what the plan warns of in the data; a task of the user may have none."""
        return ()

    def tokens_read(self) -> Indices:
        """Return tokens of the validation texts that the model reads; none, if it reads something else."""
        return np.zeros(0, np.int64)

    @abstractmethod
    def samples(self, model: nn.Module) -> list[Sample]:
        """Return what the model makes of a few validation rows."""

    @abstractmethod
    def probe(self, longest: int = 64) -> Batch:
        """Return one validation row to watch while a model learns: the arguments of `forward`, in their order.

        The same data gives the same row. Texts have the special tokens of training and at most `longest` tokens.
        """

    def to(self, device: torch.device) -> None:
        """Move the data to the device."""
        self.device = device

    def release(self) -> None:  # noqa: B027  # images have nothing to release
        """Release memory that is only mapped from files."""

    def save(self, folder: Path) -> None:
        """Write what using the model needs besides its weights."""
        if self.tokenizer is not None:
            self.tokenizer.save(folder)
