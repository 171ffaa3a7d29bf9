"""`regard evaluate`: measure a trained model on files."""

import json
from dataclasses import asdict
from math import isfinite
from typing import Annotated

import typer

from regard.cli.console import make_console
from regard.cli.text import (
    AllowPickle,
    BatchTokens,
    DeviceName,
    EngineName,
    ModelFolder,
    PrecisionName,
    SavedStep,
    open_model,
)
from regard.escape import escape_controls


def evaluate_command(
    files: Annotated[
        list[str] | None,  # not Path, for which an empty name is the current folder
        typer.Argument(
            metavar="FILE",
            help="Source and target, texts, tables or images; then columns, such as task.text=body, if they differ "
            "from those of training. Default: the validation data of the run, or what comes with the model.",
            show_default=False,
        ),
    ] = None,
    model: ModelFolder = None,
    step: SavedStep = None,
    beam: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Beams of the search of a translator or parser; 1 is greedy. Default: what the model's folder says, "
            "or 5.",
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
    """Measure a model on files or on its validation data.

    Prints the metrics of the task. A translator is measured by what `regard translate` writes.

    Examples:
      regard evaluate
      regard evaluate -m runs/translation-1
      regard evaluate test.de test.en -m runs/translation-1 --beam 5
      regard evaluate other.txt -m runs/language-1 --json
      regard evaluate reviews.csv task.text=body -m runs/classification-1
    """
    from rich.table import Table

    from regard.terminal import show_status

    loaded = open_model(model, device, engine, allow_pickle, precision, step, verb="evaluate")
    console = make_console()
    with show_status(console, "reading the data") as say:
        found = loaded.evaluate(*(files or []), beam=beam, batch_tokens=batch_tokens, say=say)
    if as_json:
        printed = {name: value for name, value in asdict(found).items() if name != "translations"}
        printed["metrics"] = {name: value if isfinite(value) else None for name, value in found.items()}
        print(json.dumps(printed, indent=2))
        return
    for line in found.read:
        console.print(escape_controls(line), style="dim", highlight=False, soft_wrap=True)
    for line in (*found.skipped, *(f"caution: {caution}" for caution in found.cautions)):
        console.print(escape_controls(line), style="yellow")
    table = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
    table.add_column(style="bold cyan", no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(style="dim", overflow="fold")  # signatures have no blanks to wrap at
    for name, value in found.metrics.items():
        signature = found.signatures.get(name, "")
        note = f"{found.method}  {signature}" if signature else ""
        table.add_row(name, f"{value:.4g}", note)
    console.print(table)
