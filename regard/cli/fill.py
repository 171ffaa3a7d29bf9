"""`regard fill`: print the most likely tokens for each [MASK] of texts."""

from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.classify import guesses_as_json
from regard.cli.option_groups import expand_groups
from regard.cli.sink import Sink
from regard.cli.text import AllowPickle, AnswerOptions, TextArguments, answer_all, as_object
from regard.escape import one_line

if TYPE_CHECKING:
    from regard.use.guess import Guess


@expand_groups
def fill_command(
    *,
    given: TextArguments,
    top: Annotated[int, typer.Option(metavar="N", help="Number of tokens per mask, the most likely first.")] = 5,
    running: AnswerOptions,
    allow_pickle: AllowPickle = False,
) -> None:
    """Fill in the masked words of texts.

    Prints TOKEN PROBABILITY for the most likely tokens, separated by tabs. The tokens for several masks of a line
    are separated by a vertical bar.

    Examples:
      regard fill "She drank a cup of [MASK]."
      regard fill "the [MASK] sleeps" -m runs/masked-1
      regard fill -m runs/masked-1 -f lines.txt --top 1
    """
    lines = given.lines()
    with Sink(given.output) as sink:
        loaded = running.open(given, "fill", allow_pickle=allow_pickle)

        def show(number: int, line: str, found: "list[list[Guess]]") -> str:
            if running.as_json:
                return as_object(line, masks=[guesses_as_json(guesses) for guesses in found])
            return "\t|\t".join("\t".join(map(_column, guesses)) for guesses in found)

        answers = loaded.fill_lines(lines.chunks(loaded), top, lines.feedback(), running.batch_tokens)
        answer_all(lines, answers, sink, show)


def _column(guess: "Guess") -> str:
    """Return a guess as one column."""
    return f"{one_line(guess.label)} {guess.probability:.4f}"
