"""`regard train`: train a model on files or with a recipe, or continue a run."""

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli.complete import complete_folder, complete_recipe, complete_result, offer
from regard.cli.console import make_console
from regard.cli.help import HelpTyper, PlainGroup, help_text
from regard.cli.option_groups import expand_groups
from regard.cli.plan import print_plan, source_table
from regard.cli.task_help import TASKS
from regard.cli.text import AllowPickle, DeviceName
from regard.errors import ConfigError
from regard.quantity import short_size
from regard.recipe_files import is_shipped, split_changes

if TYPE_CHECKING:
    from regard.training.start import PlannedRun

RunFolder = Annotated[
    Path | None,
    typer.Option("--run", metavar="FOLDER", help="Folder of the run. Default: runs/TASK-NUMBER.", show_default=False),
]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace the run that is in the folder of --run.")]
SizeName = Annotated[
    str,
    typer.Option(
        "--size",
        metavar="SIZE",
        help="Size of the model: auto (from the data), mini, tiny, small, base or big.",
        autocompletion=offer("auto", "mini", "tiny", "small", "base", "big"),
    ),
]
RecipeName = Annotated[
    str | None,
    typer.Option(
        "--recipe",
        metavar="RECIPE",
        help="Another architecture: a name (see `regard recipes`) or a file.",
        autocompletion=complete_recipe,
    ),
]
InitFrom = Annotated[
    Path | None,
    typer.Option(
        metavar="FOLDER",
        help="Start from the weights and tokenizer of this run or model.",
        autocompletion=complete_folder,
    ),
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Print the plan, where each value comes from, memory and time; do not train.")
]
ValidFiles = Annotated[
    list[str] | None,
    typer.Option("--valid", metavar="FILE", help="Validation file; may be repeated. Default: a part is held out."),
]
Overrides = Annotated[
    list[str] | None, typer.Argument(metavar="KEY=VALUE", help="Changes, such as train.steps=500 model.depth=2.")
]


@dataclass(frozen=True)
class _Options:
    """The options that all ways to train have in common."""

    run: RunFolder = None
    overwrite: Overwrite = False
    size: SizeName = "auto"
    init_from: InitFrom = None
    allow_pickle: AllowPickle = False
    device: DeviceName = "auto"
    dry_run: DryRun = False


