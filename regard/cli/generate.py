"""`regard generate`: continue prompts with a language model."""

import secrets
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.console import complain
from regard.cli.lines import Lines
from regard.cli.option_groups import expand_groups
from regard.cli.sink import Sink
from regard.cli.text import AllowPickle, AnswerOptions, EngineName, TextArguments, answer_all, as_object
from regard.escape import one_line

if TYPE_CHECKING:
    from regard.use.generate import GenerateOptions
    from regard.use.loaded_model import LoadedModel

SEEDS = 10**6
FOLDER_SETTING = "or the setting in the model's folder"


@expand_groups
def generate_command(
    *,
    given: TextArguments,
    tokens: Annotated[
        int | None,
        typer.Option(
            metavar="N", help=f"Generate at most N tokens. Default: 200, {FOLDER_SETTING}.", show_default=False
        ),
    ] = None,
    temperature: Annotated[
        float | None,
        typer.Option(
            metavar="X",
            help=f"0 takes the most likely token; higher values vary more. Default: 0.8, {FOLDER_SETTING}.",
            show_default=False,
        ),
    ] = None,
    top_k: Annotated[
        int | None,
        typer.Option(
            metavar="N", help="Sample from the N most likely tokens only. Default: from all.", show_default=False
        ),
    ] = None,
    top_p: Annotated[
        float | None,
        typer.Option(
            metavar="X",
            help="Sample from the fewest tokens whose probabilities add up to X; try 0.9. Default: from all.",
            show_default=False,
        ),
    ] = None,
    min_p: Annotated[
        float | None,
        typer.Option(
            metavar="X",
            help="Leave out tokens less likely than X times the most likely one; try 0.1. Default: 0.",
            show_default=False,
        ),
    ] = None,
    repetition: Annotated[
        float | None,
        typer.Option(
            metavar="X", help="Above 1, tokens that occurred before become less likely. Default: 1.", show_default=False
        ),
    ] = None,
    stop: Annotated[
        list[str] | None,
        typer.Option(metavar="TEXT", help="End a text before this string; may be repeated.", show_default=False),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Random seed; the same seed gives the same text. Default: a new one each time, which is printed.",
            show_default=False,
        ),
    ] = None,
    tries: Annotated[int, typer.Option(metavar="N", help="Texts per prompt.")] = 1,
    beam: Annotated[
        int | None,
        typer.Option(
            metavar="N", help="Beam search for the most likely text, instead of sampling.", show_default=False
        ),
    ] = None,
    running: AnswerOptions,
    engine: EngineName = "auto",
    allow_pickle: AllowPickle = False,
) -> None:
    """Continue prompts with a language model.

    Prompts are texts, the lines of a file, or standard input. A single prompt is shown with its text as it arrives.
    Several prompts give one line each, prompt and text, where a line break is written as \\n; with --json they are
    separate.

    Examples:
      regard generate "ROMEO:"
      regard generate "Once upon a time" -m runs/language-1
      regard generate "Once upon a time" -m runs/language-1 --tokens 50 --tries 3
      regard generate "Once upon a time" -m runs/language-1 --seed 1
      regard generate -m runs/language-1 -f prompts.txt --json -o texts.jsonl
    """
    from regard.use.generate import generate_options

    chosen = {
        "tokens": tokens,
        "temperature": temperature,
        "top_k": top_k,
        "top_p": top_p,
        "min_p": min_p,
        "repetition": repetition,
        "stop": tuple(stop or ()),
        "seed": secrets.randbelow(SEEDS) if seed is None else seed,
        "tries": tries,
        "beam": beam,
        "batch_tokens": running.batch_tokens,
    }
    lines = given.lines()
    with Sink(given.output) as sink:
        loaded = running.open(given, "generate", engine, allow_pickle)
        options = generate_options(loaded.bundle, chosen)
        if tries == 1 and not running.as_json and (len(given.texts or []) == 1 or lines.typed):
            _stream(loaded, lines, options, sink)
        else:
            _answer(loaded, lines, options, sink, running.as_json)
    if seed is not None and not options.samples:
        complain(f"--seed {seed} changes nothing: the most likely text is searched for, and nothing is sampled")
    elif seed is None and options.samples:
        complain(f"another text each time; --seed {options.seed} repeats this one")


def _answer(loaded: "LoadedModel", lines: Lines, options: "GenerateOptions", sink: Sink, as_json: bool) -> None:
    """Write the texts of each prompt when they are complete."""

    def show(number: int, line: str, found: list[str]) -> str:
        if as_json:
            return as_object(line, continuations=found)
        return "\n".join(one_line(line + text) for text in found)

    # a blank line of a file or pipe stays blank; an empty text on the command line starts a new text
    answers = loaded.generate_lines(lines.chunks(loaded), options, lines.feedback(), blank=bool(lines.texts))
    answer_all(lines, answers, sink, show)


def _stream(loaded: "LoadedModel", lines: Lines, options: "GenerateOptions", sink: Sink) -> None:
    """Write each prompt and its text as it arrives."""
    loaded.bundle.check("generate")  # this and the next line before the prompt is written
    loaded.bundle.need_tokenizer()
    for chunk in lines.chunks(loaded).lists:
        for prompt in chunk:
            sink.write(prompt, flush=True)
            for piece in loaded.stream_line(prompt, options, lines.feedback()):
                sink.write(piece, flush=True)
            sink.write("\n", flush=True)
