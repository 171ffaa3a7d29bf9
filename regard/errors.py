"""The errors that a user can cause. Each message names the place, the cause and the remedy."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches

from regard.kernel import get_kernel

LISTED = 40  # the most names that a message lists; a large model has thousands of weights


class RegardError(Exception):
    """A mistake in the input of the user; the command line shows it without a traceback.

    Remedies name options of the command line; in a notebook they are shown as arguments.
    """

    def __str__(self) -> str:
        text = super().__str__()
        return options_as_arguments(text) if get_kernel() is not None else text


class ConfigError(RegardError):
    """A mistake in a recipe or an override; the message is `path: rule`, and the rule names the value."""

    def __init__(self, rule: str, path: str = "") -> None:
        super().__init__(f"{path}: {rule}" if path else rule)
        self.rule = rule
        self.path = path


class InputError(RegardError):
    """A batch that the model cannot take: ids out of range, too long, a wrong image size."""


NOT_FINITE = (
    "the model computes numbers that are not finite (NaN or infinity); "
    "its weights are damaged, or its training diverged"
)


class NotFiniteError(InputError):
    """A text that the model cannot continue, since its scores are not finite."""

    def __init__(self) -> None:
        super().__init__(NOT_FINITE)


FLAGS = ("overwrite", "accept-changed-data", "allow-pickle")  # options without a value
VALUES = "cpu|mini|tiny|small|base|big|bfloat16|float32|int8|eager|split"  # those that remedies suggest


def options_as_arguments(text: str) -> str:
    """Return a message with options as arguments of Python: --run as run=, --overwrite as overwrite=True."""
    resumed = r"(?:regard train )?--resume (?:'([^']+)'|([^\s',;`]+))"
    text = re.sub(resumed, lambda found: f"regard.resume('{found[1] or found[2]}')", text)
    text = re.sub(rf"--({'|'.join(FLAGS)})\b", lambda found: f"{found[1].replace('-', '_')}=True", text)
    text = re.sub(rf"--([a-z-]+) ({VALUES})\b", lambda found: f"{found[1].replace('-', '_')}='{found[2]}'", text)
    commands = "`[^`]*`"  # commands stay as they are
    return re.sub(
        rf"{commands}|(?<![\w-])--([a-z][a-z-]+)",
        lambda found: found[0] if found[1] is None else f"{found[1].replace('-', '_')}=",
        text,
    )


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
