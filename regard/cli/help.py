"""Help texts: plain, with examples, and without the names of Python types."""

import re
from collections.abc import Callable
from functools import partial
from inspect import cleandoc
from typing import Any, TypeVar

import typer
from typer.core import TyperCommand

F = TypeVar("F")
TYPE = re.compile(r" <[^<>\n]+>")  # what typer adds after the name of an argument: <list[str]>
RANGE = re.compile(r"(?:; )?[-\d.]*<?=?x[<>]=?[\d.]+")  # and after the help of a number: [x>=1]


class PlainCommand(TyperCommand):
    """A command whose help shows neither Python types nor ranges of numbers, which errors name when they matter."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters, with plain records for the help text."""
        found: list[Any] = super().get_params(ctx)
        for parameter in found:
            if not hasattr(parameter, "typed_help_record"):
                parameter.typed_help_record = parameter.get_help_record
                parameter.get_help_record = partial(_plain_record, parameter)
        return found


def _plain_record(parameter: Any, ctx: Any) -> tuple[str, str] | None:
    """Return name and help of a parameter without its type and range."""
    found = parameter.typed_help_record(ctx)
    if found is None:
        return None
    name, text = found
    return TYPE.sub("", name), RANGE.sub("", text).removesuffix("  []")


class HelpTyper(typer.Typer):
    """A group of commands with plain help texts."""

    def __init__(self, **settings: Any) -> None:
        names = {"help_option_names": ["-h", "--help"]}
        super().__init__(
            **{"rich_markup_mode": None, "add_completion": False, "context_settings": names, **settings},
            no_args_is_help=True,
            pretty_exceptions_enable=False,
        )

    def command(self, name: str | None = None, **settings: Any) -> Callable[[F], F]:
        """Register a command; its help is the docstring, whose paragraph of examples keeps its lines."""

        def decorate(function: F) -> F:
            texts = {"help": help_text(function.__doc__ or "")}
            register: Any = super(HelpTyper, self).command(name, **{"cls": PlainCommand, **texts, **settings})
            register(function)
            return function

        return decorate


def help_text(docstring: str) -> str:
    """Return a docstring as typer wants it: paragraphs are wrapped to the terminal, examples keep their lines."""
    return "\n\n".join(
        f"\b\n{paragraph}" if paragraph.startswith("Examples:") else " ".join(paragraph.split())
        for paragraph in cleandoc(docstring).split("\n\n")
    )
