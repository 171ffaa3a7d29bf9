"""`regard recipes`: list the recipes that come with the package."""

import json
from typing import Annotated

import typer

from regard.cli.console import make_console


def recipes_command(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")] = False,
) -> None:
    """List the recipes that come with regard.

    Examples:
      regard recipes
      regard recipes --json
    """
    from rich.table import Table

    from regard.recipe_files import read_recipe, recipe_names

    rows = [(name, read_recipe(name)) for name in recipe_names()]
    if as_json:
        listing = [{"name": name, "about": table["about"], "paper": table["paper"]} for name, table in rows]
        print(json.dumps(listing, indent=2))
        return
    grid = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
    grid.add_column(style="bold cyan", no_wrap=True)
    grid.add_column()
    for name, table in rows:
        grid.add_row(name, table["about"])
    console = make_console()
    console.print(grid)
    console.print("\nregard show NAME describes one; regard show NAME --toml prints a copy to edit.")
