"""Help texts: plain, with examples, and without the names of Python types."""

import re
from collections.abc import Callable, Mapping
from functools import partial
from inspect import cleandoc
from typing import Any, TypeVar

import typer
from typer.core import TyperCommand

from regard.errors import RegardError

F = TypeVar("F")
TYPE = re.compile(r" <[^<>\n]+>")  # what typer adds after the name of an argument: <list[str]>
BRACES = re.compile(r"^\{(.*)\}")  # what typer puts around the name of an argument that must be given
ASSIGNED = re.compile(r"(?<![\w.\-])([a-z_]+)=('[^']*'|[^\s;,:]+)")
RANGE = re.compile(r"(?:; )?[-\d.]*<?=?x[<>]=?[\d.]+")  # and after the help of a number: [x>=1]


class PlainCommand(TyperCommand):
    """A command whose help shows neither Python types nor ranges of numbers, which errors name when they matter."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters, with plain records for the help text."""
        return plain_parameters(super().get_params(ctx))

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return the words of the usage line: MODEL, not {MODEL}."""
        return [BRACES.sub(r"\1", piece) for piece in super().collect_usage_pieces(ctx)]

    def invoke(self, ctx: Any) -> Any:
        """Run the command; its errors name the options as the user types them: --beam 0 instead of beam=0."""
        try:
            return super().invoke(ctx)
        except RegardError as error:
            error.args = (name_options(str(error), {parameter.name: parameter.opts for parameter in self.params}),)
            raise


def plain_parameters(parameters: list[Any]) -> list[Any]:
    """Return the parameters of a command, whose records in the help text have neither type nor range."""
    for parameter in parameters:
        if not hasattr(parameter, "typed_help_record"):
            parameter.typed_help_record = parameter.get_help_record
            parameter.get_help_record = partial(_plain_record, parameter)
    return parameters


def name_options(text: str, options: Mapping[str, list[str]]) -> str:
    """Replace `name=value` in a message by `--name value`, for each name that is an option."""

    def typed(found: re.Match[str]) -> str:
        long = [option for option in options.get(found[1], []) if option.startswith("--")]
        return f"{long[0]} {found[2]}" if long else found[0]

    return ASSIGNED.sub(typed, text)


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
