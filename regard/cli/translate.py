"""`regard translate`: translate texts, a file, or standard input line by line."""

from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.option_groups import expand_groups
from regard.cli.sink import Sink, check_apart
from regard.cli.text import AllowPickle, AnswerOptions, EngineName, TextArguments, answer_all, as_object

if TYPE_CHECKING:
    from regard.use.translate import TranslatedLine


@expand_groups
def translate_command(
    *,
    given: TextArguments,
    beam: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Beams of the search; 1 is greedy. Default: 5, or the setting in the model's folder.",
            show_default=False,
        ),
    ] = None,
    n_best: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Print the N best translations: LINE ||| TEXT ||| SCORE. Default: the best, TEXT alone.",
            show_default=False,
        ),
    ] = None,
    length_penalty: Annotated[
        float, typer.Option(metavar="X", help="0 prefers short translations, 1 long ones.")
    ] = 0.6,
    coverage: Annotated[
        float, typer.Option(metavar="X", help="Penalty for source words that are not attended to; try 0.2.")
    ] = 0.0,
    prefix: Annotated[
        str, typer.Option(metavar="TEXT", help="Start every translation with this text.", show_default=False)
    ] = "",
    longest_ratio: Annotated[
        float, typer.Option(metavar="X", help="Longest translation: X times the tokens of the source, plus 10.")
    ] = 2.0,
    long: Annotated[
        str, typer.Option(metavar="WAY", help="Cut or split lines that are too long for the model.")
    ] = "cut",
    alignments: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write word alignments to this file: 0-0 1-2 ...", show_default=False),
    ] = None,
    running: AnswerOptions,
    engine: EngineName = "auto",
    allow_pickle: AllowPickle = False,
) -> None:
    """Translate texts, the lines of a file, or standard input.

    Examples:
      regard translate "I arrived at the bank after crossing the river."
      regard translate "gestern hat sie drei Hunde gesehen" -m runs/translation-1
      regard translate -m runs/translation-1 -f input.de -o output.en
      regard translate -m runs/translation-1 -f input.de --n-best 3 --beam 10
      cat input.de | regard translate -m runs/translation-1
    """
    from regard.use.align import pharaoh
    from regard.use.fit import as_long
    from regard.use.translate import translate_options

    chosen = {
        "beam": beam,
        "n_best": n_best,
        "length_penalty": length_penalty,
        "coverage": coverage,
        "prefix": prefix,
        "longest_ratio": longest_ratio,
        "long": as_long(long),
        "alignments": alignments is not None,
        "batch_tokens": running.batch_tokens,
    }
    check_apart(given.output, alignments, "alignments")
    lines = given.lines()
    with (
        Sink(given.output) as sink,
        Sink(alignments, option="--alignments") if alignments else nullcontext() as aligned,
    ):
        loaded = running.open(given, "translate", engine, allow_pickle)

        def show(number: int, line: str, found: "TranslatedLine") -> str:
            if aligned is not None:
                aligned.write(pharaoh(found.alignment or ()) + "\n")
            if running.as_json:
                return _object(line, found, n_best)
            if n_best is None:
                return _on_one_line(found.text)
            return "\n".join(f"{number} ||| {_on_one_line(one.text)} ||| {one.score:.4f}" for one in found.candidates)

        options = translate_options(loaded.bundle, chosen)
        answer_all(lines, loaded.translate_lines(lines.chunks(loaded), options, lines.feedback()), sink, show)


def _on_one_line(text: str) -> str:
    """Replace line breaks that the model wrote by blanks."""
    return text.replace("\n", " ").replace("\r", " ")


def _object(line: str, found: "TranslatedLine", n_best: int | None) -> str:
    candidates = [{"translation": one.text, "score": round(one.score, 6)} for one in found.candidates]
    more: dict[str, object] = {} if n_best is None else {"candidates": candidates}
    if found.alignment is not None:
        more["alignment"] = found.alignment
    return as_object(line, **candidates[0], **more)
