"""`regard data`: list the known data sets; `regard data NAME` downloads one into a folder, ready to train on."""

import json
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.complete import complete_dataset
from regard.cli.console import make_console, print_line

if TYPE_CHECKING:
    from rich.table import Table

    from regard.data.known_datasets import KnownDataset

WIDE = 80  # columns from which the list is a table


def data_command(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME",
            help="The name of a data set. Default: list all of them.",
            autocompletion=complete_dataset,
        ),
    ] = None,
    source: Annotated[
        Path | None,
        typer.Option("--from", metavar="FOLDER", help="A folder that has the files already. Default: download them."),
    ] = None,
    to: Annotated[Path | None, typer.Option(metavar="FOLDER", help="The folder to write. Default: data/NAME.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")] = False,
) -> None:
    """List the known data sets, or download one.

    Examples:
      regard data
      regard data tinyshakespeare
      regard data multi30k --from downloads --to data/multi30k
    """
    from regard.data.known_datasets import DATASETS, find_dataset
    from regard.errors import InputError

    if name is None:
        if source is not None or to is not None:
            raise InputError("--from and --to need the NAME of a data set; `regard data` lists the names")
        _list(DATASETS, as_json)
        return
    known = find_dataset(name)
    folder = to or Path("data") / name
    paths = _fetch(name, folder, source)
    command = known.train.format(to=shlex.quote(str(folder)))
    if as_json:
        print(json.dumps({"name": name, "files": [str(path) for path in paths], "train": command}, indent=2))
        return
    print_line("\n".join(str(path) for path in paths))
    print_line(f"\nsource:  {known.source}\nlicence: {known.licence}\ntrain:   {command}")


def _fetch(name: str, folder: Path, source: Path | None) -> list[Path]:
    """Fetch the files, with a progress bar for each on standard error if that is a terminal."""
    from rich.progress import BarColumn, DownloadColumn, TransferSpeedColumn

    from regard.data.fetch import fetch
    from regard.terminal import progress_bars, text_column

    columns = text_column(), BarColumn(), DownloadColumn(), TransferSpeedColumn()
    with progress_bars(*columns, disable=not sys.stderr.isatty()) as progress:
        bars = {}

        def show(file: str, done: int, total: int | None) -> None:
            if file not in bars:
                bars[file] = progress.add_task(file)
            progress.update(bars[file], completed=done, total=total)

        return fetch(name, folder, source, show)


def _list(sets: "dict[str, KnownDataset]", as_json: bool) -> None:
    from rich.padding import Padding
    from rich.text import Text

    from regard.quantity import short_size

    if as_json:
        rows = [
            {
                "name": name,
                "about": known.about,
                "size": known.size,
                "licence": known.licence,
                "source": known.source,
                "download": known.url is not None,
            }
            for name, known in sets.items()
        ]
        print(json.dumps(rows, indent=2))
        return
    console = make_console()
    if console.width < WIDE:
        for name, known in sets.items():
            console.print(Text.assemble((name, "bold cyan"), "  ", (short_size(float(known.size)), "yellow")))
            console.print(Padding(Text(f"{known.about}\nlicence: {known.licence}"), (0, 0, 0, 2)))
    else:
        console.print(_grid(sets))
    absent = ", ".join(name for name, known in sets.items() if known.url is None)
    console.print("\nregard data NAME downloads one into data/NAME; --from FOLDER reads the files there instead.")
    console.print(f"{absent} cannot be downloaded, only read with --from.", style="dim")


def _grid(sets: "dict[str, KnownDataset]") -> "Table":
    """Return a table with one row for each data set."""
    from rich.table import Table

    from regard.quantity import short_size

    grid = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    grid.add_column("name", style="bold cyan", no_wrap=True)
    grid.add_column("about")
    grid.add_column("size", justify="right", style="yellow", no_wrap=True)
    grid.add_column("licence", style="dim")
    for name, known in sets.items():
        grid.add_row(name, known.about, short_size(float(known.size)), known.licence)
    return grid
