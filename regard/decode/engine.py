"""How steps are run. A search sees only `Steps`: begin, step, apply, repeat, reorder; an engine makes them for a batch.

The eager engine calls the model as it is, with caches that grow.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.models.model import StepModel
from regard.parts.state import State


@dataclass(frozen=True)
class Given:
    """What a batch begins with: the tokens to go on from, and for an encoder-decoder the source to write about.

    Rows are padded on the right beyond their lengths; None: all are as long as the tensor is wide. To translate,
    `tokens` is the start token, and a prefix that every translation is forced to begin with.
    """

    tokens: Int[Tensor, "B T"]
    lengths: Int[Tensor, "B"] | None = None
    source: Int[Tensor, "B S"] | None = None
    source_lengths: Int[Tensor, "B"] | None = None


Work = Callable[..., tuple[Tensor, ...]]  # of tensors alone


class Steps(ABC):
    """A batch that is being written, one token a row at a time."""

    @abstractmethod
    def begin(self) -> Float[Tensor, "B V"]:
        """Read what is given; score what follows it."""

    @abstractmethod
    def step(self, tokens: Int[Tensor, "B"]) -> Float[Tensor, "B V"]:
        """Read the next token of each row; score what follows it."""

    def apply(
        self, work: Work, logits: Float[Tensor, "B V"], rows: tuple[Tensor, ...], fixed: tuple[Tensor, ...]
    ) -> tuple[Tensor, ...]:
        """Give work(logits, *rows, *fixed): what a search makes of the scores that it just got.

        `rows`, and what comes back, have a row for each that was given; `fixed` is the same for all. An engine may do
        the same work again without asking for it, as long as it is the same function.
        """
        return work(logits, *rows, *fixed)

    @abstractmethod
    def repeat(self, times: int) -> None:
        """Let each row become `times` neighbouring rows."""

    @abstractmethod
    def reorder(self, index: Int[Tensor, "_b"]) -> None:
        """Let row i become what row index[i] was.

        After `repeat`, rows may change places with those of the same origin only, and leave with all of them.
        """


Engine = Callable[[Given, int], Steps]  # for what is given, and room for so many tokens in all


class EagerSteps(Steps):
    """The model as it is."""

    def __init__(self, model: StepModel, given: Given) -> None:
        self.model = model
        self.given = given
        self.state = start(model, given)

    def begin(self) -> Float[Tensor, "B V"]:
        """Read what is given; score what follows it."""
        logits, self.state = self.model.step(self.given.tokens, self.state, self.given.lengths)
        return logits

    def step(self, tokens: Int[Tensor, "B"]) -> Float[Tensor, "B V"]:
        """Read the next token of each row; score what follows it."""
        logits, self.state = self.model.step(tokens[:, None], self.state)
        return logits

    def repeat(self, times: int) -> None:
        """Let each row become `times` neighbouring rows."""
        self.state.repeat(times)

    def reorder(self, index: Int[Tensor, "_b"]) -> None:
        """Let row i become what row index[i] was."""
        self.state.reorder(index)


def eager(model: StepModel) -> Engine:
    """Give the engine that runs the model as it is."""
    return lambda given, room: EagerSteps(model, given)


def start(model: StepModel, given: Given, capacity: int | None = None) -> State:
    """Give the state before the first token: after reading the source, if there is one."""
    return model.begin(given.tokens, given.source, given.source_lengths, capacity)


@contextmanager
def in_use(model: nn.Module) -> Iterator[None]:
    """Without dropout and gradients inside; afterwards every module trains, or not, as it did."""
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        with torch.inference_mode():
            yield
    finally:
        for module in training:
            module.training = True
