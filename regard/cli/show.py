"""`regard show RECIPE`: print a resolved architecture as a tree with shapes, parameters, FLOPs and memory.

`regard show --keys` describes the keys of recipes.
"""

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.architecture import Architecture, caution_of, describe, open_recipe, shipped_architecture
from regard.cli.complete import complete_recipe
from regard.cli.console import make_console
from regard.cli.keys import print_keys
from regard.config import to_toml
from regard.errors import ConfigError, choices
from regard.escape import escape_controls
from regard.quantity import short_count, short_size
from regard.recipe_files import recipe_names

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from regard.models.cost import Cost, Node


def show_command(
    recipe: Annotated[
        str | None,
        typer.Argument(
            metavar="RECIPE",
            help="A recipe's name (`regard recipes`), a model's (`regard models`) or its folder, or a .toml file.",
            autocompletion=complete_recipe,
        ),
    ] = None,
    overrides: Annotated[
        list[str] | None, typer.Argument(metavar="KEY=VALUE", help="Changes, such as model.depth=4.")
    ] = None,
    length: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Count FLOPs and cache for N tokens. Default: what the model allows."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")] = False,
    as_toml: Annotated[bool, typer.Option("--toml", help="Print the resolved recipe as TOML, to edit.")] = False,
    keys: Annotated[
        bool, typer.Option("--keys", help="Describe the keys of recipes instead: regard show --keys [PART].")
    ] = False,
) -> None:
    """Show an architecture: shapes, parameters, FLOPs and memory.

    Examples:
      regard show gpt2
      regard show gpt2 model.depth=4 --length 256
      regard show gpt2 --toml
      regard show --keys attention
    """
    if as_json and as_toml:
        raise ConfigError("--json and --toml each decide what is printed; give one of them")
    if keys:
        print_keys(recipe)
        return
    if recipe is None:
        raise ConfigError(f"name a recipe; {choices('', recipe_names())}")
    changes = overrides or []
    found = shipped_architecture(recipe) if not changes and length is None else None
    if as_toml:
        print(to_toml(open_recipe(recipe, changes) if found is None else found.recipe), end="")
        return
    caution = ""
    if found is None:
        opened = open_recipe(recipe, changes)
        found, caution = describe(opened, length), caution_of(recipe, opened)
    if as_json:
        print(json.dumps(asdict(found), indent=2))
        return
    console = make_console()
    render(console, recipe, found)
    if caution:
        from rich.text import Text

        console.print(Text(escape_controls(caution), "yellow"))


def render(console: "Console", name: str, found: Architecture) -> None:
    """Print the tree of an architecture and its cost."""
    from rich.text import Text

    about, paper = found.recipe.get("about"), found.recipe.get("paper")
    said = f"  {escape_controls(about)}" if about else ""
    console.print(Text.assemble((escape_controls(name), "bold cyan"), said), soft_wrap=True)
    if paper:
        console.print(Text(escape_controls(paper), style="dim"), soft_wrap=True)
    console.print()
    console.print(_tree(found.cost.tree, console.width))
    console.print(Text("the numbers of a repeated layer are for one layer", style="dim"))
    console.print()
    console.print(_summary(found.cost))
    console.print(_exports(found.written_for))


def _exports(written_for: "Mapping[str, str]") -> "Table":
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold", style="dim")
    for name, text in written_for.items():
        table.add_row(name, Text(escape_controls(text)))
    return table


def _tree(root: "Node", width: int) -> "Table":
    from rich.table import Table

    with_shapes = width >= 72  # a narrow terminal shows the numbers only
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("part", no_wrap=True, max_width=None if with_shapes else max(width - 22, 8))
    if with_shapes:
        table.add_column("shape", style="green", no_wrap=True)
    table.add_column("parameters", justify="right", style="yellow", no_wrap=True)
    table.add_column("FLOPs", justify="right", style="dim", no_wrap=True)
    for guide, node in _lines(root, "", ""):
        costs = (short_count(value) if value else "" for value in (node.parameters, node.flops))
        table.add_row(_label(guide, node), *([node.shape] if with_shapes else []), *costs)
    return table


def _lines(node: "Node", here: str, below: str) -> "Iterator[tuple[str, Node]]":
    """Walk the tree with the guide to draw before each node."""
    yield here, node
    for child in node.children:
        corner, line = ("└── ", "    ") if child is node.children[-1] else ("├── ", "│   ")
        yield from _lines(child, below + corner, below + line)


def _label(guide: str, node: "Node") -> "Text":
    from rich.text import Text

    times = f"{node.repeated} x " if node.repeated > 1 else ""
    return Text.assemble(
        (guide, "dim"), (f"{escape_controls(node.name)} " if node.name else "", "bold"), times, (node.kind, "cyan")
    )


def _summary(found: "Cost") -> "Table":
    from rich.table import Table

    weights, length = found.parameters, found.length
    table = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(justify="right", style="bold", no_wrap=True)
    table.add_column(style="dim")
    table.add_row("parameters", f"{weights:,}", f"{short_size(2 * weights)} in bf16, {short_size(4 * weights)} in fp32")
    table.add_row("training", short_size(16 * weights), "weights, gradients and AdamW's moments")
    table.add_row(
        "forward", f"{short_size(found.flops_per_token, 'FLOP')}", f"per token at {length} tokens; training 3 x that"
    )
    if found.uncounted:
        table.add_row("not counted", "", f"FLOPs of {', '.join(found.uncounted)}, which do not count themselves")
    if found.cache_bytes:
        table.add_row("decoding", short_size(found.cache_bytes), f"state of one row at {length} tokens, in bf16")
    return table
