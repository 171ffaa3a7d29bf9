"""What all verbs on text share: their options, where lines come from, where answers go, and the bar between.

One shape: `regard VERB [TEXT...] -m RUN [-f FILE] [-o FILE]`. Without texts and file, lines come from standard input.
"""

import json
import sys
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from io import TextIOWrapper
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from regard.errors import InputError, RegardError

if TYPE_CHECKING:
    from regard.use.load import Loaded

Answer = TypeVar("Answer")

Texts = Annotated[
    list[str] | None, typer.Argument(metavar="TEXT", help="None: the lines of standard input.", show_default=False)
]
ModelFolder = Annotated[
    Path | None, typer.Option("--model", "-m", help="The folder of a run, or one of Hugging Face.", show_default=False)
]
InputFile = Annotated[
    Path | None,
    typer.Option(
        "--file", "-f", help="Take the lines of this file, also packed (.gz, .xz, .bz2, .zst).", show_default=False
    ),
]
OutputFile = Annotated[
    Path | None, typer.Option("--output", "-o", help="Write into this file; none: print.", show_default=False)
]
AsJson = Annotated[bool, typer.Option("--json", help="Write a JSON object for each line, for programs.")]
BatchTokens = Annotated[
    int | None,
    typer.Option(min=1, help="Tokens worked on together; none: what suits the device.", show_default=False),
]
AllowPickle = Annotated[bool, typer.Option("--allow-pickle", help="Read weights from a .bin of Hugging Face, too.")]
DeviceName = Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1, mps or xpu.")]
EngineName = Annotated[str, typer.Option(help="auto, eager, captured (CUDA), compiled or ctranslate2.")]
PrecisionName = Annotated[str, typer.Option(help="auto, float32, bfloat16 (CUDA) or int8 (CPU).")]


def open_model(
    folder: Path | None, device: str, engine: str = "auto", allow_pickle: bool = False, precision: str = "auto"
) -> "Loaded":
    """Load the model that was named."""
    from regard.use.load import load

    if folder is None:
        raise InputError("name a model: -m RUN, the folder that `regard train` printed, or one of Hugging Face")
    return load(folder, device, engine, allow_pickle, precision)


def named(file: Path | None) -> Path | None:
    """Give a file's path; None, which is standard input or output, also for `-`."""
    return None if file == Path("-") else file


def check_apart(output: Path | None, other: Path | None, what: str) -> None:
    """Refuse to write something else to where the answers go."""
    if other is None:
        return
    places = [None if path is None else path.resolve() for path in (named(output), named(other))]
    if places[0] == places[1]:
        where = named(other) or "standard output"
        raise InputError(f"{where}: would get the answers and the {what}; name another file for one of them")


# --- lines come -------------------------------------------------------------------------------------------------------


class Lines:
    """The lines to answer: texts of the command, a file, or standard input."""

    def __init__(self, texts: list[str] | None, file: Path | None) -> None:
        if texts and file is not None:
            raise InputError(f"there are texts and the file {file}; give one or the other")
        self.texts, self.file = texts, named(file)
        self.live = not texts and self.file is None  # somebody may wait for the answer before saying more
        self.waiting: deque[str] = deque()
        self.bar: Callable[[int], None] | None = None
        self.total = self._count()

    @property
    def typed(self) -> bool:
        """Whether a person types the lines."""
        return self.live and sys.stdin.isatty()

    def _count(self) -> int | None:
        """Count the lines of a file, whereby all of it is checked before anything is done; of a pipe, nobody can."""
        if self.file is None or self.file.is_fifo() or self.file.is_char_device():
            return None
        from regard.data.lines import EmptyError, read_blocks

        ends, last = 0, "\n"
        try:
            for _, text in read_blocks(self.file):
                ends += text.count("\n")
                last = text[-1]
        except EmptyError:
            return 0
        return ends + (last != "\n")

    def chunks(self) -> Iterator[list[str]]:
        """Give the lines in lists: of standard input what is there, of all else some thousand at a time."""
        for chunk in self._chunks():
            self.waiting.extend(chunk)
            yield chunk

    def _chunks(self) -> Iterator[list[str]]:
        from regard.use.batches import in_chunks

        if self.live:
            from regard.cli.stdin import read_available

            if self.typed:
                print("one line after the other; Ctrl-D ends", file=sys.stderr)
            return (part for chunk in read_available() for part in in_chunks(chunk))
        return in_chunks(self.texts or [] if self.file is None else _lines_of(self.file))

    def paired(self, answers: Iterator[Answer]) -> Iterator[tuple[str, Answer]]:
        """Give each answer with its line."""
        for answer in answers:
            yield self.waiting.popleft(), answer

    def done(self, count: int) -> None:
        """Move the bar, if there is one, by so many lines."""
        if self.bar is not None:
            self.bar(count)


