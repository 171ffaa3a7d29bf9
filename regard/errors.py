"""The errors that a user can cause. Each message names the place, the cause and the remedy."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches

LISTED = 40  # the most names that a message lists; a large model has thousands of weights


class RegardError(Exception):
    """A mistake in the input of the user; the command line shows it without a traceback."""


class ConfigError(RegardError):
    """A mistake in a recipe or an override; the message is `path: rule`, and the rule names the value."""

    def __init__(self, rule: str, path: str = "") -> None:
        super().__init__(f"{path}: {rule}" if path else rule)
        self.rule = rule
        self.path = path


class InputError(RegardError):
    """A batch that the model cannot take: ids out of range, too long, a wrong image size."""


@contextmanager
def at(place: str) -> Iterator[None]:
    """Put `place` in front of the path of any `ConfigError` raised inside."""
    try:
        yield
    except ConfigError as error:
        path = ".".join(part for part in (place, error.path) if part)
        raise ConfigError(error.rule, path) from None


def choices(wrong: object, right: Iterable[str]) -> str:
    """Return a hint that lists the valid names, the nearest first; it follows a semicolon in a message."""
    names = sorted(right)
    if not names:
        return "there is nothing to choose from"
    some = ", ".join(names[:LISTED]) + (f", ... of {len(names):,}" if len(names) > LISTED else "")
    if near := get_close_matches(str(wrong), names, n=1):
        return f"did you mean '{near[0]}'? (one of {some})"
    return f"use one of {some}" if len(names) > 1 else f"use {some}"


def too_long(tokens: int, longest: int) -> str:
    """Return the message for an input that is longer than the table of positions."""
    return (
        f"the input has {tokens} tokens, but the model has a table of {longest} positions; "
        "shorten the input or use a model with a longer table (or rotary positions)"
    )
