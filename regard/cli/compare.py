"""`regard compare`: train several architectures with an equal budget, and compare them."""

from pathlib import Path
from typing import Annotated

import typer

from regard.cli.complete import complete_recipe
from regard.cli.console import make_console
from regard.cli.text import DeviceName


def compare_command(
    models: Annotated[
        list[str],
        typer.Argument(
            metavar="MODEL",
            help="Recipes (see `regard recipes`), recipe files (.toml) or folders of finished runs; then changes "
            "KEY=VALUE for all recipes, such as train.tokens=1024.",
            autocompletion=complete_recipe,
        ),
    ],
    on: Annotated[
        list[str],
        typer.Option(metavar="FILE", help="Data to train on, as for `regard train`; repeat it for several files."),
    ],
    valid: Annotated[
        list[str] | None,
        typer.Option(metavar="FILE", help="Data to measure on; may be repeated. Default: a part is held out."),
    ] = None,
    task: Annotated[
        str | None,
        typer.Option(metavar="TASK", help="The task, where the models do not decide it.", show_default=False),
    ] = None,
    steps: Annotated[
        str | None,
        typer.Option(
            metavar="N", help="Budget: updates of each run. Default: about two minutes for the largest model."
        ),
    ] = None,
    tokens: Annotated[str | None, typer.Option(metavar="N", help="Budget: tokens of each run, such as 5M.")] = None,
    flops: Annotated[str | None, typer.Option(metavar="N", help="Budget: FLOPs of each run, such as 2e13.")] = None,
    minutes: Annotated[str | None, typer.Option(metavar="N", help="Budget: minutes of each run.")] = None,
    seeds: Annotated[int, typer.Option(min=1, metavar="N", help="Runs of each recipe, with seeds from 0 on.")] = 3,
    size: Annotated[
        str,
        typer.Option(
            metavar="SIZE",
            help="Size of the models: auto (recipes of regard to suit the data, files as they are), own, mini, tiny, "
            "small, base or big.",
        ),
    ] = "auto",
    parameters: Annotated[
        str | None,
        typer.Option(
            metavar="N", help="Scale each recipe to about this many parameters, such as 3M. Default: by --size."
        ),
    ] = None,
    own_optimizer: Annotated[
        bool, typer.Option("--own-optimizer", help="Use optimizer and schedule of recipe files that have them.")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="The folder to write. Default: comparisons/TASK-NUMBER, the same for the same settings.",
            show_default=False,
        ),
    ] = None,
    jobs: Annotated[
        int | None,
        typer.Option(
            min=0,
            metavar="N",
            help="Runs at a time. Default: as many as cores or GPUs, and memory, allow. 0: in this process.",
            show_default=False,
        ),
    ] = None,
    device: DeviceName = "auto",
) -> None:
    """Train several architectures with an equal budget, and compare them.

    All get the same data, tokenizer, batches, validation rows and rule for the optimizer. The table has the spread over
    seeds and a significance test; a page has the learning curves and all commands. The same command continues after an
    interruption, and keeps what is finished. Finished runs, given by their folders, are measured for the same table.

    Examples:
      regard compare gpt2 lstm conv --on corpus.txt --steps 500
      regard compare translator rnn-attention --on pairs.tsv --flops 1e14 --seeds 5
      regard compare mine.toml writer --on corpus.txt --parameters 1M --tokens 2M
      regard compare runs/language-1 runs/language-2 --on test.txt
    """
    from regard.lab.comparison.compare import compare
    from regard.lab.comparison.page import PAGE_OF_COMPARISON
    from regard.lab.comparison.runs import say
    from regard.lab.comparison.table import print_comparison

    console = make_console()
    table = compare(
        *models,
        on=on,
        task=task,
        valid=valid or (),
        steps=steps,
        tokens=tokens,
        flops=flops,
        minutes=minutes,
        seeds=seeds,
        size=size,
        parameters=parameters,
        own_optimizer=own_optimizer,
        out=out,
        jobs=jobs,
        device=device,
        console=console,
    )
    console.print()
    print_comparison(table, console)
    say(console, f"open {table.folder / PAGE_OF_COMPARISON}")
