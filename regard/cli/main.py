"""The command `regard`: one file per verb; torch is imported inside a verb, so `--help` is instant."""

import errno
import os
import sys
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from regard import __version__
from regard.cli.classify import classify_command
from regard.cli.convert import convert_command
from regard.cli.data import data_command
from regard.cli.embed import embed_command
from regard.cli.evaluate import evaluate_command
from regard.cli.fill import fill_command
from regard.cli.generate import generate_command
from regard.cli.help import HelpTyper
from regard.cli.look import look_command
from regard.cli.recipes import recipes_command
from regard.cli.show import show_command
from regard.cli.train import train
from regard.cli.translate import translate_command
from regard.errors import RegardError

PIPE_CLOSED = 128 + 13  # exit code if the reader closes the pipe (`| head`): 128 + SIGPIPE, as shells report it


class _Root(TyperGroup):
    """The verbs, `train` first. `--import FILE` may also follow the verb, so it is moved in front of it."""

    def list_commands(self, ctx: Any) -> list[str]:
        return sorted(super().list_commands(ctx), key=lambda name: name != "train")

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


app = HelpTyper(
    cls=_Root,
    help="Attention models from the RNN to today's LLM: train them, use them, look inside them.",
)
app.add_typer(train, name="train")
VERBS = {
    "translate": translate_command,
    "generate": generate_command,
    "classify": classify_command,
    "fill": fill_command,
    "embed": embed_command,
    "evaluate": evaluate_command,
    "look": look_command,
    "convert": convert_command,
    "data": data_command,
    "show": show_command,
    "recipes": recipes_command,
}
for name, verb in VERBS.items():
    app.command(name)(verb)


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
            "--import", metavar="FILE", help="First run a Python file that registers your own parts; may be repeated."
        ),
    ] = None,
) -> None:
    if imported:
        from regard.extend import import_file

        for path in imported:
            import_file(path)


def main() -> None:
    """Run the command; a user's mistake is one line and exit code 2, never a traceback."""
    try:
        try:
            app()
        finally:
            sys.stdout.flush()  # here, so that an error of the output is reported below
    except RegardError as error:
        print(f"regard: {error}", file=sys.stderr)
        sys.exit(getattr(error, "exit_code", 2))
    except KeyboardInterrupt:
        sys.exit(130)
    except SystemExit as done:
        sys.exit(PIPE_CLOSED if isinstance(done.__context__, BrokenPipeError) else done.code)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EPIPE):
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # discard buffered output
        if error.errno == errno.EPIPE:
            sys.exit(PIPE_CLOSED)
        print("regard: no space left for the output; free some space, or write it elsewhere", file=sys.stderr)
        sys.exit(2)
