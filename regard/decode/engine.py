"""Engines: how decode steps are run. A search sees only `Steps`: begin, step, apply, repeat, reorder.

An engine makes the steps of a batch. The eager engine calls the model directly, with growing caches.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.models.model import StepModel
from regard.parts.linear import using_products
from regard.parts.onednn import fast_products
from regard.parts.state import State


@dataclass(frozen=True)
class Given:
    """What a batch starts from: the tokens to continue, and for an encoder-decoder the source.

    Rows are padded on the right beyond their lengths; None means that no row is padded. To translate, `tokens` is the
    start token, followed by the prefix of a translation if one is forced.
    """

    tokens: Int[Tensor, "B T"]
    lengths: Int[Tensor, "B"] | None = None
    source: Int[Tensor, "B S"] | None = None
    source_lengths: Int[Tensor, "B"] | None = None


Work = Callable[..., tuple[Tensor, ...]]  # takes and returns tensors only


class Steps(ABC):
    """A batch that is being written, one token per row at a time."""

    @abstractmethod
    def begin(self) -> Float[Tensor, "B V"]:
        """Read what is given (prefill); score what follows."""

    @abstractmethod
    def step(self, tokens: Int[Tensor, "B"]) -> Float[Tensor, "B V"]:
        """Read the next token of each row; score what follows."""

    def apply(
        self, work: Work, logits: Float[Tensor, "B V"], rows: tuple[Tensor, ...], fixed: tuple[Tensor, ...]
    ) -> tuple[Tensor, ...]:
        """Return work(logits, *rows, *fixed): what a search computes from the scores of the last step.

        `rows` and the results have one row for each row given at the start; `fixed` is the same for all rows. An engine
        may capture the work once and replay it, so equal work must be the same function object.
        """
        return work(logits, *rows, *fixed)

    @abstractmethod
    def repeat(self, times: int) -> None:
        """Make each row `times` neighbouring rows."""

    @abstractmethod
    def reorder(self, index: Int[Tensor, "_b"]) -> None:
        """Make row i what row index[i] was.

        After `repeat`, the beams of a row may change places among themselves only, and leave the batch together.
        """


Engine = Callable[[Given, int], Steps]  # for what is given, and the largest number of tokens that a row will read


class EagerSteps(Steps):
    """Steps that call the model directly."""

    def __init__(self, model: StepModel, given: Given) -> None:
        self.model = model
        self.given = given
        self.state = start(model, given)

    def begin(self) -> Float[Tensor, "B V"]:
        """Read what is given (prefill); score what follows."""
        logits, self.state = self.model.step(self.given.tokens, self.state, self.given.lengths)
        return logits

    def step(self, tokens: Int[Tensor, "B"]) -> Float[Tensor, "B V"]:
        """Read the next token of each row; score what follows."""
        logits, self.state = self.model.step(tokens[:, None], self.state)
        return logits

    def repeat(self, times: int) -> None:
        """Make each row `times` neighbouring rows."""
        self.state.repeat(times)

    def reorder(self, index: Int[Tensor, "_b"]) -> None:
        """Make row i what row index[i] was."""
        self.state.reorder(index)


@dataclass(frozen=True)
class EagerEngine:
    """The engine that calls the model directly. A function would keep this model in a copy of what holds it."""

    model: StepModel

    def __call__(self, given: Given, capacity: int) -> Steps:
        """Return the steps of a batch."""
        return EagerSteps(self.model, given)


def eager(model: StepModel) -> Engine:
    """Return the engine that calls the model directly."""
    return EagerEngine(model)


def start(model: StepModel, given: Given, capacity: int | None = None) -> State:
    """Return the state before the first token, after reading the source if there is one."""
    return model.begin(given.tokens, given.source, given.source_lengths, capacity)


@contextmanager
def in_use(model: nn.Module) -> Iterator[None]:
    """Turn off dropout and gradients inside the `with`; restore each module's training mode afterwards.

    Weights that were laid out for decoding are used in that form; inside, no weight may be replaced.
    """
    modules = list(model.modules())
    training = [module for module in modules if module.training]
    if training:
        model.eval()
    try:
        with torch.inference_mode(), using_products(modules), fast_products():
            yield
    finally:
        for module in training:
            module.training = True
