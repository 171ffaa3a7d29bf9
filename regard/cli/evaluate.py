"""`regard evaluate`: measure a trained model on any file."""

import json
from pathlib import Path
from typing import Annotated

import typer

from regard.cli.console import make_console


def evaluate(
    model: Annotated[Path, typer.Option("--model", "-m", help="The folder of a run.")],
    files: Annotated[
        list[Path] | None,
        typer.Argument(help="Source and target, texts, tables or images; none: the validation data of the run."),
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")] = False,
) -> None:
    """Measure a trained model on files, or on the validation data of its run."""
    from rich.table import Table

    from regard.tasks.metric import translation_signatures
    from regard.train.ranks import choose_device
    from regard.train.run import open_run

    run = open_run(model)
    chosen = choose_device(device)
    console = make_console()
    task = run.task(*(files or []), device=chosen)
    with console.status("measuring"):
        values = task.measure(run.model(chosen))
    signatures = translation_signatures() if task.name == "translation" else {}
    if as_json:
        found = {"metrics": values, "signatures": signatures, "data": task.facts(), "skipped": task.skipped.report()}
        print(json.dumps(found, indent=2))
        return
    for line in task.skipped.report():
        console.print(line, style="yellow")
    table = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
    table.add_column(style="bold cyan", no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(style="dim", overflow="fold")  # signatures have no blanks to wrap at
    for name, value in values.items():
        table.add_row(name, f"{value:.4g}", signatures.get(name, ""))
    console.print(table)
