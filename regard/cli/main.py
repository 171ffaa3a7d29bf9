"""The command `regard`: one file per verb; torch is imported inside a verb, so `--help` is instant."""

import errno
import os
import sys
from inspect import cleandoc
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from regard import __version__
from regard.cli.classify import classify
from regard.cli.convert import convert_command
from regard.cli.data import data_command
from regard.cli.embed import embed
from regard.cli.evaluate import evaluate
from regard.cli.fill import fill
from regard.cli.generate import generate
from regard.cli.look import look_command
from regard.cli.recipes import recipes_command
from regard.cli.show import show_command
from regard.cli.train import train
from regard.cli.translate import translate
from regard.errors import RegardError

LEFT = 128 + 13  # when who read the output (`| head`) has left; so a shell says that a signal, SIGPIPE, ended others


class _Root(TyperGroup):
    """The verbs. `--import FILE` may also follow the verb, so it is moved in front of it."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        end = args.index("--") if "--" in args else len(args)
        moved: list[str] = []
        kept: list[str] = []
        words = iter(args[:end])
        for word in words:
            if word == "--import":
                moved += [word, *islice(words, 1)]
            elif word.startswith("--import="):
                moved.append(word)
            else:
                kept.append(word)
        return super().parse_args(ctx, [*moved, *kept, *args[end:]])


app = typer.Typer(
    cls=_Root,
    help="Attention models from the RNN to today's LLM: build them, train them, use them.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(train, name="train")
for verb in (
    translate,
    generate,
    classify,
    fill,
    embed,
    evaluate,
    look_command,
    convert_command,
    data_command,
    show_command,
    recipes_command,
):
    # the lines of a paragraph are joined, to be broken where the terminal ends
    paragraphs = cleandoc(verb.__doc__ or "").split("\n\n")
    app.command(
        name=verb.__name__.removesuffix("_command"),
        help="\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs),
    )(verb)


def _print_version(wanted: bool) -> bool:
    if wanted:
        print(f"regard {__version__}")
        raise typer.Exit
    return wanted


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and stop.")
    ] = False,
    imported: Annotated[
        list[Path] | None,
        typer.Option(
            "--import", metavar="FILE", help="Run a Python file first that registers your own parts; may be repeated."
        ),
    ] = None,
) -> None:
    if imported:
        from regard.extend import import_file

        for path in imported:
            import_file(path)


def main() -> None:
    """Run the command; a user's mistake is one message and exit code 2, never a traceback."""
    try:
        try:
            app()
        finally:
            sys.stdout.flush()  # while there is still somebody to say what went wrong
    except RegardError as error:
        print(f"regard: {error}", file=sys.stderr)
        sys.exit(getattr(error, "exit_code", 2))
    except KeyboardInterrupt:
        sys.exit(130)
    except SystemExit as done:
        sys.exit(LEFT if isinstance(done.__context__, BrokenPipeError) else done.code)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EPIPE):
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is still to be written has no place
        if error.errno == errno.EPIPE:
            sys.exit(LEFT)
        print("regard: no space is left for the output; make room, or write it elsewhere", file=sys.stderr)
        sys.exit(2)
