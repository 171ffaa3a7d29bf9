"""`regard fill`: the likeliest words for the [MASK]s of texts."""

from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.classify import as_table
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
    one_line,
    open_model,
    warn,
)

if TYPE_CHECKING:
    from regard.use.guess import Guess


def fill(
    texts: Texts = None,
    model: ModelFolder = None,
    file: InputFile = None,
    output: OutputFile = None,
    top: Annotated[int, typer.Option(min=1, help="Give so many tokens for each mask, the likeliest first.")] = 5,
    as_json: AsJson = False,
    batch_tokens: BatchTokens = None,
    device: DeviceName = "auto",
    precision: PrecisionName = "auto",
    allow_pickle: AllowPickle = False,
) -> None:
    """Guess each [MASK] in texts, the lines of a file, or standard input: TOKEN PROBABILITY, tab, TOKEN PROBABILITY.

    The guesses for several masks of a line are set apart by a bar.
    """
    from regard.use.fill import Masked, fillings

    lines = Lines(texts, file)
    with Sink(output) as sink:
        loaded = open_model(model, device, allow_pickle=allow_pickle, precision=precision)
        fit = Masked(loaded)

        def show(number: int, line: str, found: "list[list[Guess]]") -> str:
            if as_json:
                return as_object(line, masks=[as_table(guesses) for guesses in found])
            return "\t|\t".join("\t".join(map(_shown, guesses)) for guesses in found)

        answer_all(lines, fillings(loaded, lines.chunks(), top, fit, batch_tokens, lines.done), sink, show)
    warn(fit.report())


def _shown(guess: "Guess") -> str:
    """Write a guess into its column, also where the token is a line break or a tab."""
    return f"{one_line(guess.label)} {guess.probability:.4f}".replace("\t", "\\t")
