"""`regard generate`: let a language model write on from prompts."""

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
    one_line,
    open_model,
    warn,
)

if TYPE_CHECKING:
    from regard.use.fit import Fit
    from regard.use.generate import Writing
    from regard.use.load import Loaded


OWN = "None: what its folder says, else"


def generate(
    texts: Texts = None,
    model: ModelFolder = None,
    file: InputFile = None,
    output: OutputFile = None,
    tokens: Annotated[
        int | None, typer.Option(min=1, help=f"Write at most so many. {OWN} 200.", show_default=False)
    ] = None,
    temperature: Annotated[
        float | None,
        typer.Option(help=f"0 takes the most likely token; higher is wilder. {OWN} 0.8.", show_default=False),
    ] = None,
    top_k: Annotated[
        int | None, typer.Option(min=1, help="Draw from the k most likely tokens only.", show_default=False)
    ] = None,
    top_p: Annotated[
        float | None,
        typer.Option(help="Draw from the fewest tokens that are this likely together: 0.9.", show_default=False),
    ] = None,
    min_p: Annotated[
        float | None,
        typer.Option(help="Leave out tokens less likely than this share of the likeliest: 0.1.", show_default=False),
    ] = None,
    repetition: Annotated[
        float | None,
        typer.Option(help="Above 1, what was written is less likely to come again.", show_default=False),
    ] = None,
    stop: Annotated[
        list[str] | None,
        typer.Option(help="End a text where this would begin; may be repeated.", show_default=False),
    ] = None,
    seed: Annotated[int, typer.Option(help="Another number, another text.")] = 0,
    tries: Annotated[int, typer.Option(min=1, help="Texts for each prompt.")] = 1,
    beam: Annotated[
        int | None,
        typer.Option(min=1, help="Search for the most likely text with so many beams.", show_default=False),
    ] = None,
    as_json: AsJson = False,
    batch_tokens: BatchTokens = None,
    device: DeviceName = "auto",
    engine: EngineName = "auto",
    precision: PrecisionName = "auto",
    allow_pickle: AllowPickle = False,
) -> None:
    """Write on from prompts: texts, the lines of a file, or standard input.

    One prompt, or one typed at a time, is shown as the text arrives. Many give one line each, prompt and text, where a
    line break is written as \\n; --json has them apart.
    """
    from regard.use.generate import continuations, fit_for, writing

    chosen = {
        "tokens": tokens,
        "temperature": temperature,
        "top_k": top_k,
        "top_p": top_p,
        "min_p": min_p,
        "repetition": repetition,
        "stop": tuple(stop or ()),
        "seed": seed,
        "tries": tries,
        "beam": beam,
        "batch_tokens": batch_tokens,
    }
    lines = Lines(texts, file)
    with Sink(output) as sink:
        loaded = open_model(model, device, engine, allow_pickle, precision)
        options = writing(loaded, chosen)
        fit = fit_for(loaded, options.tokens)
        if tries == 1 and not as_json and (len(texts or []) == 1 or lines.typed):
            _stream(loaded, lines, options, fit, sink)
        else:

            def show(number: int, line: str, found: list[str]) -> str:
                if as_json:
                    return as_object(line, continuations=found)
                return "\n".join(one_line(line + text) for text in found)

            blank = bool(texts)  # of a file or pipe, an empty line stays one
            found = continuations(loaded, lines.chunks(), options, fit, blank, lines.done)
            answer_all(lines, found, sink, show)
    warn(fit.report())


def _stream(loaded: "Loaded", lines: Lines, options: "Writing", fit: "Fit", sink: Sink) -> None:
    """Show each text as it arrives, after its prompt."""
    from regard.use.generate import stream

    for chunk in lines.chunks():
        for prompt in chunk:
            sink.write(prompt, flush=True)
            for piece in stream(loaded, prompt, options, fit):
                sink.write(piece, flush=True)
            sink.write("\n", flush=True)
