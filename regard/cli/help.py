"""Help texts: plain, with examples, and without the names of Python types; mistakes in options as one line."""

import re
import shlex
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from functools import partial
from inspect import cleandoc
from typing import Any, TypeVar

import typer
from typer.core import CompletionItem, TyperCommand, TyperGroup  # type: ignore[attr-defined]

from regard.errors import RegardError

F = TypeVar("F")
UsageError: Any = typer.BadParameter.__base__  # click's own class; newer versions of typer contain a copy of click
RULES = {  # pydantic's rules for a value, as errors of this package state them
    "int_parsing": "must be a whole number",
    "int_parsing_size": "must be a smaller number",
    "int_from_float": "must be a whole number",
    "float_parsing": "must be a number",
    "finite_number": "must be a finite number",
    "greater_than_equal": "must be at least {ge}",
    "less_than_equal": "must be at most {le}",
}
TRAIN_KEYS = {  # which other programs have as options; a search decides how long it trains
    "train": ("minutes", "steps", "tokens", "seed", "patience"),
    "tune": ("tokens", "seed"),
}
UNKNOWN_VERB = re.compile(r"No such command '(\w+)'")
OTHER_VERBS = {  # what other programs, or the functions of this package, call it
    "resume": "regard train --resume RUN",
    "export": "regard convert",
    "download": "regard data",
    "test": "regard evaluate",
    "predict": "regard classify",
}
TYPE = re.compile(r" <[^<>\n]+>")  # what typer adds after the name of an argument: <list[str]>
BRACES = re.compile(r"^\{(.*)\}")  # what typer puts around the name of an argument that must be given
ASSIGNED = re.compile(r"(?<![\w.\-])([a-z_]+)=('[^']*'|[^\s;,:]+)")
RESUMED = re.compile(r"regard\.resume\('([^']*)'\)")
RANGE = re.compile(r"(?:; )?[-\d.]*<?=?x[<>]=?[\d.]+")  # and after the help of a number: [x>=1]
DEFAULT = re.compile(r"  \[default: (.*)\]$")
REQUIRED = "  [required]"
CONTINUED = " \\"  # at the end of a line of a command
PIECE = re.compile(r'(?:--?[a-z][a-z-]* (?!-))?(?:"[^"]*"|[^\s"])+')  # of a command: a word, or an option and its value


class PlainCommand(TyperCommand):
    """A command whose help shows neither Python types nor ranges of numbers, which errors name when they matter."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters, with plain records for the help text."""
        return plain_parameters(super().get_params(ctx))

    def format_help_text(self, ctx: Any, formatter: Any) -> None:
        """Write what the command does, with examples that fit into the terminal."""
        write_description(self.help or "", formatter)

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