class _Verbs(PlainGroup):
    """The tasks as commands. Any other first word is a recipe or a registered task; `--resume RUN` continues a run."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0].partition("=")[0] == "--resume":
            _, equals, folder = args[0].partition("=")
            args = ["resume", *([folder] if equals else []), *args[1:]]
        elif any(text.partition("=")[0] == "--resume" for text in args[1:]):
            raise ConfigError("--resume must be the first option, without task and files: regard train --resume RUN")
        elif args and not args[0].startswith("-") and args[0] not in self.commands:
            args = ["recipe" if ctx.resilient_parsing else _find_other(args[0]), *args]  # resilient: for a completion
        return super().parse_args(ctx, args)

    def other_words(self, incomplete: str) -> list[str]:
        return [f"results/{name}" for name in complete_result()] if incomplete else []

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """Return the command, under the name that the user typed: `--resume`, or none for a recipe."""
        name, command, rest = super().resolve_command(ctx, args)
        return {"resume": "--resume", "recipe": "", "task": ""}.get(name or "", name), command, rest


def _find_other(name: str) -> str:
    """Return the hidden command for a first word that is a recipe or a registered task."""
    if name.endswith(".toml") or is_shipped(name):
        return "recipe"
    from regard.tasks.kinds import TASKS as REGISTERED

    if name in REGISTERED:
        return "task"
    if (Path(name) / "recipe.toml").exists():
        folder, recipe = quote(name), quote(f"{name}/recipe.toml")
        raise ConfigError(f"{name}: is a run; continue it with --resume {folder}, or repeat it with {recipe}")
    if Path(name).exists():
        raise ConfigError(f"{name}: name the task before the files: {', '.join(REGISTERED)}")
    from regard.training.request import not_a_task

    raise ConfigError(not_a_task(name))


train_command = HelpTyper(
    cls=_Verbs,
    subcommand_metavar="TASK|RECIPE FILE... [KEY=VALUE]...",
    help=help_text(
        """Train a model on your own files.

        The first word is one of the tasks below, whose sizes and schedule follow from the data, or a recipe that has a
        [task] table.

        Examples:
          regard train language corpus.txt train.minutes=10
          regard train RECIPE.toml train.steps=500
          regard train --resume runs/language-1
        """
    ),
)


@train_command.callback()
def _options(
    resume: Annotated[  # only for the help: `_Verbs` handles it first
        str | None, typer.Option("--resume", metavar="RUN", help="Continue a run that was stopped.")
    ] = None,
) -> None:
    pass


def _help(kind: str) -> str:
    return help_text(f"{TASKS[kind].about}\n\nExamples:\n  " + "\n  ".join(TASKS[kind].examples))


def _add_task_command(kind: str) -> None:
    @expand_groups
    def command(
        *,
        files: Annotated[
            list[str], typer.Argument(metavar="FILE", help=f"{TASKS[kind].files}; then changes KEY=VALUE.")
        ],
        valid: ValidFiles = None,
        recipe: RecipeName = None,
        options: _Options,
    ) -> None:
        _start_task(kind, files, valid or [], recipe, options)

    train_command.command(kind, help=_help(kind))(command)


@train_command.command("translation", help=_help("translation"))
@expand_groups
def translation_command(
    *,
    files: Annotated[
        list[str] | None,
        typer.Argument(metavar="FILE", help=f"{TASKS['translation'].files}; then changes KEY=VALUE."),
    ] = None,
    source: Annotated[
        list[str] | None, typer.Option(metavar="FILE", help="Source file or table of pairs; may be repeated.")
    ] = None,
    target: Annotated[
        list[str] | None, typer.Option(metavar="FILE", help="Target file, line by line; may be repeated.")
    ] = None,
    valid: ValidFiles = None,
    valid_source: Annotated[
        list[str] | None, typer.Option(metavar="FILE", help="Source file to validate on; may be repeated.")
    ] = None,
    valid_target: Annotated[
        list[str] | None, typer.Option(metavar="FILE", help="Target file to validate on; may be repeated.")
    ] = None,
    recipe: RecipeName = None,
    options: _Options,
) -> None:
    """Train a translator on files given in order or by options."""
    named = {"source": source, "target": target, "valid_source": valid_source, "valid_target": valid_target}
    _start_task("translation", files or [], valid or [], recipe, options, named)


for kind in TASKS:
    if kind != "translation":
        _add_task_command(kind)


@train_command.command("task", hidden=True)
@expand_groups
def task_command(
    *,
    kind: Annotated[str, typer.Argument(metavar="TASK", help="A registered task.")],
    files: Annotated[list[str], typer.Argument(metavar="FILE", help="Its files, then changes KEY=VALUE.")],
    valid: ValidFiles = None,
    recipe: RecipeName = None,
    options: _Options,
) -> None:
    """Train on a task that was registered with `regard.register`."""
    _start_task(kind, files, valid or [], recipe, options)


@train_command.command("recipe", hidden=True)
@expand_groups
def recipe_command(
    *,
    path: Annotated[str, typer.Argument(metavar="RECIPE", help="A recipe with a [task] table.")],
    changes: Overrides = None,
    options: _Options,
) -> None:
    """Train with a recipe that has a [task] table."""
    for text in changes or []:
        if "=" not in text and Path(text).exists():
            rule = "is a file or folder where a change KEY=VALUE belongs"
            raise ConfigError(f"{text}: {rule}; a recipe names its files itself, in its [task] table")
    _start(path, changes or [], None, options)


@train_command.command("resume", hidden=True)
def resume_command(
    folder: Annotated[
        Path, typer.Argument(metavar="RUN", help="The folder of the run.", autocompletion=complete_folder)
    ],
    changes: Annotated[
        list[str] | None, typer.Argument(metavar="KEY=VALUE", help="Changes of its training, such as train.steps=2000.")
    ] = None,
    accept_changed_data: Annotated[
        bool, typer.Option("--accept-changed-data", help="Continue although the data is not that of the checkpoint.")
    ] = False,
    device: DeviceName = "auto",
) -> None:
    """Continue a run that was stopped; only settings of its training may change: train.steps=2000."""
    from regard.training.start import resume

    resume(folder, *(changes or []), device=device, console=make_console(), accept_changed_data=accept_changed_data)


def _start_task(
    kind: str,
    arguments: list[str],
    valid: list[str],
    recipe: str | None,
    options: _Options,
    named: dict[str, list[str] | None] | None = None,
) -> None:
    """Make the table of a task from its files, and train; `named` are files given by options."""
    from regard.tasks.kinds import TASKS as REGISTERED

    files, changes = split_changes(arguments)
    by_option = {key: names for key, names in (named or {}).items() if names}
    if files and by_option:
        given = ", ".join(f"--{key.replace('_', '-')}" for key in by_option)
        raise ConfigError(f"{', '.join(files)}: files are given either in order or by {given}, not both")
    if valid and by_option:
        raise ConfigError("--valid is for files in order; beside options, use --valid-source and --valid-target")
    if not files and not by_option:
        raise ConfigError(
            f"{kind} needs files to train on: regard train {kind} FILE...; see regard train {kind} --help"
        )
    table = {**(REGISTERED[kind].from_files(files, valid) if files or valid else {}), **by_option}
    _start({"kind": kind, **table}, changes, recipe, options)


def _start(what: str | dict[str, Any], changes: list[str], recipe: str | None, options: _Options) -> None:
    from regard.training import start
    from regard.training.progress import duration
    from regard.training.request import RunRequest

    console = make_console()

    def show(planned: "PlannedRun") -> None:
        with suppress(SystemExit):  # rich exits when its output is closed (`| head`); that must not prevent training
            print_plan(console, planned)

    if not options.dry_run:
        start.train(
            what,
            *changes,
            run=options.run,
            overwrite=options.overwrite,
            size=options.size,
            recipe=recipe,
            init_from=options.init_from,
            allow_pickle=options.allow_pickle,
            device=options.device,
            console=console,
            on_plan=show,
        )
        return
    chosen = (options.size, recipe, options.init_from, options.allow_pickle)
    request = RunRequest(what, tuple(changes), *chosen)
    plan, trial = start.dry_run(request, options.run, options.overwrite, options.device, console, show)
    console.print("where the values come from", style="bold")
    console.print(source_table(plan))
    whole = duration(trial.seconds * plan.config.train.steps)
    speed = f"about {1000 * trial.seconds:.0f} ms an update"
    first = f", after {duration(trial.compiling)} of compiling" if trial.compiling else ""
    console.print(f"memory {short_size(trial.memory)}, {speed}, {whole} in all{first}")
    console.print("without the validations. Nothing was written.", style="dim")
