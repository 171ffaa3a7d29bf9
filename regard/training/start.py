"""Starting runs: from files, from a recipe, from trained weights, or from where a run was stopped."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from rich.text import Text
from torch import nn

from regard.arguments import check_path
from regard.config import kind_of
from regard.errors import ConfigError, RegardError
from regard.escape import escape_controls
from regard.kernel import running_cell
from regard.runs.checkpoint import checkpoint_steps
from regard.runs.layout import CHECKPOINTS, EVALUATION
from regard.runs.ownership import check_free, clear_run, hold_run, take_folder, take_next_folder
from regard.tasks.task import Task
from regard.terminal import plain_console, show_status
from regard.training.callbacks import list_callbacks
from regard.training.draft import RunPlan
from regard.training.finish import finish, next_commands, warn_of_baselines
from regard.training.loop import Trainer
from regard.training.memory import split_to_fit
from regard.training.notebook_progress import NotebookProgress
from regard.training.planning import plan_run
from regard.training.pretrained import take_weights
from regard.training.progress import Progress
from regard.training.ranks import Ranks, join_ranks, was_restarted
from regard.training.request import RunRequest, name_task
from regard.training.result import RunResult, write_result
from regard.training.resumed_config import resumed_config
from regard.training.run import Run, open_run, write_config
from regard.training.session import note_session, task_files
from regard.training.settings import left_as_found, use_threads
from regard.training.trial import Trial, build_model, time_updates

if TYPE_CHECKING:
    from rich.console import Console


@dataclass(frozen=True)
class PlannedRun:
    """A plan, with its folder and its processes."""

    plan: RunPlan
    folder: Path
    ranks: Ranks


OnPlan = Callable[[PlannedRun], None]

RUNS = Path("runs")  # where runs are that the user gives no name


def train(
    what: str | Path | Mapping[str, Any],
    *overrides: str | Path,
    valid: str | Path | Sequence[str | Path] | None = None,
    run: str | Path | None = None,
    overwrite: bool = False,
    size: str = "auto",
    recipe: str | Path | None = None,
    init_from: str | Path | None = None,
    allow_pickle: bool = False,
    model: nn.Module | None = None,
    callbacks: Sequence[Any] = (),
    device: str = "auto",
    console: "Console | None" = None,
    on_plan: OnPlan | None = None,
) -> Run:
    """Train a model and return the run: `train("language", "corpus.txt", "train.steps=500", run="runs/mine")`.

    `what` is a task, with its files before the changes of settings and files to validate on in `valid`; the table of a
    task as in a recipe, such as {"kind": "language", "train": ["corpus.txt"]}; or the path of a recipe that has one, or
    the name of one that comes with the package, such as "results/shakespeare-char". `run` is the folder of the run:
    by default a new one, runs/TASK-NUMBER; with `overwrite` a run that is there is replaced. `recipe` names an
    architecture other than the task's own, and `size` ("mini", "tiny", "small", "base", "big") scales either.
    `init_from` is a folder whose weights and tokenizer the run starts from; `allow_pickle` also reads an old .bin of
    Hugging Face.

    `model` is a module to train as it is: one that `regard.build` made, or one of your own whose `forward` takes what
    the task gives (docs/training.md). `callbacks` see updates and validations (training/callbacks.py). `on_plan` is
    called with what was decided, before anything is written. A cell of a notebook that is run again replaces the run
    that it made before. If torchrun or Slurm has started the command again, `run` continues from its last checkpoint.
    """
    callbacks = list_callbacks(callbacks)
    run = None if run is None else check_path(run, "run")
    what, overrides = name_task(what, overrides, valid)
    if overwrite and run is None:
        raise ConfigError("overwrite=True needs the folder of the run that it replaces; name it with run=FOLDER")
    request = RunRequest(what, overrides, size, recipe, init_from, allow_pickle, model)
    console = console or plain_console()
    overwrite = overwrite or (run is not None and _is_made_by_this_cell(run))
    with join_ranks(device) as ranks, left_as_found(ranks.device), ExitStack() as held:
        if run is not None and was_restarted(ranks) and checkpoint_steps(run / CHECKPOINTS):
            return _resume(run, (), ranks, held, console, model, callbacks)
        if run is not None and ranks.first:  # before the data is read, which may take long
            held.enter_context(take_folder(run, overwrite))
            _note_this_cell(run)
        plan = _plan(request, ranks, console)
        planned = PlannedRun(plan, _take_next(plan, ranks, held) if run is None else run, ranks)
        if on_plan is not None and ranks.first:
            on_plan(planned)
        return begin(planned, console, callbacks)


_MADE: dict[Path, str] = {}  # run folders, and the cell of the notebook that made each in this process


def _is_made_by_this_cell(folder: Path) -> bool:
    """Return whether the running cell of a notebook has made this run before, so that it may replace it."""
    found = running_cell()
    return found is not None and _MADE.get(folder.resolve()) == found[0]


def _note_this_cell(folder: Path) -> None:
    """Note that the running cell of a notebook makes this run."""
    if found := running_cell():
        _MADE[folder.resolve()] = found[0]


def dry_run(
    request: RunRequest, run: str | Path | None, overwrite: bool, device: str, console: "Console", on_plan: OnPlan
) -> tuple[RunPlan, Trial]:
    """Plan a run as `train` does, and time a few updates, whose result is discarded; nothing is written."""
    with join_ranks(device) as ranks, left_as_found(ranks.device):
        if run is not None and ranks.first:
            check_free(Path(run), overwrite)
        plan = _plan(request, ranks, console)
        if ranks.first:
            free = (folder for number in count(1) if not (folder := RUNS / f"{_name(plan)}-{number}").exists())
            on_plan(PlannedRun(plan, next(free) if run is None else Path(run), ranks))
        return plan, time_updates(plan.config, plan.task, ranks, plan.module)


def _plan(request: RunRequest, ranks: Ranks, console: "Console") -> RunPlan:
    """Plan a run, and print its warnings."""
    console.quiet = console.quiet or not ranks.first
    with show_status(console, "reading the data") as say:
        plan = plan_run(request, ranks, say)
    for warning in plan.warnings:
        console.print(Text(escape_controls(warning), "yellow"))
    return plan


def _name(plan: RunPlan) -> str:
    """Return the name of the task, as in the recipe."""
    return kind_of(type(plan.config.task)) or plan.task.name


def _take_next(plan: RunPlan, ranks: Ranks, held: ExitStack) -> Path:
    """Take the next folder of the task in the first process; the others learn its number."""
    number = held.enter_context(take_next_folder(RUNS, _name(plan))) if ranks.first else 0
    return RUNS / f"{_name(plan)}-{ranks.largest(number)}"


def begin(planned: PlannedRun, console: "Console", callbacks: Sequence[Any] = ()) -> Run:
    """Train in a folder that the first process has taken."""
    plan, folder, ranks = planned.plan, planned.folder, planned.ranks
    run = Run(folder, plan.config)
    model = build_model(plan.config, ranks) if plan.module is None else plan.module.to(ranks.device)
    with _progress(console, run) as progress:
        if plan.pretrained is not None:
            take_weights(model, plan.pretrained, plan.task.tokenizer, progress.say)
        trainer = _trainer(run, plan.task, model, ranks, progress, callbacks)
        if ranks.first:  # only now, so that an error before leaves no run behind, and an old one as it was
            clear_run(folder)
            plan.task.save(folder)
            write_config(folder, plan.config)
            note_session(folder, 0, ranks, task_files(plan.config.task))
        ranks.wait()
        if plan.pretrained is not None or plan.module is not None:
            trainer.save()  # otherwise --resume before the first checkpoint would start without these weights
        return _train(trainer)


def resume(
    folder: str | Path,
    *overrides: str,
    model: nn.Module | None = None,
    callbacks: Sequence[Any] = (),
    device: str = "auto",
    console: "Console | None" = None,
    accept_changed_data: bool = False,
) -> Run:
    """Continue a run that was stopped; settings of its training may change, such as `train.steps=2000`.

    A run that trained a module of your own needs that `model` again. If the data is not that of the checkpoint, it is
    an error; with `accept_changed_data` the run continues on the new data.
    """
    callbacks = list_callbacks(callbacks)
    folder = check_path(folder, "folder")
    console = console or plain_console()
    with join_ranks(device) as ranks, left_as_found(ranks.device), ExitStack() as held:
        return _resume(folder, overrides, ranks, held, console, model, callbacks, accept_changed_data)


def _resume(
    folder: Path,
    overrides: Sequence[str],
    ranks: Ranks,
    held: ExitStack,
    console: "Console",
    model: nn.Module | None,
    callbacks: Sequence[Any],
    accept_changed_data: bool = False,
) -> Run:
    """Continue a run in these processes."""
    console.quiet = console.quiet or not ranks.first
    run = open_run(folder)
    if ranks.first:
        held.enter_context(hold_run(run.folder))
    run = replace(run, config=resumed_config(run.config, overrides))
    _check_module(run, model)
    with ranks.rank_zero_first():
        task = run.task(device="cpu")
    run, warning = _fit_to_memory(run, task, ranks)
    module = build_model(run.config, ranks) if model is None else model.to(ranks.device)
    with _progress(console, run) as progress:
        if warning:
            progress.say(warning, "yellow")
        trainer = _trainer(run, task, module, ranks, progress, callbacks)
        if not trainer.resume(accept_changed_data):
            progress.say("there is no checkpoint yet; the run starts from the beginning")
        elif trainer.is_done():
            remedy = "to train longer, raise train.steps (or train.patience)"
            progress.say(f"training ended at step {trainer.step}; the model is only measured again; {remedy}")
        if overrides and ranks.first:  # only now, so that a change that does not fit the checkpoint is not kept
            write_config(run.folder, run.config)
        if ranks.first:
            note_session(run.folder, trainer.step, ranks, task_files(run.config.task) if accept_changed_data else ())
        return _train(trainer)


def _check_module(run: Run, model: nn.Module | None) -> None:
    """Raise an error if a resumed run needs a module of the user and has none, or the other way round."""
    if run.config.model is None and model is None:
        remedy = f"give it again: regard.resume({str(run.folder)!r}, model=module)"
        raise RegardError(f"{run.folder}: was trained with a module of your own; {remedy}")
    if run.config.model is not None and model is not None:
        raise RegardError(f"{run.folder}: has a model of its own; leave model=... out")


def _fit_to_memory(run: Run, task: Task, ranks: Ranks) -> tuple[Run, str]:
    """Split the updates of a resumed run if this machine has too little memory for them; return what to say about it.

    The machine may be another one than before, and updates may have become larger. The result is the same.
    """
    if run.config.model is None:
        return run, ""
    remedy = "free some memory, or continue the run on a larger machine"
    parts, warning = split_to_fit(run.config.model, run.config.train, task, ranks, remedy)
    return replace(run, config=replace(run.config, train=replace(run.config.train, accumulate=parts))), warning


def _progress(console: "Console", run: Run) -> Progress:
    kind = NotebookProgress if console.is_jupyter else Progress
    return kind(console, run.config.train.steps, max(run.config.train.log_every, run.config.train.steps // 100))


def _trainer(
    run: Run, task: Task, model: nn.Module, ranks: Ranks, progress: Progress, callbacks: Sequence[Any]
) -> Trainer:
    if ranks.device.type == "cuda":
        torch.set_float32_matmul_precision("high")
        torch.cuda.reset_peak_memory_stats(ranks.device)  # an earlier run of this process may have taken more
    use_threads(run.config.train.threads)
    task.to(ranks.device)
    return Trainer(run, task, model, ranks, progress, callbacks)


def _train(trainer: Trainer) -> Run:
    if trainer.ranks.first:
        (trainer.run.folder / EVALUATION).unlink(missing_ok=True)  # of an earlier end
    found = trainer.train()
    if trainer.ranks.first:
        run, progress = trainer.run, trainer.progress
        write_result(run.folder, RunResult(trainer.step, trainer.best.weights, found))
        progress.say(f"done: {run.folder}", "bold")
        progress.result(trainer.best.weights, found, found.method)
        warn_of_baselines(trainer.task, found, progress)
        finish(run, trainer.task, found, trainer.best.weights)
        for command in next_commands(run):
            progress.say(f"  {command}")
    return trainer.run
