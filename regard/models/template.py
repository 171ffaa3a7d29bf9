"""Template: the special tokens around a text. A model says which tokens it needs; this module handles only ids."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

Ids = tuple[int, ...]


@runtime_checkable
class SpecialTokens(Protocol):
    """What a template needs to know of a tokenizer: the ids of its special tokens."""

    pad: int
    unk: int
    start: int
    end: int
    mask: int
    roles: Mapping[str, int] | None  # set for an imported tokenizer, whose own template is kept

    def around(self) -> tuple[Ids, Ids]:
        """Return the special tokens that the tokenizer itself puts before and after a text."""


@dataclass(frozen=True)
class Template:
    """The special tokens before and after a text, and those at the start and the end of what a model writes."""

    before: Ids = ()
    after: Ids = ()
    first: int | None = None  # the first token of every translation; None: the tokenizer's start token
    never: Ids = ()  # tokens that are never written
    ends: Ids | None = None  # tokens that end what is written; None: the tokenizer's end token
    forced: Ids = ()  # tokens that follow the first token of every translation


def text_template(tokenizer: SpecialTokens, before: Ids, after: Ids) -> tuple[Ids, Ids]:
    """Return the tokens before and after a text: these, or those of an imported tokenizer."""
    return (before, after) if tokenizer.roles is None else tokenizer.around()


def unwritable(tokenizer: SpecialTokens) -> Ids:
    """Return the special tokens that do not represent text, except for the end token.

    Some tokenizers use one token in several of these roles.
    """
    return tuple(sorted({tokenizer.pad, tokenizer.unk, tokenizer.start, tokenizer.mask} - {tokenizer.end}))