def _lines_of(file: Path) -> Iterator[str]:
    """Read the lines of a file; unlike one to train on, it may have none."""
    from regard.data.lines import EmptyError, read_lines

    with suppress(EmptyError):
        yield from read_lines(file)


# --- answers go -------------------------------------------------------------------------------------------------------


TOO_LARGE = "there is not enough memory; less is needed with a smaller --batch-tokens, fewer beams, or a smaller model"


def _explained(error: BaseException | None) -> BaseException | None:
    """Say in one line that memory ran out; any other error is as it was."""
    if not isinstance(error, MemoryError | RuntimeError):
        return error
    from regard.data.device import out_of_memory

    return RegardError(TOO_LARGE) if out_of_memory(error) else error


class Sink:
    """Where answers go: standard output, or a file that gets its name when all is written.

    What was done before an interruption or a mistake is kept in FILE.part.
    """

    def __init__(self, path: Path | None, mode: str = "w") -> None:
        path = named(path)
        self.path, self.mode = path, mode
        self.part = path  # where it is written first; a pipe or /dev/null has no second name
        if path is not None and (path.is_file() or not path.exists()):
            self.part = path.with_name(f"{path.name}.part")
        self.file: Any = sys.stdout
        self.size = 0  # how often something was written

    def __enter__(self) -> "Sink":
        if self.part is None:
            if isinstance(sys.stdout, TextIOWrapper):
                sys.stdout.reconfigure(encoding="utf-8")  # as what is read
            return self
        try:
            self.file = self.part.open(self.mode, encoding=None if "b" in self.mode else "utf-8")
        except OSError as error:
            raise self._refusal(error) from None
        return self

    def write(self, text: Any, *, flush: bool = False) -> None:
        """Write something, as it is."""
        try:
            self.file.write(text)
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
            if self.part is not None:
                self.file.close()
        except BrokenPipeError:
            raise
        except OSError as trouble:
            raise self._refusal(trouble) from None
        explained = _explained(error)
        if self.part is not None and self.path is not None and self.part != self.path:
            self._name(self.part, self.path, explained)
        if explained is not None and explained is not error:
            raise explained from None

    def _name(self, part: Path, path: Path, error: BaseException | None) -> None:
        """Give what is complete its name; say where it is otherwise."""
        if error is None:
            part.replace(path)
        elif not self.size:
            part.unlink()
        elif isinstance(error, KeyboardInterrupt):
            print(f"regard: stopped; what was done is in {part}", file=sys.stderr)
        elif isinstance(error, RegardError):
            raise RegardError(f"{error} (what was done before is in {part})") from None

    def _refusal(self, error: OSError) -> RegardError:
        remedy = "make room, or choose another -o"
        return RegardError(f"{self.path or 'standard output'}: cannot be written: {error.strerror}; {remedy}")


def answer_all(
    lines: Lines, answers: Iterator[Answer], sink: Sink, show: Callable[[int, str, Answer], str | None]
) -> None:
    """Write what `show` makes of each line's number (from 0), text and answer; None writes nothing."""
    with _bar(lines, sink):
        for number, (line, answer) in enumerate(lines.paired(answers)):
            text = show(number, line, answer)
            if text is not None:
                sink.write(f"{text}\n", flush=lines.live)


@contextmanager
def _bar(lines: Lines, sink: Sink) -> Iterator[None]:
    """Show a bar on standard error if that is a terminal and a file is worked on whose answers go elsewhere."""
    if not lines.total or not sys.stderr.isatty() or (sink.path is None and sys.stdout.isatty()):
        yield
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn(lines.file.name if lines.file else ""),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("lines"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task("", total=lines.total)
        lines.bar = lambda count: progress.update(task, advance=count)
        yield


def as_object(line: str, **found: Any) -> str:
    """Write what was found for a line as one line of JSON."""
    return json.dumps({"text": line, **found}, ensure_ascii=False)


def one_line(text: str) -> str:
    r"""Write line breaks as `\n`, and a backslash as two."""
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")


def warn(reports: list[str]) -> None:
    """Say what was counted, on standard error."""
    for report in reports:
        print(f"regard: {report}", file=sys.stderr)
