"""What a task is: how files become batches, what is minimised, and how the result is measured.

A trainer knows tasks only by this page. A task is made by its config's `prepare`, which reads and tokenises; training
then draws rows in the task's `order`, turns each draw into a `batch` on the device, and minimises `loss`.
"""

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from regard.config import Table
from regard.data.batches import Draw, Order
from regard.data.read import Skipped
from regard.data.tokenizer import Tokenizer
from regard.models.model import Model
from regard.tasks.defaults import Amount
from regard.tasks.loss import Losses
from regard.tasks.sample import Sample

Batch = dict[str, Tensor]  # every tensor has the rows of the batch in its first dimension

HELD_OUT = 0.05  # the share of the data kept for validation when no file is given for it
HELD_OUT_ROWS = 2000  # and at most so many rows


class Task(ABC):
    """What is learned, with its data at hand."""

    name: ClassVar[str]
    unit: ClassVar[str] = "tok"  # what is counted, in short
    metric: ClassVar[str]  # by which models are compared; see `tasks/metric.py` for its direction

    def __init__(self, config: Any, tokenizer: Tokenizer | None, skipped: Skipped) -> None:
        self.config = config  # as given, with what was found in the data: classes, means of images
        self.tokenizer = tokenizer
        self.skipped = skipped
        self.device = torch.device("cpu")

    @abstractmethod
    def facts(self) -> dict[str, int]:
        """Count what was read, for the plan, the report, and to notice that files have changed."""

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

    def adapt(self, model: Table) -> Table:
        """Return the table of a model with the sizes that suit the data, where its recipe leaves a choice."""
        return model

    @abstractmethod
    def order(self, model: Model, tokens: int, seed: int) -> Order:
        """Give the order in which a model is trained: draws of about `tokens` tokens."""

    @abstractmethod
    def batch(self, draw: Draw, epoch: int) -> Batch:
        """Make the batch of a draw, on the device."""

    @abstractmethod
    def loss(self, model: Model, batch: Batch) -> tuple[Losses, Batch]:
        """Compute what is minimised, and what the next batch of these rows must be given: the state it carries on."""

    @abstractmethod
    def measure(self, model: Model, rows: int | None = None) -> dict[str, float]:
        """Measure the model on the validation data: all of it, or about `rows` rows where that takes long."""

    @abstractmethod
    def samples(self, model: Model) -> list[Sample]:
        """Show what the model makes of a few validation rows."""

    @abstractmethod
    def probe(self, longest: int = 64) -> Batch:
        """Give one validation row to look at while a model learns: what its `forward` takes, in that order, by name.

        It is the same for the same data. Texts are framed as in training and have at most `longest` tokens.
        """

    def to(self, device: torch.device) -> None:
        """Bring the data to where it is used."""
        self.device = device

    def release(self) -> None:  # noqa: B027  # images have nothing to give back
        """Give memory back that was only mapped from files."""

    def save(self, folder: Path) -> None:
        """Write what using the model needs besides its weights."""
        if self.tokenizer is not None:
            self.tokenizer.save(folder)
