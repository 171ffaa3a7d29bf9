"""`regard models`: the trained models that come with the package."""

import json
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.complete import complete_box
from regard.cli.console import make_console, print_line
from regard.config import to_table

if TYPE_CHECKING:
    from regard.use.box import CardScore

SHARES = ("accuracy", "q3")  # metrics from 0 to 1, which are printed in percent
NAMES = {"bleu": "BLEU", "bracket_f1": "F1", "q3": "Q3"}
MEDIUM = 60  # characters of a terminal in which the list has room for verbs
WIDE = 80  # characters of a terminal in which the list has room to say what each model is


def models_command(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME", help="Print the card of this model.", show_default=False, autocompletion=complete_box
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")] = False,
) -> None:
    """List the trained models that come with regard, with their size and score, or print the card of one.

    Without -m RUN, a verb uses the model that is listed for it. With -m NAME it uses the model of that name.

    Examples:
      regard models
      regard models en-fr
      regard translate "Good morning." -m en-fr-rnn
    """
    from regard.use.box import README, TEXT_DEFAULTS, box_model, box_models

    found = box_models() if name is None else [box_model(name)]
    if as_json:
        cards = [{"name": model.name, "size": model.size, **to_table(model.card)} for model in found]
        print(json.dumps(cards if name is None else cards[0], indent=2))
        return
    if name is not None:
        print_line((found[0].folder / README).read_text(encoding="utf-8").rstrip())
        return
    from rich.table import Table

    console = make_console()
    is_wide = console.width >= WIDE
    has_verbs = console.width >= MEDIUM
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    table.add_column("name", style="bold cyan", no_wrap=True)
    if has_verbs:
        table.add_column("verbs", no_wrap=is_wide, overflow="fold")
    table.add_column("size", justify="right", no_wrap=True)
    table.add_column("score", justify="right", no_wrap=True)
    if is_wide:
        table.add_column("what it is", style="dim")
    for model in found:
        verbs = ", ".join(f"{verb}*" if TEXT_DEFAULTS.get(verb) == model.name else verb for verb in model.card.verbs)
        shown, about = [verbs] if has_verbs else [], [model.card.about] if is_wide else []
        table.add_row(model.name, *shown, f"{model.size / 1e6:.1f} MB", format_score(model.card.score), *about)
    console.print(table)
    total = sum(model.size for model in found) / 1e6
    marked = "* used without -m; " if has_verbs else ""
    note = f"{total:.1f} MB in all; {marked}regard models NAME prints the card of one"
    console.print(f"\n{note}", style="dim", highlight=False)


def format_score(score: "CardScore") -> str:
    """Return a score as it is usually written: 93.4 %, Q3 69.9 %, BLEU 48.2, loss 1.438."""
    name = "" if score.metric == "accuracy" else f"{NAMES.get(score.metric, score.metric)} "
    if score.metric in SHARES:
        return f"{name}{100 * score.value:.1f} %"
    return f"{name}{score.value:.{1 if score.metric in NAMES else 3}f}"
