"""`regard evaluate`: measure a trained model on any file."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from regard.cli.console import make_console
from regard.cli.text import AllowPickle, BatchTokens, DeviceName, EngineName, ModelFolder, PrecisionName, open_model


def evaluate(
    files: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="FILE",
            help="Source and target, texts, tables or images; none: the validation data of the run.",
            show_default=False,
        ),
    ] = None,
    model: ModelFolder = None,
    beam: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Beams of the search, for translators; 1 is greedy. None: 5, or as its folder says.",
            show_default=False,
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")] = False,
    batch_tokens: BatchTokens = None,
    device: DeviceName = "auto",
    engine: EngineName = "auto",
    precision: PrecisionName = "auto",
    allow_pickle: AllowPickle = False,
) -> None:
    """Measure a trained model on files, or on the validation data of its run."""
    from rich.table import Table

    from regard.use.evaluate import evaluate_model
    from regard.use.translate import translating

    loaded = open_model(model, device, engine, allow_pickle, precision)
    console = make_console()
    options = translating(loaded, {"beam": beam, "batch_tokens": batch_tokens})
    with console.status("reading the data") as status:
        found = evaluate_model(loaded, [str(file) for file in files or []], options, lambda text: status.update(text))
    if as_json:
        print(json.dumps(asdict(found), indent=2))
        return
    for line in found.skipped:
        console.print(line, style="yellow")
    table = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
    table.add_column(style="bold cyan", no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(style="dim", overflow="fold")  # signatures have no blanks to wrap at
    for name, value in found.metrics.items():
        table.add_row(name, f"{value:.4g}", found.signatures.get(name, ""))
    console.print(table)
