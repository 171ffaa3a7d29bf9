"""`regard classify`: print the labels of texts, or of image files."""

from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.option_groups import expand_groups
from regard.cli.sink import Sink
from regard.cli.text import AllowPickle, AnswerOptions, TextArguments, answer_all, as_object
from regard.escape import one_line

if TYPE_CHECKING:
    from regard.use.guess import Guess


@expand_groups
def classify_command(
    *,
    given: TextArguments,
    top: Annotated[int, typer.Option(metavar="N", help="Number of labels, the most likely first.")] = 1,
    running: AnswerOptions,
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
    lines = given.lines()
    with Sink(given.output) as sink:
        loaded = running.open(given, "classify", allow_pickle=allow_pickle)

        def show(number: int, line: str, found: "list[Guess]") -> str:
            if running.as_json:
                return as_object(line, labels=guesses_as_json(found))
            return "\t".join(f"{one_line(guess.label)}\t{guess.probability:.4f}" for guess in found)

        answers = loaded.classify_lines(lines.chunks(loaded), top, lines.feedback(), running.batch_tokens)
        answer_all(lines, answers, sink, show)


def guesses_as_json(guesses: "list[Guess]") -> list[dict[str, object]]:
    """Return guesses as JSON values."""
    return [{"label": guess.label, "probability": round(guess.probability, 6)} for guess in guesses]
