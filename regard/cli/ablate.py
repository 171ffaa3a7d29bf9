"""`regard ablate`: the loss of a model without each of its heads."""

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.console import complain, make_console, print_line
from regard.cli.text import AllowPickle, DeviceName, ModelFolder, SavedStep, open_model
from regard.errors import InputError
from regard.escape import escape_controls

if TYPE_CHECKING:
    from rich.console import Console

    from regard.use.ablate import Ablation

SHOWN = 30  # heads in the table
BAR = 24  # characters of the longest bar


def ablate_command(
    files: Annotated[
        list[str] | None,  # not Path, for which an empty name is the current folder
        typer.Argument(
            metavar="[RUN] FILE",
            help="The model (or -m), then files as in `regard evaluate`. Default: the validation data of the run.",
            show_default=False,
        ),
    ] = None,
    model: ModelFolder = None,
    step: SavedStep = None,
    table: Annotated[
        Path | None, typer.Option("--csv", metavar="FILE", help="Write a table of all heads.", show_default=False)
    ] = None,
    picture: Annotated[
        Path | None,
        typer.Option("--svg", metavar="FILE", help="Write a picture (.svg, .png or .pdf).", show_default=False),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")] = False,
    device: DeviceName = "auto",
    allow_pickle: AllowPickle = False,
) -> None:
    """Measure what each attention head is worth: the loss with the head switched off.

    Prints the heads whose removal raises the loss most. Ctrl-C ends it early, with what was measured until then.

    Examples:
      regard ablate
      regard ablate runs/language-1
      regard ablate runs/translation-1 test.de test.en --svg heads.svg --csv heads.csv
      regard ablate -m runs/language-1 other.txt --json
    """
    from regard.terminal import show_status
    from regard.use.ablate import HeadAblation
    from regard.use.box import find_model

    names = list(files or [])
    if model is None and names and find_model(names[0]).is_dir():
        model = Path(names.pop(0))
    _check_outputs(table, picture)
    loaded = open_model(model, device, "eager", allow_pickle, "float32", step, verb="ablate")
    console, interrupted = make_console(), False
    with show_status(console, "reading the data") as say:
        work = HeadAblation(loaded.bundle, names, say)
        began, total = time.monotonic(), work.total
        try:
            for number, one in enumerate(work.measure(), 1):
                left = (time.monotonic() - began) / number * (total - number)
                say(f"{number} of {total} measured, last: {one.name} {one.rise:+.4g}; {left:.0f} s left")
        except KeyboardInterrupt:
            interrupted = True
    found = work.result()
    if interrupted:
        complain(f"stopped after {total - found.missing} of {total} measurements")
    if found.heads:
        _write(found, table, picture)
    if as_json:
        print(json.dumps(found.as_table(), indent=2))
    else:
        _print(found, console)
    if interrupted:
        raise typer.Exit(130)


def _check_outputs(table: Path | None, picture: Path | None) -> None:
    """Reject files that cannot be written before anything is measured."""
    from regard.viewer.export import check_output_file

    if table is not None:
        check_output_file(table, ".csv")
    if picture is not None:
        suffix = picture.suffix.lower()
        if suffix not in (".svg", ".png", ".pdf"):
            raise InputError(f"{picture}: unknown picture format '{suffix}'; use .svg, .png or .pdf")
        check_output_file(picture, suffix)


def _write(found: "Ablation", table: Path | None, picture: Path | None) -> None:
    from regard.draw.file import write_bytes, write_figure

    if table is not None:
        write_bytes(table, found.as_csv().encode())
    if picture is not None:
        write_figure(found.figure(), picture)
    for path in (table, picture):
        if path is not None:
            complain(f"wrote {path}")


def _print(found: "Ablation", console: "Console") -> None:
    from rich.table import Table

    for line in found.read:
        console.print(escape_controls(line), style="dim", highlight=False, soft_wrap=True)
    for line in found.skipped:
        console.print(escape_controls(line), style="yellow")
    print_line(f"loss of the whole model: {found.loss:.4f}")
    most = max((abs(one.rise) for one in (*found.heads, *found.attentions)), default=0) or 1
    for rows in (found.heads[:SHOWN], found.attentions):
        if not rows:
            continue
        table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
        table.add_column("without", style="bold cyan", no_wrap=True)
        table.add_column("loss", justify="right", no_wrap=True)
        table.add_column("rise", justify="right", no_wrap=True)
        table.add_column("", no_wrap=True)
        for one in rows:
            bar = "█" * round(BAR * abs(one.rise) / most)
            table.add_row(one.name, f"{one.loss:.4f}", f"{one.rise:+.4f}", bar if one.rise >= 0 else f"-{bar}")
        console.print(table)
    if len(found.heads) > SHOWN:
        print_line(f"{len(found.heads) - SHOWN} more heads; --csv FILE or --json has all of them")
