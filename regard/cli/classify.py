"""`regard classify`: print the labels of texts, or of image files."""

from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.lines import Lines
from regard.cli.sink import Sink
from regard.cli.text import (
    AllowPickle,
    AsJson,
    BatchTokens,
    DeviceName,
    InputFile,
    ModelFolder,
    OutputFile,
    PrecisionName,
    SavedStep,
    TextColumn,
    Texts,
    answer_all,
    as_object,
    open_model,
)
from regard.escape import one_line

if TYPE_CHECKING:
    from regard.use.guess import Guess


def classify_command(
    texts: Texts = None,
    model: ModelFolder = None,
    step: SavedStep = None,
    file: InputFile = None,
    column: TextColumn = None,
    output: OutputFile = None,
    top: Annotated[int, typer.Option(metavar="N", help="Number of labels, the most likely first.")] = 1,
    as_json: AsJson = False,
    batch_tokens: BatchTokens = None,
    device: DeviceName = "auto",
    precision: PrecisionName = "auto",
    allow_pickle: AllowPickle = False,
) -> None:
    """Classify texts or images.

    Prints LABEL, tab, PROBABILITY. For a vision model the texts are paths of image files.

    Examples:
      regard classify "My mother baked a cake."
      regard classify "what a film" -m runs/classification-1
      regard classify -m runs/classification-1 -f reviews.txt --top 2 --json
      regard classify photo.png -m runs/vision-1
    """
    lines = Lines(texts, file, column)
    with Sink(output) as sink:
        loaded = open_model(
            model, device, allow_pickle=allow_pickle, precision=precision, step=step, verb="classify", texts=texts
        )

        def show(number: int, line: str, found: "list[Guess]") -> str:
            if as_json:
                return as_object(line, labels=guesses_as_json(found))
            return "\t".join(f"{one_line(guess.label)}\t{guess.probability:.4f}" for guess in found)

        answers = loaded.classify_lines(lines.chunks(loaded), top, lines.feedback(), batch_tokens)
        answer_all(lines, answers, sink, show)


def guesses_as_json(guesses: "list[Guess]") -> list[dict[str, object]]:
    """Return guesses as JSON values."""
    return [{"label": guess.label, "probability": round(guess.probability, 6)} for guess in guesses]
