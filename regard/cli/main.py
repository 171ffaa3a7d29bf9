"""The command `regard`: one file per verb, imported when the verb is used.

A verb imports torch when it runs, so every `--help` is instant.
"""

import atexit
import errno
import gc
import os
import re
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from importlib import import_module
from io import TextIOWrapper
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import typer

from regard import __version__
from regard.cli.console import complain
from regard.cli.help import HelpTyper, PlainGroup, UsageError, describe_usage_error, make_command
from regard.errors import ConfigError, RegardError
from regard.escape import escape_controls
from regard.machine import FREE_CORES, THREADS, suggest_threads

INTERRUPTED = 128  # exit codes of a command that a signal stopped are larger
PIPE_CLOSED = 128 + 13  # exit code if the reader closes the pipe (`| head`): 128 + SIGPIPE, as shells report it

MOST_THREADS = 1024  # OpenMP ends the process if it cannot start them
MOVED = ("--import", "--threads")  # options of the command itself that may follow the verb
MORE_MEMORY = {
    "train": "use a smaller --size, a smaller train.tokens or shorter rows (task.window, task.longest)",
    "verbs": "try a smaller --batch-tokens, fewer beams, or a smaller model",
}
VERBS = {  # what `regard --help` says of each
    "train": "Train a model on your own files.",
    "translate": "Translate texts, the lines of a file, or standard input.",
    "generate": "Continue prompts with a language model.",
    "classify": "Classify texts or images.",
    "fill": "Fill in the masked words of texts.",
    "annotate": "Predict the secondary structure of proteins, or contacts.",
    "embed": "Print a vector for each text or image.",
    "parse": "Parse sentences: draw their constituency trees.",
    "forecast": "Forecast the agents of a scene.",
    "evaluate": "Measure a model on files or on its validation data.",
    "ablate": "Measure what each attention head is worth.",
    "look": "Show what a model attends to, in the browser.",
    "compare": "Train several architectures with an equal budget.",
    "convert": "Write a model for Hugging Face or CTranslate2.",
    "data": "List the known data sets, or download one.",
    "show": "Show an architecture: shapes, parameters, FLOPs and memory.",
    "recipes": "List the recipes that come with regard.",
    "models": "List the trained models that come with regard.",
    "lab": "Run the claims of the lectures as experiments.",
    "results": "Show the scores of the recipes beside published ones.",
    "tune": "Search for a good rate, size, dropout and vocabulary.",
}


class _Commands(Mapping[str, Any]):
    """The verbs by name; each is imported when it is looked up."""

    def __getitem__(self, name: str) -> Any:
        if name not in VERBS:
            raise KeyError(name)
        return make_command(name, getattr(import_module(f"regard.cli.{name}"), f"{name}_command"))

    def __iter__(self) -> Iterator[str]:
        return iter(VERBS)

    def __len__(self) -> int:
        return len(VERBS)


