"""`regard tune`: search for good settings on validation data."""

from pathlib import Path
from typing import Annotated

import typer

from regard.cli.complete import complete_recipe, offer
from regard.cli.console import make_console
from regard.cli.text import DeviceName


def tune_command(
    task: Annotated[str, typer.Argument(metavar="TASK", help="The task, as for `regard train`.")],
    files: Annotated[
        list[str], typer.Argument(metavar="FILE", help="Its files, as for `regard train`; then KEY=VALUE.")
    ],
    minutes: Annotated[float, typer.Option(metavar="N", help="About how many minutes to search.")],
    valid: Annotated[
        list[str] | None,
        typer.Option(metavar="FILE", help="Validation file; may be repeated. Default: a part is held out."),
    ] = None,
    recipe: Annotated[
        str | None,
        typer.Option(
            metavar="RECIPE",
            help="Another architecture: a name (see `regard recipes`) or a file.",
            autocompletion=complete_recipe,
        ),
    ] = None,
    size: Annotated[
        str,
        typer.Option(
            metavar="SIZE",
            help="Search only this size: mini, tiny, small, base or big. Default: several.",
            show_default=False,
            autocompletion=offer("mini", "tiny", "small", "base", "big"),
        ),
    ] = "auto",
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="The folder to write. Default: tuned/TASK-..., the same for the same command.",
            show_default=False,
        ),
    ] = None,
    jobs: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Runs at a time. Default: one on each GPU or core.", show_default=False),
    ] = None,
    device: DeviceName = "auto",
) -> None:
    """Search for a good rate, size, dropout and vocabulary, by successive halving on validation data.

    Settings are trained for a short time, and the best third continues for longer, until one is left. The folder gets
    the recipe found.toml, the table trials.csv and all runs. Test data is never read. The same command continues after
    an interruption. What you decide yourself (KEY=VALUE, --size, --recipe) is not searched.

    Examples:
      regard tune classification reviews.tsv --minutes 20
      regard tune translation train.de train.en --valid valid.de --valid valid.en --minutes 60 --size small
    """
    from regard.errors import ConfigError, choices
    from regard.lab.tune import tune
    from regard.recipe_files import split_changes
    from regard.tasks.kinds import TASKS

    if task not in TASKS:
        raise ConfigError(f"{task!r} is not a task; {choices(task, TASKS)}")
    names, changes = split_changes(files)
    table = {"kind": task, **TASKS[task].from_files(names, valid or [])}
    options = {"minutes": minutes, "out": out, "size": size, "recipe": recipe, "jobs": jobs, "device": device}
    tune(table, *changes, **options, console=make_console())  # type: ignore[arg-type]
