"""`regard train`: train a model on one's own files, or by a recipe, or go on with a run."""

from contextlib import suppress
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from regard.cli.console import make_console
from regard.cli.show import number, size, written_for
from regard.cli.text import AllowPickle, DeviceName
from regard.errors import ConfigError
from regard.recipe_files import recipe_names

if TYPE_CHECKING:
    from rich.console import Console

    from regard.training.decide import Planned
    from regard.training.ranks import Ranks

Overrides = Annotated[
    list[str] | None, typer.Argument(metavar="KEY=VALUE...", help="Changes, such as train.steps=500 model.depth=2.")
]
RunFolder = Annotated[Path | None, typer.Option("--run", help="Folder of the run; default: runs/TASK-NUMBER.")]
SizeName = Annotated[str, typer.Option("--size", help="auto (from the data), tiny, small, base or big.")]
RecipeName = Annotated[str | None, typer.Option("--recipe", help="Another architecture: see `regard recipes`.")]
InitFrom = Annotated[Path | None, typer.Option(help="Begin with the weights and tokenizer of this run or model.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show the plan with memory and time, and stop.")]
ValidFiles = Annotated[
    list[Path] | None, typer.Option("--valid", help="Validation file, may be repeated; default: a part is kept back.")
]
Files = Annotated[list[str], typer.Argument(metavar="FILE... [KEY=VALUE...]", help="Files, then changes.")]


