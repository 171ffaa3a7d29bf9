"""`regard results`: what the recipes with goals reach, and what is published."""

import json
from dataclasses import asdict, dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.complete import complete_result
from regard.cli.console import make_console

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

    from regard.runs.results_table import ResultRow


@dataclass(frozen=True)
class Column:
    """A column of the table, and how wide a terminal must be to have room for it."""

    field: str
    heading: str
    width: int | None = None
    ratio: int | None = None  # its share of what other columns leave
    from_width: int = 0


LEAST = 11  # characters of a metric: its words are in one piece
COLUMNS = [
    Column("metric", "metric", LEAST),
    Column("score", "score", ratio=4),
    Column("goal", "goal", 8),
    Column("distance", "", ratio=3, from_width=60),
    Column("published", "published", 9),
    Column("time", "time (at once)", 14, from_width=110),
    Column("hardware", "hardware", 13, from_width=110),
]


def results_command(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="NAME", help="Names of results. Default: all.", show_default=False, autocompletion=complete_result
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, with every measurement.")] = False,
) -> None:
    """Show the scores of the recipes that come with regard, beside their goals and published scores.

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
    columns = [column for column in COLUMNS if console.width >= column.from_width]
    columns[0] = replace(columns[0], width=max(LEAST, console.width // 5))
    console.print(_table([[column.heading for column in columns]], columns), style="dim")
    for name, group in groupby(rows, key=lambda row: row.name):  # a name has a line of its own, so that goals have room
        console.print(Text(name, "bold cyan"))
        console.print(_table([[_cell(row, column) for column in columns] for row in group], columns))
    console.print("\nregard train results/NAME trains one of them; docs/results.md has the details.", style="dim")


def _cell(row: "ResultRow", column: Column) -> "Text | str":
    from rich.text import Text

    text: str = getattr(row, column.field)
    return Text(text, "green" if row.reached else "red") if column.field == "distance" else text


def _table(lines: "list[list[Text | str]] | list[list[str]]", columns: list[Column]) -> "Table":
    """Build a table whose columns have the same widths whatever is in them."""
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, show_header=False, expand=True)
    for column in columns:
        table.add_column(ratio=column.ratio, width=column.width, overflow="fold")
    for line in lines:
        table.add_row(*line)
    return table
