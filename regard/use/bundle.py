"""A model with everything the verbs need: its tokenizer, its template, its limits, its device and its engine.

Nothing here depends on a run folder, so a model from another library is used in the same way.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch

from regard.data.columns import DOCUMENTS, ColumnOptions
from regard.data.tokenizer import Tokenizer
from regard.decode.engine import Engine
from regard.errors import NOT_FINITE, ConfigError, InputError
from regard.hub.sentence_transformers import SentenceEmbedding
from regard.models.model import Model
from regard.models.template import Template
from regard.runs.folder import RunFolder
from regard.tasks.kinds import TASKS


class ExternalEngine(ABC):
    """A library that runs a model with its own search."""

    @abstractmethod
    def in_precision(self, precision: str) -> "ExternalEngine":
        """Return the same model in this precision; with `auto` the library chooses."""

    @abstractmethod
    def translator(self, bundle: Any, options: Any) -> Callable[[list[Any]], list[Any]]:
        """Return a function that translates a batch, as `translate.BatchTranslator` does."""

    @abstractmethod
    def generator(self, bundle: Any, options: Any) -> Any:
        """Return an object that generates for a batch, as `generate.BatchGenerator` does."""


@dataclass(frozen=True)
class Bundle:
    """A model with what belongs to it; a kind of model leaves out what it does not need."""

    model: Model
    name: str = "this model"  # used in messages
    tokenizer: Tokenizer | None = None
    template: Template = field(default_factory=Template)
    longest: int | None = None  # tokens of the texts it was trained on, with the template
    classes: tuple[str, ...] = ()
    problem: str | None = None  # what the scores of the classes mean, as Hugging Face says it; None: one is right
    mean: tuple[float, ...] = ()  # of the colours of images, to normalise them
    std: tuple[float, ...] = ()
    device: torch.device = torch.device("cpu")  # noqa: RUF009  # immutable
    engine: Engine | None = None  # of models that write
    embedding: SentenceEmbedding | None = None  # how its folder makes vectors; None: as the model itself pools
    run: RunFolder | None = None  # the run that it comes from
    defaults: Mapping[str, Any] = field(default_factory=dict)  # for options that the user did not choose
    unused: tuple[str, ...] = ()  # settings of its folder for generation that are not used here
    external: ExternalEngine | None = None  # the library that runs it; then `model` has no weights

    @property
    def verbs(self) -> tuple[str, ...]:
        """What it can do, its main purpose first: what its task says, or its kind of model."""
        return (self.run is not None and self.run.task_config.verbs) or self.model.verbs

    @property
    def description(self) -> str:
        """What it is called, with an article."""
        return (self.run is not None and self.run.task_config.description) or self.model.description

    def check(self, verb: str) -> None:
        """Raise an error if this model cannot do what a verb asks."""
        if verb not in self.verbs:
            fits = " or ".join(f"`{name}`" for name in self.verbs)
            raise InputError(f"{self.name}: is {self.description} and cannot {verb}; use {fits}")
        if verb not in ("translate", "generate"):
            self.need_weights(f"cannot {verb}")

    def need_weights(self, limit: str) -> None:
        """Raise an error if another library has the weights; `limit` says what it does not do."""
        if self.external is not None:
            raise InputError(f"{self.name}: CTranslate2 {limit}; use the model that it was converted from")

    def warn_of_unused(self, warn: Callable[[str], None]) -> None:
        """Say which settings of generation are not used."""
        if self.unused:
            warn(f"{self.name} asks for {', '.join(self.unused)}; not used here, so texts differ from transformers'")

    def check_scores(self, scores: Iterable[float]) -> None:
        """Raise an error if a search found nothing, because the model's scores are not finite."""
        if -math.inf in scores:
            raise InputError(f"{self.name}: {NOT_FINITE}")

    def check_finite(self, *numbers: torch.Tensor) -> None:
        """Raise an error if the model has computed numbers that are not finite."""
        if not all(bool(part.isfinite().all()) for part in numbers):
            raise InputError(f"{self.name}: {NOT_FINITE}")

    def text_column(self, column: str | None, flag: str) -> ColumnOptions | None:
        """Return how texts are read from a table: as in training, or from the column that the option `flag` chose.

        Return None for a model of images, whose texts are paths.
        """
        if self.model.reads == "image":
            return None
        roles = DOCUMENTS if self.model.task is None else TASKS[self.model.task].roles
        options = ColumnOptions(roles, (None,) * len(roles))
        if self.run is not None and self.run.task_config.roles:
            options = self.run.task_config.column_options()
        return options.first(column, flag)

    def need_tokenizer(self) -> Tokenizer:
        """Return the tokenizer; raise an error if there is none."""
        if self.tokenizer is None:
            raise InputError(f"{self.name}: has no tokenizer.json; put the one it was trained with into its folder")
        return self.tokenizer

    def need_engine(self) -> Engine:
        """Return the engine of a model that writes."""
        assert self.engine is not None
        return self.engine

    @property
    def ends(self) -> tuple[int, ...]:
        """The tokens that end what is written."""
        return (self.need_tokenizer().end,) if self.template.ends is None else self.template.ends

    @property
    def first(self) -> int:
        """The first token of a translation."""
        return self.need_tokenizer().start if self.template.first is None else self.template.first

    def resolve(self, chosen: Mapping[str, Any], known: Iterable[str]) -> dict[str, Any]:
        """Return the model's defaults of the `known` options, overridden by what the user chose (None: not chosen)."""
        own = {name: value for name, value in self.defaults.items() if name in set(known)}
        return own | {name: value for name, value in chosen.items() if value is not None}

    @property
    def context(self) -> int | None:
        """The most tokens that can be read; None: any number."""
        return self.model.context(self.longest)

    @property
    def text_limit(self) -> int | None:
        """The most tokens of a text that fit into the context with the template around them."""
        around = len(self.template.before) + len(self.template.after)
        return None if self.context is None else max(self.context - around, 1)


@contextmanager
def plain_errors() -> Iterator[None]:
    """Name mistakes in the options of a verb without the class that holds them."""
    try:
        yield
    except ConfigError as error:
        raise InputError(error.rule) from None
