"""`regard lab`: list the experiments; `regard lab NAME` runs one, `regard lab --all` all of them."""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli.complete import complete_experiment, complete_recipe, offer
from regard.cli.console import complain, make_console, print_line, print_paragraph
from regard.cli.text import DeviceName
from regard.errors import InputError, RegardError
from regard.escape import escape_controls

if TYPE_CHECKING:
    from regard.lab.page import Result

OVERALL = "index.html"


def lab_command(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME",
            help="The name of an experiment. Default: list all of them.",
            autocompletion=complete_experiment,
        ),
    ] = None,
    changes: Annotated[
        list[str] | None,
        typer.Argument(metavar="KEY=VALUE", help="Changed settings of the experiment; its page lists them."),
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Run all experiments, and write one report.")] = False,
    scale: Annotated[
        str,
        typer.Option(
            metavar="SCALE",
            help="tiny (seconds), default (minutes on a CPU) or full (an accelerator).",
            autocompletion=offer("tiny", "default", "full"),
        ),
    ] = "default",
    seed: Annotated[int, typer.Option(min=0, metavar="N", help="The first seed.")] = 0,
    seeds: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="N", help="How many seeds. Default: what the experiment needs.", show_default=False
        ),
    ] = None,
    recipe: Annotated[
        str | None,
        typer.Option(
            metavar="RECIPE",
            help="Another architecture, in experiments that take one: a name or a file.",
            autocompletion=complete_recipe,
        ),
    ] = None,
    device: DeviceName = "auto",
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="The folder to write. Default: lab/NAME; for --all: lab. At other scales: lab-tiny, lab-full.",
            show_default=False,
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the list or the verdict as JSON.")] = False,
) -> None:
    """Run the claims of the lectures as experiments: each with plots, a table and a verdict.

    What was measured is kept: the same command continues after an interruption. When everything is measured, it only
    writes the page again.

    Examples:
      regard lab
      regard lab lookup
      regard lab lookup noise=0.8 --out noisy
      regard lab order --scale tiny --seed 7 --out results/order
      regard lab --all
    """
    if every and name is not None:
        what = f"{name}, a setting of a single experiment" if "=" in name else "the NAME"
        raise InputError(f"--all runs all experiments; leave it out, or leave out {what}")
    if every and recipe is not None:
        raise InputError("--recipe needs the NAME of an experiment that takes one")
    if every:
        _run_all(out, {"scale": scale, "seed": seed, "seeds": seeds, "device": device}, as_json)
    elif name is None:
        _list(as_json)
    else:
        from regard.lab.experiments import find_experiment
        from regard.lab.runner import run_experiment

        experiment = find_experiment(name)
        with _bar() as say:
            result = run_experiment(
                experiment,
                *(changes or ()),
                scale=scale,
                seed=seed,
                seeds=seeds,
                recipe=recipe,
                device=device,
                out=out,
                say=say,
            )
        _print(result, as_json)


def _list(as_json: bool) -> None:
    from rich.table import Table

    from regard.lab.experiments import EXPERIMENTS

    titles = {name: experiment.title for name, experiment in EXPERIMENTS.items()}
    if as_json:
        print(json.dumps([{"name": name, "title": title} for name, title in titles.items()], indent=2))
        return
    grid = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
    grid.add_column(style="bold cyan", no_wrap=True)
    grid.add_column()
    for name, title in titles.items():
        grid.add_row(name, title)
    console = make_console()
    console.print(grid)
    console.print("\nregard lab NAME runs one and writes a page with plots and a verdict; regard lab --all runs all.")


def _run_all(out: Path | None, how: dict[str, Any], as_json: bool) -> None:
    """Run all experiments. One that fails is named in the report and at the end, and the others run all the same."""
    from regard.lab.experiments import EXPERIMENTS, find_experiment
    from regard.lab.page import write_lab_report
    from regard.lab.runner import LabStopError, default_root, run_experiment

    root = out or default_root(how["scale"])
    results, failed = [], {}
    for name in EXPERIMENTS:
        try:
            with _bar() as say:
                results.append(run_experiment(find_experiment(name), **how, out=root / name, say=say))
        except LabStopError:
            raise
        except RegardError as error:
            failed[name] = str(error)
            complain(f"{name}: {error}")
            continue
        _print(results[-1], as_json, short=True)
    if results:
        write_lab_report(root / OVERALL, results, failed)
        if not as_json:
            print_line(f"\nreport: {root / OVERALL}")
    if failed:
        raise InputError(f"{len(failed)} of {len(EXPERIMENTS)} experiments could not be run: {', '.join(failed)}")


def _print(result: "Result", as_json: bool, short: bool = False) -> None:
    """Print the verdict, and where the page is."""
    name, verdict = result.experiment.name, result.verdict
    if as_json:
        print(json.dumps({"name": name, "holds": verdict.holds, "text": verdict.text, "page": str(result.page)}))
        return
    if not short and result.worked:
        print_line(f"{result.worked}\n")
    word = {True: "holds", False: "does not hold", None: "not decided"}[verdict.holds]
    print_paragraph(f"{name}: {word}. {verdict.text}")
    if not short:
        print_line(f"page: {result.page}")


@contextmanager
def _bar() -> Iterator[Callable[[str, float], None]]:
    """Show a progress bar on standard error, if that is a terminal."""
    from rich.progress import BarColumn, TimeElapsedColumn

    from regard.terminal import progress_bars, text_column

    columns = BarColumn(), text_column("{task.percentage:>3.0f} %"), TimeElapsedColumn(), text_column()
    with progress_bars(*columns, transient=True, disable=not sys.stderr.isatty()) as progress:
        task = progress.add_task("", total=1.0)
        yield lambda text, done: progress.update(task, completed=done, description=escape_controls(text))
