"""`regard results`: what the recipes with goals reach, and what is published."""

import json
from dataclasses import asdict
from itertools import groupby
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.complete import complete_result
from regard.cli.console import make_console

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

    from regard.runs.results_table import ResultRow

WIDE = 110  # columns of a terminal in which times and hardware have room, too


def results_command(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="NAME", help="Names of results. Default: all.", show_default=False, autocompletion=complete_result
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, with every measurement.")] = False,
) -> None:
    """Show the scores that recipes of regard reach, beside their goals and what is published.

    A score is the mean over several seeds and their standard deviation. `regard train results/NAME` repeats a run.

    Examples:
      regard results
      regard results multi30k-en-de --json
    """
    from rich.text import Text

    from regard.recipe_files import result_names
    from regard.runs.results import read_result_recipe
    from regard.runs.results_table import result_rows

    results = [read_result_recipe(name) for name in names or result_names()]
    rows = list(result_rows(results))
    if as_json:
        runs = {result.name: result.runs for result in results}
        print(json.dumps({"rows": [asdict(row) for row in rows], "runs": runs}, indent=2))
        return
    console = make_console()
    is_wide = console.width >= WIDE
    console.print(_table([_heading(is_wide)], is_wide), style="dim")
    for name, group in groupby(rows, key=lambda row: row.name):  # a name has a line of its own, so that goals have room
        console.print(Text(name, "bold cyan"))
        console.print(_table([_cells(row, is_wide) for row in group], is_wide))
    console.print("\nregard train results/NAME trains one of them; docs/results.md has the details.", style="dim")


def _heading(is_wide: bool) -> list["Text | str"]:
    return ["metric", "score", "goal", "", "published", *(["time (at once)", "hardware"] if is_wide else [])]


def _cells(row: "ResultRow", is_wide: bool) -> list["Text | str"]:
    from rich.text import Text

    distance = Text(row.distance, "green" if row.reached else "red")
    return [row.metric, row.score, row.goal, distance, row.published, *([row.time, row.hardware] if is_wide else [])]


def _table(lines: list[list["Text | str"]], is_wide: bool) -> "Table":
    """Build a table whose columns have the same widths whatever is in them."""
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, show_header=False, expand=True)
    times = (14, 13) if is_wide else ()
    for ratio, width in (3, None), (4, None), (None, 8), (3, None), (None, 9), *((None, each) for each in times):
        table.add_column(ratio=ratio, width=width, overflow="fold")
    for line in lines:
        table.add_row(*line)
    return table
