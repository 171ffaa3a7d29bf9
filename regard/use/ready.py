"""A model that is ready to be used: with what belongs to it, where it is, and how it is run.

All that the verbs know of a model is here, and none of it needs a run of ours: a model from elsewhere is as good.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from regard.data.tokenizer import Tokenizer
from regard.decode.engine import Engine
from regard.errors import InputError
from regard.models.encoder import Encoder
from regard.models.head import Classes, Logits
from regard.models.language import LanguageModel
from regard.models.model import EncoderDecoder, Model
from regard.models.vision import VisionTransformer
from regard.runs.folder import RunFolder
from regard.tasks.text import framed


@dataclass(frozen=True)
class Frame:
    """The special tokens around a text that is read, the one a translation begins with, and those never written."""

    before: tuple[int, ...] = ()
    after: tuple[int, ...] = ()
    first: int | None = None
    never: tuple[int, ...] = ()
    ends: tuple[int, ...] | None = None  # those that end what is written; None: the tokenizer's one
    forced: tuple[int, ...] = ()  # what follows the first token of every translation


class Outside(ABC):
    """A library that runs a model by itself, with a search of its own."""

    @abstractmethod
    def computing_in(self, precision: str) -> "Outside":
        """Give the same model in this precision; in `auto` the library chooses."""

    @abstractmethod
    def translator(self, ready: Any, options: Any) -> Callable[[list[Any]], list[Any]]:
        """Give what translates a batch, as `translate.Translator` does."""

    @abstractmethod
    def writer(self, ready: Any, options: Any) -> Any:
        """Give what writes a batch, as `generate.Writer` does."""


@dataclass(frozen=True)
class Ready:
    """A model with what belongs to it; what a kind of model does not need is left out."""

    model: Model
    name: str = "this model"  # to speak of it
    tokenizer: Tokenizer | None = None
    frame: Frame = field(default_factory=Frame)
    longest: int | None = None  # tokens of the texts it was trained on, with the frame
    classes: tuple[str, ...] = ()
    mean: tuple[float, ...] = ()  # of the colours of images, by which they are normalised
    std: tuple[float, ...] = ()
    device: torch.device = torch.device("cpu")  # noqa: RUF009  # it cannot be changed
    engine: Engine | None = None  # of models that write
    run: RunFolder | None = None  # the run that it comes from, if it does
    defaults: Mapping[str, Any] = field(default_factory=dict)  # options of writing where the user chose none
    outside: Outside | None = None  # the library that runs it; then the model here has no weights

    def check(self, verb: str) -> None:
        """Refuse a verb that this kind of model has no answer to."""
        what, verbs = abilities(self.model)
        if verb not in verbs:
            fits = " or ".join(f"`{name}`" for name in verbs)
            raise InputError(f"{self.name}: is {what} and cannot {verb}; use {fits}")
        if self.outside is not None and verb not in ("translate", "generate"):
            raise InputError(f"{self.name}: is run by CTranslate2, which cannot {verb}; use the model it was made of")

    @property
    def words(self) -> Tokenizer:
        """The tokenizer, which every model of text has."""
        if self.tokenizer is None:
            raise InputError(f"{self.name}: has no tokenizer.json; put the one it was trained with into its folder")
        return self.tokenizer

    @property
    def ends(self) -> tuple[int, ...]:
        """The tokens that end what is written."""
        return (self.words.end,) if self.frame.ends is None else self.frame.ends

    @property
    def first(self) -> int:
        """The token that a translation begins with."""
        return self.words.start if self.frame.first is None else self.frame.first

    def chosen(self, options: Mapping[str, Any], known: Iterable[str]) -> dict[str, Any]:
        """Lay the options that a user chose (None: did not) over the model's own, of those that are known."""
        own = {name: value for name, value in self.defaults.items() if name in set(known)}
        return own | {name: value for name, value in options.items() if value is not None}

    @property
    def room(self) -> int | None:
        """The most tokens that can be read: as many as its position table has, or as it was trained on.

        A recurrence that writes goes on for ever.
        """
        endless = isinstance(self.model, LanguageModel) and not self.model.packs_documents
        known = [self.model.longest(), None if endless else self.longest]
        return min((number for number in known if number is not None), default=None)

    @property
    def limit(self) -> int | None:
        """The most tokens of a text that fit into the room, when it is framed."""
        framed = len(self.frame.before) + len(self.frame.after)
        return None if self.room is None else max(self.room - framed, 1)

    @property
    def writer(self) -> Engine:
        """The engine of a model that writes."""
        assert self.engine is not None
        return self.engine


def abilities(model: Model) -> tuple[str, tuple[str, ...]]:
    """Say what a model is, and the verbs that fit it, the most fitting first."""
    if isinstance(model, EncoderDecoder):
        return "a translator", ("translate", "embed")
    if isinstance(model, LanguageModel):
        return "a language model", ("generate", "embed")
    if isinstance(model, VisionTransformer):
        if isinstance(model.head, Classes):
            return "a classifier of images", ("classify", "embed")
        return "an encoder of images", ("embed",)
    assert isinstance(model, Encoder)
    if isinstance(model.head, Logits):
        return "a masked language model", ("fill", "embed")
    if isinstance(model.head, Classes):
        return "a classifier of texts", ("classify", "embed")
    return "an encoder of texts", ("embed",)


def usual_frame(model: Model, tokenizer: Tokenizer | None) -> Frame:
    """Give the frame that texts have in training here: see `tasks/`."""
    if tokenizer is None:
        return Frame()
    start, end = tokenizer.start, tokenizer.end
    if isinstance(model, EncoderDecoder):
        return Frame(*framed(tokenizer, (), (end,)), start)
    if isinstance(model, LanguageModel):
        return Frame((end,), never=unspoken(tokenizer))
    assert isinstance(model, Encoder)
    if isinstance(model.head, Logits):
        return Frame((end,), (end,), never=(*unspoken(tokenizer), end))
    return Frame(*framed(tokenizer, (start,), (end,)))


def unspoken(tokenizer: Tokenizer) -> tuple[int, ...]:
    """Give the tokens that stand for no text, but for the end; some tokenizers have one token for all of them."""
    return tuple(sorted({tokenizer.pad, tokenizer.unk, tokenizer.start, tokenizer.mask} - {tokenizer.end}))