class _Root(PlainGroup):
    """The verbs. `--import FILE` and `--threads N` may also follow the verb, so they are moved."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands: Any = _Commands()

    def summaries(self, ctx: Any) -> dict[str, str]:
        return VERBS

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        end = args.index("--") if "--" in args else len(args)
        moved: list[str] = []
        kept: list[str] = []
        words = iter(args[:end])
        for word in words:
            if word in MOVED:
                moved += [word, *islice(words, 1)]
            elif word.partition("=")[0] in MOVED:
                moved.append(word)
            else:
                kept.append(word)
        return super().parse_args(ctx, [*moved, *kept, *args[end:]])


app = HelpTyper(
    cls=_Root,
    add_completion=True,
    help="Attention models from the RNN to today's LLM: train them, use them, look inside them.",
)


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
    threads: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=MOST_THREADS,
            metavar="N",
            help="Threads on the CPU. Default: the cores that are allowed and free.",
            show_default=False,
        ),
    ] = None,
) -> None:
    if threads is not None or THREADS not in os.environ:
        _use_threads(threads)
    if imported:
        from regard.extend import import_file

        for path in imported:
            import_file(path)


def _use_threads(chosen: int | None) -> None:
    """Compute with the threads that the user chose, or with no more than there are free cores.

    Libraries read the variables when they are imported; a library that is imported already is told.
    """
    threads = suggest_threads() if chosen is None else chosen
    if "torch" in sys.modules:
        import torch

        torch.set_num_threads(threads if chosen is not None else min(threads, torch.get_num_threads()))
    elif chosen is not None or threads < (os.cpu_count() or 1):
        os.environ.update({THREADS: str(threads), "RAYON_NUM_THREADS": str(threads)})
        if chosen is None:
            os.environ[FREE_CORES] = str(threads)


def _print_error(text: str, error: BaseException) -> None:
    """Print an error in one line, or one for each mistake in a recipe, with what code that it passed through has noted.

    Names and contents of files may hold line breaks and escape sequences, which are shown as such.
    """
    notes = "".join(f" ({note})" for note in getattr(error, "__notes__", ()))
    text = f"{text}{notes}"
    lines = re.split(r"\n(?=[\w.\[\]-]+: )", text) if isinstance(error, ConfigError) else [text]
    complain("\n".join(map(escape_controls, lines)))


def _is_out_of_memory(error: BaseException) -> bool:
    """Return whether memory ran out; without torch only Python itself can run out of it."""
    if "torch" not in sys.modules:
        return isinstance(error, MemoryError)
    from regard.data.device import out_of_memory

    return out_of_memory(error)


def _asked_for(error: BaseException) -> str:
    """Return the bytes that could not be allocated, as torch or numpy names them."""
    found = re.search(r"allocate (\d[\d.]*) ?(bytes|[KMGT]iB)", str(error))
    if found is None:
        return ""
    from regard.quantity import short_size

    units = {"bytes": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
    return f" for {short_size(int(float(found[1]) * units[found[2]]))} at once"


def _report_system_error(error: BaseException) -> int:
    """Print that memory, disk or a file failed, and return the exit code; raise what is a mistake of ours again."""
    if _is_out_of_memory(error):
        remedy = MORE_MEMORY["train" if "train" in sys.argv[1:] else "verbs"]
        _print_error(f"not enough memory{_asked_for(error)}; {remedy}", error)
        return 2
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EPIPE):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # discard buffered output
        if error.errno == errno.EPIPE:
            return PIPE_CLOSED
        print("regard: no space left for the output; free some space, or write it elsewhere", file=sys.stderr)
        return 2
    if not isinstance(error, OSError) or error.filename is None or error.strerror is None:
        raise error
    _print_error(f"{os.fsdecode(error.filename)}: {error.strerror}; check its name and permissions", error)
    return 2


def _let_interrupts_end_it() -> None:
    """Make another Ctrl-C end the process without a word: as an exception while Python ends, it prints a traceback."""
    with suppress(ValueError):  # not in the main thread
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def _end_quickly() -> None:
    """Keep Python from looking for cycles among all that is imported when it ends, which takes 0.3 s with torch."""
    atexit.unregister(gc.freeze)
    atexit.register(gc.freeze)


def _replace_closed_streams() -> None:
    """Put the null device in the place of each standard stream that is closed, for which Python has None."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), mode, encoding="utf-8"))


def main() -> None:
    """Run the command; a user's mistake is one line and exit code 2, never a traceback."""
    _end_quickly()
    _replace_closed_streams()
    if isinstance(sys.stdout, TextIOWrapper):  # a name may hold bytes that are not UTF-8, a label half a character
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        try:
            code = app(prog_name="regard", standalone_mode=False)  # typer would print mistakes in options itself
        finally:
            sys.stdout.flush()  # here, so that an error of the output is reported below
        sys.exit(code if isinstance(code, int) else 0)
    except UsageError as error:
        if error.format_message().startswith("Usage:"):  # without a verb, typer raises the help text
            error.show()
        else:
            _print_error(describe_usage_error(error), error)
        sys.exit(error.exit_code)
    except RegardError as error:
        _print_error(str(error), error)
        code = getattr(error, "exit_code", 2)
        if code > INTERRUPTED:
            _let_interrupts_end_it()
        sys.exit(code)
    except (KeyboardInterrupt, typer.Abort):
        _let_interrupts_end_it()
        sys.exit(130)
    except SystemExit as done:
        if done.code == 130:
            _let_interrupts_end_it()
        sys.exit(PIPE_CLOSED if isinstance(done.__context__, BrokenPipeError) else done.code)
    except (MemoryError, RuntimeError, OSError) as error:
        sys.exit(_report_system_error(error))
