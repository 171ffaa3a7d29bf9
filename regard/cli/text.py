"""What the verbs on text share: their options, the model that they open, and how they write the answers.

All have one form: `regard VERB [TEXT...] [-m RUN] [-f FILE] [-o FILE]`. Without texts and file, lines come from
standard input (`lines.py`).
"""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from regard.cli.complete import complete_model, offer
from regard.cli.console import complain
from regard.cli.lines import Lines
from regard.cli.sink import Sink
from regard.errors import InputError
from regard.escape import escape_controls

if TYPE_CHECKING:
    from regard.use.loaded_model import LoadedModel

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


@dataclass(frozen=True)
class TextArguments:
    """What a verb on text reads, with which model, and where it writes."""

    texts: Texts = None
    model: ModelFolder = None
    step: SavedStep = None
    file: InputFile = None
    column: TextColumn = None
    output: OutputFile = None

    def lines(self) -> Lines:
        """Return the lines to answer."""
        return Lines(self.texts, self.file, self.column)


@dataclass(frozen=True)
class AnswerOptions:
    """How a verb on text runs the model, and the form of its answers."""

    as_json: AsJson = False
    batch_tokens: BatchTokens = None
    device: DeviceName = "auto"
    precision: PrecisionName = "auto"

    def open(self, given: TextArguments, verb: str, engine: str = "auto", allow_pickle: bool = False) -> "LoadedModel":
        """Load the model that is given, or the one in the box."""
        return open_model(
            given.model, self.device, engine, allow_pickle, self.precision, given.step, verb=verb, texts=given.texts
        )


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
