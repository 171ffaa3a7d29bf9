"""Help texts: plain, with examples, and without the names of Python types."""

import re
from collections.abc import Callable
from inspect import cleandoc
from typing import Any, TypeVar

import typer
from typer.core import TyperCommand

F = TypeVar("F")
TYPE = re.compile(r" <[^<>\n]+>")  # what typer adds after the name of an argument: <list[str]>


class PlainCommand(TyperCommand):
    """A command whose help does not show Python types."""

    def get_help(self, ctx: Any) -> str:
        """Return the help text."""
        return TYPE.sub("", super().get_help(ctx))


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
