"""`regard classify`: the labels of texts, or of image files."""

from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.text import (
    AllowPickle,
    AsJson,
    BatchTokens,
    DeviceName,
    InputFile,
    Lines,
    ModelFolder,
    OutputFile,
    PrecisionName,
    Sink,
    Texts,
    answer_all,
    as_object,
    open_model,
    warn,
)

if TYPE_CHECKING:
    from regard.use.guess import Guess


def classify(
    texts: Texts = None,
    model: ModelFolder = None,
    file: InputFile = None,
    output: OutputFile = None,
    top: Annotated[int, typer.Option(min=1, help="Give so many labels, the likeliest first.")] = 1,
    as_json: AsJson = False,
    batch_tokens: BatchTokens = None,
    device: DeviceName = "auto",
    precision: PrecisionName = "auto",
    allow_pickle: AllowPickle = False,
) -> None:
    """Classify texts, the lines of a file, or standard input: LABEL, tab, PROBABILITY.

    For a model of images the texts are paths of image files.
    """
    from regard.use.classify import classes_of
    from regard.use.read import fit_for

    lines = Lines(texts, file)
    with Sink(output) as sink:
        loaded = open_model(model, device, allow_pickle=allow_pickle, precision=precision)
        loaded.check("classify")
        fit = fit_for(loaded)

        def show(number: int, line: str, found: "list[Guess]") -> str:
            if as_json:
                return as_object(line, labels=as_table(found))
            return "\t".join(f"{guess.label}\t{guess.probability:.4f}" for guess in found)

        answer_all(lines, classes_of(loaded, lines.chunks(), top, fit, batch_tokens, lines.done), sink, show)
    warn([] if fit is None else fit.report())


def as_table(guesses: "list[Guess]") -> list[dict[str, object]]:
    """Give guesses for JSON."""
    return [{"label": guess.label, "probability": round(guess.probability, 6)} for guess in guesses]
