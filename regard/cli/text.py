"""What the verbs on text share: their options, where lines come from, where answers go, and the progress bar.

All have one form: `regard VERB [TEXT...] [-m RUN] [-f FILE] [-o FILE]`. Without texts and file, lines come from
standard input.
"""

import errno
import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from io import TextIOWrapper
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from regard.atomic import NO_PERMISSION
from regard.cli.complete import complete_model, offer
from regard.cli.console import complain
from regard.config import is_unicode
from regard.errors import InputError, RegardError
from regard.escape import escape_controls

if TYPE_CHECKING:
    from regard.data.columns import ColumnOptions
    from regard.use.batches import Chunks, Feedback
    from regard.use.load import LoadedModel

Answer = TypeVar("Answer")

Texts = Annotated[
    list[str] | None,
    typer.Argument(metavar="TEXT", help="Texts. Default: the lines of standard input.", show_default=False),
]
ModelFolder = Annotated[
    Path | None,
    typer.Option(
        "--model",
        "-m",
        metavar="RUN",
        help="Folder of a run or of a Hugging Face model, or a name of `regard models`. Default: the model that comes "
        "with regard for this verb.",
        show_default=False,
        autocompletion=complete_model,
    ),
]
SavedStep = Annotated[
    int | None,
    typer.Option(
        "--step", metavar="N", help="Use the weights after this training step. Default: the best.", show_default=False
    ),
]
InputFile = Annotated[
    Path | None,
    typer.Option(
        "--file",
        "-f",
        metavar="FILE",
        help="Read the lines of this file, also compressed (.gz, .xz, .bz2, .zst), or the rows of a table.",
        show_default=False,
    ),
]
TextColumn = Annotated[
    str | None,
    typer.Option(
        "--column",
        metavar="NAME",
        help="Column (name or number) of a table given by --file. Default: the one that was trained on.",
        show_default=False,
    ),
]
OutputFile = Annotated[
    Path | None,
    typer.Option(
        "--output", "-o", metavar="FILE", help="Write to this file. Default: standard output.", show_default=False
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Write one JSON object per line.")]
BatchTokens = Annotated[
    int | None,
    typer.Option(metavar="N", help="Tokens per batch; fewer need less memory. Default: by device.", show_default=False),
]
AllowPickle = Annotated[bool, typer.Option("--allow-pickle", help="Also read the weights of an old .bin file.")]
DeviceName = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="auto, cpu, cuda, cuda:1, mps or xpu.",
        autocompletion=offer("auto", "cpu", "cuda", "mps", "xpu"),
    ),
]
EngineName = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="auto, eager, captured (CUDA graphs), compiled or ctranslate2.",
        autocompletion=offer("auto", "eager", "captured", "compiled", "ctranslate2"),
    ),
]
PrecisionName = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="auto, float32, bfloat16 (not on the CPU) or int8 (only on the CPU).",
        autocompletion=offer("auto", "float32", "bfloat16", "int8"),
    ),
]


def open_model(
    folder: Path | None,
    device: str,
    engine: str = "auto",
    allow_pickle: bool = False,
    precision: str = "auto",
    step: int | None = None,
    *,
    verb: str = "",
    texts: list[str] | None = None,
) -> "LoadedModel":
    """Load the model of `-m`; without it, the model in the box for the verb and what its texts are."""
    folder = choose_box_model(verb, texts) if folder is None else folder
    from regard.use.load import load

    return load(folder, device, engine, allow_pickle, precision, step)


def choose_box_model(verb: str, texts: list[str] | None) -> Path:
    """Return the model in the box for a verb, and say which it is; the user's own runs are never chosen."""
    from regard.use.box import default_model

    model = default_model(verb, texts)
    if model is None:
        raise InputError("name a model: -m RUN, the folder that `regard train` printed, or a Hugging Face folder")
    complain(f"using {model.name}, which comes with regard; -m RUN uses another model")
    return model.folder


def named(file: Path | None) -> Path | None:
    """Return the path of a file, or None for `-`, which means standard input or output."""
    return None if file == Path("-") else file


def check_apart(output: Path | None, other: Path | None, what: str) -> None:
    """Raise an error if the answers and something else would be written to the same place."""
    if other is None:
        return
    places = [None if path is None else path.resolve() for path in (named(output), named(other))]
    if places[0] == places[1]:
        where = named(other) or "standard output"
        raise InputError(f"{where}: would hold both the answers and the {what}; name another file for one of them")


# --- input ---------------------------------------------------------------------------------------------------------


