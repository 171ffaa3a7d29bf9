"""`regard results`: what the recipes with goals reach, and what is published."""

import json
from dataclasses import asdict
from typing import Annotated

import typer

from regard.cli.complete import complete_result
from regard.cli.console import make_console

WIDE = 110  # columns of a terminal in which goals, times and hardware have room, too


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
    from rich.table import Table
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
    more = ("goal", "", "published", "time (at once)", "hardware") if is_wide else ("published",)
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    table.add_column("name", style="bold cyan", no_wrap=is_wide, overflow="fold")
    for title in ("metric", "score", *more):
        table.add_column(title, no_wrap=title in ("goal", "published"), overflow="fold")  # others may need more lines
    last = ""
    for row in rows:
        shown = row.name if row.name != last else ""
        distance = Text(row.distance, "green" if row.reached else "red")
        rest = (row.goal, distance, row.published, row.time, row.hardware) if is_wide else (row.published,)
        table.add_row(shown, row.metric, row.score, *rest)
        last = row.name
    console.print(table)
    console.print("\nregard train results/NAME trains one of them; docs/results.md has the details.", style="dim")