class _Verbs(TyperGroup):
    """The tasks; what is none of them is a recipe, and `--resume RUN` goes on with a run."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0].partition("=")[0] == "--resume":
            _, equals, folder = args[0].partition("=")
            args = ["resume", *([folder] if equals else []), *args[1:]]
        elif any(text.partition("=")[0] == "--resume" for text in args[1:]):
            raise ConfigError("--resume stands before all else, without task and files: regard train --resume RUN")
        elif args and not args[0].startswith("-") and args[0] not in self.commands:
            self._check_recipe(args[0])
            args = ["recipe", *args]
        return super().parse_args(ctx, args)

    def _check_recipe(self, name: str) -> None:
        """Tell a task that was misspelt, or left out, from a recipe."""
        tasks = [task for task, command in self.commands.items() if not command.hidden]
        if name.endswith(".toml") or name in recipe_names():
            return
        if (Path(name) / "recipe.toml").exists():
            raise ConfigError(f"{name}: is a run; go on with it by --resume {name}, or repeat {name}/recipe.toml")
        if Path(name).exists():
            raise ConfigError(f"{name}: name the task before the files: {', '.join(tasks)}")
        if near := get_close_matches(name, tasks, n=1):
            raise ConfigError(f"{name!r} is neither a task nor a recipe; did you mean the task {near[0]!r}?")


train = typer.Typer(
    cls=_Verbs,
    no_args_is_help=True,
    help="Train a model on your own files.\n\n"
    "regard train TASK FILES...: one of the tasks below; sizes and schedules are chosen from the data.\n\n"
    "regard train RECIPE.toml KEY=VALUE...: a recipe that has a task table.\n\n"
    "regard train --resume RUN: go on with a run that was stopped.",
)


@train.command()
def translation(
    source: Annotated[
        list[Path], typer.Option(help="Source sentences, one a line, or pairs in a table; may be repeated.")
    ],
    target: Annotated[list[Path] | None, typer.Option(help="Their translations, line by line.")] = None,
    valid_source: Annotated[list[Path] | None, typer.Option(help="Sources to validate on.")] = None,
    valid_target: Annotated[list[Path] | None, typer.Option(help="Their translations.")] = None,
    changes: Overrides = None,
    run: RunFolder = None,
    size: SizeName = "auto",
    recipe: RecipeName = None,
    init_from: InitFrom = None,
    allow_pickle: AllowPickle = False,
    device: DeviceName = "auto",
    dry_run: DryRun = False,
) -> None:
    """Train a translator on parallel files."""
    given = {"source": source, "target": target, "valid_source": valid_source, "valid_target": valid_target}
    task = {"kind": "translation", **{key: _names(value) for key, value in given.items() if value}}
    _start(task, changes, run, size, recipe, init_from, allow_pickle, device, dry_run)


def _text_command(kind: str, help_text: str) -> None:
    def command(
        files: Files,
        valid: ValidFiles = None,
        run: RunFolder = None,
        size: SizeName = "auto",
        recipe: RecipeName = None,
        init_from: InitFrom = None,
        allow_pickle: AllowPickle = False,
        device: DeviceName = "auto",
        dry_run: DryRun = False,
    ) -> None:
        names, changes = _split(files)
        task = {"kind": kind, "train": names, **({"valid": _names(valid)} if valid else {})}
        _start(task, changes, run, size, recipe, init_from, allow_pickle, device, dry_run)

    train.command(kind, help=help_text)(command)


_text_command("language", "Train a language model on texts.")
_text_command("masked", "Train an encoder that guesses masked words of texts (BERT).")
_text_command("classification", "Train a classifier on tables (tsv, csv, jsonl, parquet) of texts and labels.")


@train.command()
def vision(
    images: Annotated[Path, typer.Argument(help="A folder of class folders, idx files or an npz file.")],
    changes: Overrides = None,
    valid: Annotated[Path | None, typer.Option(help="Images to validate on.")] = None,
    run: RunFolder = None,
    size: SizeName = "auto",
    recipe: RecipeName = None,
    init_from: InitFrom = None,
    allow_pickle: AllowPickle = False,
    device: DeviceName = "auto",
    dry_run: DryRun = False,
) -> None:
    """Train a Vision Transformer on labelled images."""
    task = {"kind": "vision", "train": str(images), **({"valid": str(valid)} if valid else {})}
    _start(task, changes, run, size, recipe, init_from, allow_pickle, device, dry_run)


@train.command(hidden=True)
def recipe(
    path: Annotated[str, typer.Argument(help="A recipe with a [task] table.")],
    changes: Overrides = None,
    run: RunFolder = None,
    size: SizeName = "auto",
    init_from: InitFrom = None,
    allow_pickle: AllowPickle = False,
    device: DeviceName = "auto",
    dry_run: DryRun = False,
) -> None:
    """Train by a recipe that says everything, or most of it."""
    _start(path, changes, run, size, None, init_from, allow_pickle, device, dry_run)


@train.command(hidden=True)
def resume(
    folder: Annotated[Path, typer.Argument(help="The folder of the run.")],
    changes: Overrides = None,
    device: DeviceName = "auto",
) -> None:
    """Go on with a run."""
    from regard.training.start import resume as go_on

    go_on(folder, *(changes or []), device=device, console=make_console())


def _names(paths: list[Path] | None) -> list[str]:
    return [str(path) for path in paths or []]


def _split(arguments: list[str]) -> tuple[list[str], list[str]]:
    """Tell files from changes: a change has an equals sign, and no file has its name."""
    changes = [text for text in arguments if "=" in text and not Path(text).exists()]
    return [text for text in arguments if text not in changes], changes


def _start(
    what: str | dict[str, Any],
    changes: list[str] | None,
    run: Path | None,
    size: str,
    recipe: str | None,
    init_from: Path | None,
    allow_pickle: bool,
    device: str,
    dry_run: bool,
) -> None:
    from regard.runs.folder import check_free
    from regard.training.decide import plan
    from regard.training.ranks import join_ranks
    from regard.training.start import begin, run_folder

    for text in changes or []:
        if "=" not in text and Path(text).exists():
            rule = "is a file or folder where a change KEY=VALUE belongs"
            raise ConfigError(f"{text}: {rule}; -h says how this task's files are named")
    console = make_console()
    with join_ranks(device) as ranks:
        console.quiet = not ranks.first
        if run is not None and ranks.first:
            check_free(run)  # before the data is read, which may take long
        with console.status("reading the data") as status:
            planned = plan(
                what,
                *(changes or []),
                size=size,
                recipe=recipe,
                init_from=init_from,
                allow_pickle=allow_pickle,
                ranks=ranks,
                say=lambda text: status.update(text),
            )
        folder = run_folder(run, planned.task.name, ranks)
        if ranks.first:
            with suppress(SystemExit):  # of rich, when who read this (`| head`) has left: no reason not to train
                _print_plan(console, planned, folder, ranks)
        if dry_run:
            _print_estimate(console, planned, ranks)
        else:
            begin(planned, folder, ranks, console)


def _print_plan(console: "Console", planned: "Planned", folder: Path, ranks: "Ranks") -> None:
    from rich.table import Table

    from regard.config import to_table
    from regard.models.count import cost
    from regard.models.recipe import build_empty

    config, task = planned.config, planned.task
    facts = task.facts()
    model = to_table(config.model)
    parameters = cost(build_empty(config.model)).parameters
    rows = {"data": ", ".join(f"{count:,} {name if count != 1 else name[:-1]}" for name, count in facts.items())}
    if left_out := task.skipped.report():
        rows["left out"] = "\n".join(left_out)
    if config.tokenizer is not None and task.tokenizer is not None:
        kind = f"from {config.tokenizer.path}" if config.tokenizer.path else config.tokenizer.kind
        rows["tokenizer"] = f"{kind}, {task.tokenizer.size:,} tokens"
    named = f"{planned.size} " if planned.size else ""
    rows["model"] = f"{named}{model['kind']}, {number(parameters)} parameters, width {model['dim']}"
    training = config.train
    optimizer, schedule = to_table(training.optimizer)["kind"], to_table(training.schedule)["kind"]
    rows["training"] = f"{training.steps:,} updates of {training.tokens:,} tokens, {optimizer}, {schedule}"
    rows["can go to"] = "; ".join(f"{name}: {text}" for name, text in written_for(config.model).items())
    rows["on"] = f"{ranks.device}" + (f", {ranks.world} processes" if ranks.world > 1 else "")
    rows["run"] = str(folder)
    table = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
    table.add_column(style="bold cyan", no_wrap=True)
    table.add_column()
    for name, text in rows.items():
        table.add_row(name, text)
    console.print(table)
    console.print()


def _print_estimate(console: "Console", planned: "Planned", ranks: "Ranks") -> None:
    """Try a few updates to say what the run would take."""
    from regard.training.progress import duration
    from regard.training.start import try_updates

    with console.status("trying a few updates"):
        seconds, memory = try_updates(planned, ranks)
    whole = duration(seconds * planned.config.train.steps)
    if ranks.first:
        console.print(f"memory {size(memory)}, about {1000 * seconds:.0f} ms an update, {whole} in all")
        console.print("without the validations. Nothing was written.", style="dim")