class Lines:
    """The lines to answer: texts of the command, a file, a column of a table, or standard input."""

    def __init__(self, texts: list[str] | None, file: Path | None, column: str | None = None) -> None:
        if texts and file is not None:
            raise InputError(f"both texts and the file {file} were given; leave one of them out")
        for text in texts or ():
            if not is_unicode(text):
                raise InputError(f"the text {text!a} is not valid UTF-8; give it in UTF-8")
        self.texts, self.file, self.column = texts, named(file), column
        if column is not None and not self._is_table():
            raise InputError(f"--column {column}: is for a table, and {file or 'no file'} is not one; leave it out")
        self.live = not texts and self.file is None  # a person or another program may be waiting for each answer
        self.advance: Callable[[int], None] | None = None  # moves the progress bar, if there is one
        self.cut, self.first_cut = 0, ""  # lines that are too long to be read in full
        self.total = self._count()

    @property
    def typed(self) -> bool:
        """Whether a person types the lines."""
        return self.live and sys.stdin.isatty()

    def _count(self) -> int | None:
        """Count the lines of a file; None for a pipe. This also checks the complete file before any work starts."""
        if self.file is None or self.file.is_fifo() or self.file.is_char_device():
            return None
        from regard.data.lines import EmptyError, read_blocks
        from regard.data.tables import open_table

        if self._is_table():
            return sum(1 for _ in open_table(self.file).rows)
        ends, last = 0, "\n"
        try:
            for _, text in read_blocks(self.file):
                ends += text.count("\n")
                last = text[-1]
        except EmptyError:
            return 0
        return ends + (last != "\n")

    def _is_table(self) -> bool:
        from regard.data.tables import is_table

        return self.file is not None and is_table(self.file)

    def chunks(self, loaded: "LoadedModel | None" = None) -> "Chunks":
        """Return the lines in lists: what has arrived on standard input, or a few thousand at a time.

        Of a table they are the column that the model reads, which is said on standard error.
        """
        from regard.use.batches import Chunks, chunk_lines

        if self.live:
            from regard.cli.stdin import read_available

            if self.typed:
                print("type one line after another; Ctrl-D ends the input", file=sys.stderr)
            return Chunks(self._read(part for chunk in read_available(self._cut) for part in chunk_lines(chunk)))
        if self.file is None:
            return Chunks(self._read(chunk_lines(self.texts or [])))
        columns = loaded.bundle.text_column(self.column, "--column") if loaded and self._is_table() else None
        lines = _lines_of(self.file, self._cut) if columns is None else _cells_of(self.file, columns)
        return Chunks(self._read(chunk_lines(lines)))

    def _cut(self, place: str) -> None:
        self.cut += 1
        self.first_cut = self.first_cut or place

    def _read(self, chunks: Iterator[list[str]]) -> Iterator[list[str]]:
        """Pass lines on; after the last one, warn about those that were too long to be read in full."""
        yield from chunks
        if self.cut:
            counted = "1 line was" if self.cut == 1 else f"{self.cut:,} lines were"
            complain(f"{counted} cut at the end, being over 1 MiB (first: {self.first_cut})")

    def feedback(self) -> "Feedback":
        """Return the callbacks of a model while it answers: the progress bar, and warnings on standard error."""
        from regard.use.batches import Feedback

        return Feedback(done=self._done, warn=complain)

    def _done(self, count: int) -> None:
        if self.advance is not None:
            self.advance(count)


def _lines_of(file: Path, cut: Callable[[str], None]) -> Iterator[str]:
    """Yield the lines of a file, which may be empty, unlike a file to train on."""
    from regard.data.lines import EmptyError, read_lines

    with suppress(EmptyError):
        yield from read_lines(file, cut)


def _cells_of(file: Path, columns: "ColumnOptions") -> Iterator[str]:
    """Yield the texts of a table."""
    from regard.data.tables import read_columns, read_reading

    complain(f"{file}: {read_reading(file, columns).how}")
    return (text for _, (text,) in read_columns(file, columns))


# --- output --------------------------------------------------------------------------------------------------------


