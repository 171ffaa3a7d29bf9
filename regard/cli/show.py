"""`regard show RECIPE`: the resolved architecture as a tree with shapes, parameters, FLOPs and memory."""

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.text import Text
    from rich.tree import Tree

    from regard.models.count import Cost, Node
    from regard.models.recipe import Recipe


def show(
    recipe: Annotated[str, typer.Argument(help="A recipe's name (see `regard recipes`) or the path of a .toml file.")],
    overrides: Annotated[
        list[str] | None, typer.Argument(metavar="KEY=VALUE...", help="Changes, such as model.depth=4.")
    ] = None,
    length: Annotated[
        int | None,
        typer.Option(min=1, help="Tokens to count FLOPs and cache for; default: what the model allows."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")] = False,
    as_toml: Annotated[bool, typer.Option("--toml", help="Print the resolved recipe as TOML, to edit.")] = False,
) -> None:
    """Show an architecture: shapes, parameters, FLOPs and memory."""
    from regard.config import to_table, to_toml
    from regard.models.count import cost
    from regard.models.recipe import build_empty, load_recipe

    resolved = load_recipe(recipe, *(overrides or []))
    if as_toml:
        print(to_toml(resolved), end="")
        return
    found = cost(build_empty(resolved.model), length)
    if as_json:
        print(json.dumps({"recipe": to_table(resolved), "cost": asdict(found)}, indent=2))
        return
    _print(recipe, resolved, found)


def _print(name: str, recipe: "Recipe", found: "Cost") -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console()
    console.print(Text.assemble((name, "bold cyan"), f"  {recipe.about}"))
    console.print(Text(recipe.paper, style="dim"))
    console.print()
    console.print(_tree(found.tree))
    console.print()
    weights = found.parameters
    grid = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
    grid.add_column()
    grid.add_column(justify="right", style="bold")
    grid.add_column(style="dim")
    grid.add_row("parameters", f"{weights:,}", f"{size(2 * weights)} in bf16, {size(4 * weights)} in fp32")
    grid.add_row("training", size(16 * weights), "fp32 weights, gradients and AdamW's two moments, before activations")
    per_token = f"{number(found.flops_per_token)}FLOP"
    grid.add_row("forward", per_token, f"a token, at {found.length} tokens; training costs three times that")
    if found.cache_bytes:
        grid.add_row("state", size(found.cache_bytes), f"a row while decoding, at {found.length} tokens, in bf16")
    console.print(grid)


def _tree(node: "Node") -> "Tree":
    from rich.tree import Tree

    tree = Tree(_label(node), guide_style="dim")
    _grow(tree, node)
    return tree


def _grow(tree: "Tree", node: "Node") -> None:
    for child in node.children:
        _grow(tree.add(_label(child)), child)


def _label(node: "Node") -> "Text":
    from rich.text import Text

    times = f"{node.repeated} x " if node.repeated > 1 else ""
    costs = f"  {number(node.parameters * node.repeated)}" if node.parameters else ""
    flops = f"  {number(node.flops * node.repeated)}FLOP" if node.flops else ""
    return Text.assemble(
        (f"{node.name} " if node.name else "", "bold"),
        times,
        (node.kind, "cyan"),
        (f"  {node.shape}" if node.shape else "", "green"),
        (costs, "yellow"),
        (flops, "dim"),
    )


def number(value: float) -> str:
    """Shorten a count: 124.4M."""
    for unit in ("", "k", "M", "G", "T"):
        if value < 1000:
            return f"{value:.3g}{unit}" if unit else f"{value:.0f}"
        value /= 1000
    return f"{value:.3g}P"


def size(value: float) -> str:
    """Shorten a number of bytes: 248 MB."""
    return f"{number(value)}B" if value < 1000 else f"{number(value)[:-1]} {number(value)[-1]}B"