class PlainGroup(TyperGroup):
    """A group of commands whose help shows neither Python types nor ranges, and whole sentences about its commands."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters, with plain records for the help text."""
        return plain_parameters(super().get_params(ctx))

    def format_help_text(self, ctx: Any, formatter: Any) -> None:
        """Write what the commands do, with examples that fit into the terminal."""
        write_description(self.help or "", formatter)

    def summaries(self, ctx: Any) -> Mapping[str, str]:
        """Return the first sentence about each command."""
        shown = {name: command for name, command in self.commands.items() if not command.hidden}
        return {name: (command.help or "").partition("\n\n")[0] for name, command in shown.items()}

    def other_words(self, incomplete: str) -> list[str]:
        """Return what else may be the first word and begins with this."""
        return []

    def shell_complete(self, ctx: Any, incomplete: str) -> list[Any]:
        """Return what a shell offers for an incomplete word: commands without importing them, and options."""
        words = {**self.summaries(ctx), **dict.fromkeys(self.other_words(incomplete), "")}
        found = [CompletionItem(word, help=text) for word, text in words.items() if word.startswith(incomplete)]
        return [*found, *super(TyperGroup, self).shell_complete(ctx, incomplete)]

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the commands with their sentences, broken where the terminal ends."""
        with formatter.section("Commands"):
            formatter.write_dl(list(self.summaries(ctx).items()))


def write_description(text: str, formatter: Any) -> None:
    """Write the paragraphs of a help text; a long example continues in the next line, as a shell reads it."""
    width = formatter.width - formatter.indent_increment
    lines = [fit_example(line, width) if line.startswith(" ") else line for line in text.splitlines()]
    formatter.write_paragraph()
    with formatter.indentation():
        formatter.write_text("\n".join(lines))


def fit_example(line: str, width: int) -> str:
    """Break an indented command where it would be longer than the width, but not between an option and its value."""
    if len(line) <= width:
        return line
    indent = " " * (len(line) - len(line.lstrip()))
    first, *words = PIECE.findall(line)
    lines = [f"{indent}{first}"]
    for word in words:
        if len(f"{lines[-1]} {word}{CONTINUED}") > width:
            lines[-1] += CONTINUED
            lines.append(f"{indent}  {word}")
        else:
            lines[-1] += f" {word}"
    return "\n".join(lines)


def plain_parameters(parameters: list[Any]) -> list[Any]:
    """Return the parameters of a command, whose records in the help text have neither type nor range."""
    for parameter in parameters:
        if not hasattr(parameter, "typed_help_record"):
            parameter.typed_help_record = parameter.get_help_record
            parameter.get_help_record = partial(_plain_record, parameter)
    return parameters


def name_options(text: str, options: Mapping[str, list[str]]) -> str:
    """Replace `name=value` in a message by `--name value`, for each name that is an option; a flag has no value."""

    def typed(found: re.Match[str]) -> str:
        long = [option for option in options.get(found[1], []) if option.startswith("--")]
        return " ".join(long[:1] if found[2] == "True" else [long[0], found[2]]) if long else found[0]

    return ASSIGNED.sub(typed, RESUMED.sub(lambda found: f"--resume {shlex.quote(found[1])}", text))


def describe_usage_error(error: Any) -> str:
    """Return a mistake in options and arguments as one line: option, value, rule, and where the help is."""
    path = "regard" if error.ctx is None else " ".join(error.ctx.command_path.split())  # `train RECIPE` has no name
    hint = f"see {path} -h"
    found: list[Any] = getattr(error.__cause__, "errors", list)()
    if found and found[0]["type"] in RULES:
        rule = RULES[found[0]["type"]].format(**found[0].get("ctx", {}))
        return f"{'/'.join(error.param.opts)} {found[0]['input']}: {rule}; {hint}"
    if (option := getattr(error, "option_name", None)) is not None and hasattr(error, "possibilities"):
        return f"no such option {option}{_nearest_option(option, error.ctx)} ({hint})"
    text = error.format_message().rstrip(".")
    if (verb := UNKNOWN_VERB.match(text)) and verb[1] in OTHER_VERBS:
        text = f"{verb[0]}; use `{OTHER_VERBS[verb[1]]}`"
    text = text[:1].lower() + text[1:].replace(". Did you mean", "; did you mean")
    return f"{text} ({hint})" if text.endswith("?") else f"{text}; {hint}"


def _nearest_option(option: str, ctx: Any) -> str:
    """Return the question whether another option is meant: one that begins with this, or is spelled like it.

    A setting of training is named as the override that it is: `train.minutes=N`.
    """
    verb, key = (*ctx.command_path.split(), "")[1], option.removeprefix("--")
    if key in TRAIN_KEYS.get(verb, ()):
        return f"; write train.{key}=N"
    known = [name for parameter in ctx.command.params for name in parameter.opts if name.startswith("--")]
    near = [name for name in known if name.startswith(option)] or get_close_matches(option, known, n=1)
    return f"; did you mean {near[0]}?" if near else ""


def _plain_record(parameter: Any, ctx: Any) -> tuple[str, str] | None:
    """Return name and help of a parameter without its type and range; its default is a sentence."""
    found = parameter.typed_help_record(ctx)
    if found is None:
        return None
    name, text = found
    text = DEFAULT.sub(r" Default: \1.", RANGE.sub("", text).removesuffix("  []"))
    return TYPE.sub("", name), text.replace(REQUIRED, " Required.")


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


def make_command(name: str, verb: HelpTyper | Callable[..., Any]) -> Any:
    """Return a group, or a function, as the command of this name in another group."""
    if isinstance(verb, HelpTyper):
        return typer.main.get_command(verb)
    alone = HelpTyper()
    alone.command(name)(verb)
    return typer.main.get_command(alone)


def help_text(docstring: str) -> str:
    """Return a docstring as typer wants it: paragraphs are wrapped to the terminal, examples keep their lines."""
    return "\n\n".join(
        f"\b\n{paragraph}" if paragraph.startswith("Examples:") else " ".join(paragraph.split())
        for paragraph in cleandoc(docstring).split("\n\n")
    )