class Sink:
    """The output: standard output, or a file that gets its name when it is complete.

    After an interruption or an error, the answers so far are kept in FILE.part (or FILE.part2, ... if there is such a
    file already). So `regard.atomic`, which would remove them, is not used. On a terminal control characters are
    escaped.
    """

    def __init__(self, path: Path | None, mode: str = "w", option: str = "-o") -> None:
        self.path, self.mode, self.option = named(path), mode, option
        self.direct = self.path is None or (self.path.exists() and not self.path.is_file()) or _is_device(self.path)
        if self.path is not None and not self.direct and self.path.is_symlink():
            self.path = Path(os.path.realpath(self.path))  # the file is replaced, not the link to it
        self.part = self.path  # a pipe, /dev/null or /dev/stdout is written directly
        self.file: Any = sys.stdout
        self.escapes = False
        self.size = 0  # number of writes

    def __enter__(self) -> "Sink":
        if self.path is None:
            if isinstance(sys.stdout, TextIOWrapper):
                sys.stdout.reconfigure(encoding="utf-8", errors="backslashreplace")  # as the input is
            self.escapes = sys.stdout.isatty()
            return self
        try:
            self.file = self._open(self.path)
        except OSError as error:
            raise self._refusal(error) from None
        return self

    def _open(self, path: Path) -> Any:
        encoding, errors = (None, None) if "b" in self.mode else ("utf-8", "backslashreplace")
        if self.direct:  # "a": /dev/stdout may be a file that has content already
            return path.open(self.mode.replace("w", "a"), encoding=encoding, errors=errors)
        for number in count(1):
            self.part = path.with_name(f"{path.name}.part{number if number > 1 else ''}")
            with suppress(FileExistsError):  # what is there belongs to the user, or to an interrupted command
                return self.part.open(self.mode.replace("w", "x"), encoding=encoding, errors=errors)
        raise AssertionError

    def write(self, text: Any, *, flush: bool = False) -> None:
        """Write text or bytes; as they are, unless a terminal would obey them."""
        try:
            self.file.write(escape_controls(text, keep="\n\t") if self.escapes else text)
            if flush:
                self.file.flush()
        except BrokenPipeError:
            raise
        except OSError as error:
            raise self._refusal(error) from None
        self.size += 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.file.flush()
            if self.path is not None:
                self.file.close()
        except BrokenPipeError:
            raise
        except OSError as trouble:
            raise self._refusal(trouble) from None
        if self.part is not None and self.path is not None and not self.direct:
            self._name(self.part, self.path, error)

    def _name(self, part: Path, path: Path, error: BaseException | None) -> None:
        """Rename a complete file; of an incomplete one, report where the answers so far are."""
        if error is None:
            part.replace(path)
        elif not self.size:
            part.unlink()
        elif isinstance(error, KeyboardInterrupt):
            complain(f"stopped; the answers so far are in {part}")
        else:
            error.add_note(f"the answers so far are in {part}")  # which `main` prints with the error

    def _refusal(self, error: OSError) -> RegardError:
        place, reason, remedy = self.path or "standard output", error.strerror, "free some space, or"
        if self.path is not None and not self.path.parent.is_dir():
            reason, remedy = f"the folder {self.path.parent} does not exist", "create it, or"
        elif error.errno == errno.EISDIR:
            reason, remedy = "it is a folder", "name a file in it, or"
        elif error.errno in NO_PERMISSION:
            remedy = "make the folder writable, or"
        return RegardError(f"{place}: cannot be written: {reason}; {remedy} choose another {self.option}")


def _is_device(path: Path) -> bool:
    """Return whether a name is one of the system's, such as /dev/stdout: a link, which must never be replaced."""
    return any(Path(os.path.abspath(path)).is_relative_to(folder) for folder in ("/dev", "/proc")) and path.exists()


def answer_all(
    lines: Lines, answers: Iterator[tuple[str, Answer]], sink: Sink, show: Callable[[int, str, Answer], str | None]
) -> None:
    """Write what `show` returns for each line's number (from 0), text and answer; None writes nothing."""
    with _progress_bar(lines, sink):
        for number, (line, answer) in enumerate(answers):
            text = show(number, line, answer)
            if text is not None:
                sink.write(f"{text}\n", flush=lines.live)


@contextmanager
def _progress_bar(lines: Lines, sink: Sink) -> Iterator[None]:
    """Show a bar on standard error if it is a terminal, the input is a file, and the output is not that terminal."""
    if not lines.total or not sys.stderr.isatty() or (sink.path is None and sys.stdout.isatty()):
        yield
        return
    from rich.progress import BarColumn, MofNCompleteColumn, TimeRemainingColumn

    from regard.terminal import progress_bars, text_column

    columns = text_column(), BarColumn(), MofNCompleteColumn(), text_column("lines"), TimeRemainingColumn()
    with progress_bars(*columns) as progress:
        name = escape_controls(lines.file.name) if lines.file else ""
        task = progress.add_task(name, total=lines.total)
        lines.advance = lambda count: progress.update(task, advance=count)
        yield


def as_object(line: str, **found: Any) -> str:
    """Return the answer to a line as one line of JSON."""
    return json.dumps({"text": line, **found}, ensure_ascii=False)
