"""`regard translate`: translate texts, a file, or standard input line by line."""

from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.text import (
    AllowPickle,
    AsJson,
    BatchTokens,
    DeviceName,
    EngineName,
    InputFile,
    Lines,
    ModelFolder,
    OutputFile,
    PrecisionName,
    Sink,
    Texts,
    answer_all,
    as_object,
    check_apart,
    open_model,
    warn,
)

if TYPE_CHECKING:
    from regard.use.translate import Translation


def translate(
    texts: Texts = None,
    model: ModelFolder = None,
    file: InputFile = None,
    output: OutputFile = None,
    beam: Annotated[
        int | None,
        typer.Option(
            min=1, help="Beams of the search; 1 is greedy. None: 5, or as its folder says.", show_default=False
        ),
    ] = None,
    n_best: Annotated[
        int | None,
        typer.Option(min=1, help="Give so many translations: LINE ||| TEXT ||| SCORE.", show_default=False),
    ] = None,
    length_penalty: Annotated[float, typer.Option(help="0 prefers short translations, 1 long ones.")] = 0.6,
    coverage: Annotated[
        float, typer.Option(help="How much it counts against a translation to leave words unread; try 0.2.")
    ] = 0.0,
    prefix: Annotated[str, typer.Option(help="Make every translation begin with this.", show_default=False)] = "",
    longest_ratio: Annotated[
        float, typer.Option(help="At most so many times the tokens of the source, and ten more.")
    ] = 2.0,
    long: Annotated[str, typer.Option(help="A line too long for the model: cut it, or split it at sentences.")] = "cut",
    alignments: Annotated[
        Path | None,
        typer.Option(help="Write into this file which words belong together: 0-0 1-2 ...", show_default=False),
    ] = None,
    as_json: AsJson = False,
    batch_tokens: BatchTokens = None,
    device: DeviceName = "auto",
    engine: EngineName = "auto",
    precision: PrecisionName = "auto",
    allow_pickle: AllowPickle = False,
) -> None:
    """Translate texts, the lines of a file, or standard input."""
    from regard.use.align import pharaoh
    from regard.use.fit import as_long
    from regard.use.translate import fit_for, translating, translations

    chosen = {
        "beam": beam,
        "best": n_best,
        "length_penalty": length_penalty,
        "coverage": coverage,
        "prefix": prefix,
        "longest_ratio": longest_ratio,
        "long": as_long(long),
        "alignments": alignments is not None,
        "batch_tokens": batch_tokens,
    }
    check_apart(output, alignments, "alignments")
    lines = Lines(texts, file)
    with Sink(output) as sink, Sink(alignments) if alignments else nullcontext() as aligned:
        loaded = open_model(model, device, engine, allow_pickle, precision)
        options = translating(loaded, chosen)
        fit = fit_for(loaded, options.long)

        def show(number: int, line: str, found: "Translation") -> str:
            if aligned is not None:
                aligned.write(pharaoh(found.alignment or ()) + "\n")
            if as_json:
                return _object(line, found, n_best)
            if n_best is None:
                return _unbroken(found.text)
            return "\n".join(f"{number} ||| {_unbroken(one.text)} ||| {one.score:.4f}" for one in found.candidates)

        answer_all(lines, translations(loaded, lines.chunks(), options, fit, lines.done), sink, show)
    warn(fit.report("--long split keeps all of it"))


def _unbroken(text: str) -> str:
    """Keep a translation on its line, whatever the model wrote."""
    return text.replace("\n", " ").replace("\r", " ")


def _object(line: str, found: "Translation", n_best: int | None) -> str:
    candidates = [{"translation": one.text, "score": round(one.score, 6)} for one in found.candidates]
    more: dict[str, object] = {} if n_best is None else {"candidates": candidates}
    if found.alignment is not None:
        more["alignment"] = found.alignment
    return as_object(line, **candidates[0], **more)
