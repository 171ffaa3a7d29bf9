"""Starting runs: from files, from a recipe, from another model's weights, or from where a run was stopped."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from regard.config import from_table, to_table
from regard.errors import ConfigError, RegardError
from regard.models.count import cost
from regard.models.model import Model
from regard.models.recipe import build, build_empty
from regard.models.store import tensors
from regard.recipe_files import override
from regard.runs.folder import check_free
from regard.tasks.task import Task
from regard.training.config import RunConfig
from regard.training.decide import Planned, Say, plan
from regard.training.loop import Trainer
from regard.training.memory import memory_in_use
from regard.training.origin import Origin
from regard.training.plan import plan_schedule
from regard.training.progress import Progress
from regard.training.ranks import Ranks, join_ranks
from regard.training.report import draw_curves, write_report
from regard.training.run import Run, create_run, open_run, write_config
from regard.training.update import Update

ENOUGH = 20  # seconds of updates after which a dry run tries no more


def train(
    what: str | Path | Mapping[str, Any],
    *overrides: str,
    run: str | Path | None = None,
    size: str = "auto",
    recipe: str | Path | None = None,
    init_from: str | Path | None = None,
    allow_pickle: bool = False,
    device: str = "auto",
    console: Console | None = None,
) -> Run:
    """Train a model and return the run: `train({"kind": "language", "train": ["corpus.txt"]}, "train.steps=500")`.

    `what` is a task's table as in a recipe, or the path of a recipe that has one. `recipe` names another
    architecture than the task's own; `init_from` is a folder whose weights (and tokenizer) are the beginning, and
    `allow_pickle` reads them from an old .bin of Hugging Face, too.
    """
    console = console or Console()
    with join_ranks(device) as ranks:
        console.quiet = console.quiet or not ranks.first
        if run is not None and ranks.first:
            check_free(Path(run))  # before the data is read, which may take long
        planned = plan(
            what,
            *overrides,
            size=size,
            recipe=recipe,
            init_from=init_from,
            allow_pickle=allow_pickle,
            ranks=ranks,
        )
        return begin(planned, run_folder(run, planned.task.name, ranks), ranks, console)


def run_folder(run: str | Path | None, task: str, ranks: Ranks) -> Path:
    """Take the folder that was named, or the next free one."""
    if run is not None:
        return Path(run)
    number = 1
    while (Path("runs") / f"{task}-{number}").exists():
        number += 1
    ranks.wait()  # before the first process makes it, or the others would take the next
    return Path("runs") / f"{task}-{number}"


def begin(planned: Planned, folder: Path, ranks: Ranks, console: Console) -> Run:
    """Make the run folder and train."""
    if ranks.first:
        check_free(folder)
    ranks.wait()  # until all have looked, before the first process makes it
    run = Run(folder, planned.config)
    model = build_model(planned.config, ranks)
    with _progress(console, run) as progress:
        if planned.origin is not None:
            take_weights(model, planned.origin, progress.say)
        trainer = _trainer(run, planned.task, model, ranks, progress)
        if ranks.first:  # only now, so that what failed before leaves no folder in the way
            planned.task.save(folder)
            create_run(folder, planned.config)
        ranks.wait()
        if planned.origin is not None:
            trainer.save()  # or --resume would begin without these weights, if it came before the first checkpoint
        return _train(trainer)


def resume(folder: str | Path, *overrides: str, device: str = "auto", console: Console | None = None) -> Run:
    """Go on with a run that was stopped; `train.steps=...` and the like may be changed."""
    console = console or Console()
    with join_ranks(device) as ranks:
        console.quiet = console.quiet or not ranks.first
        run = _changed(open_run(folder), overrides)
        with ranks.first_first():
            task = run.task(device="cpu")
        with _progress(console, run) as progress:
            trainer = _trainer(run, task, build_model(run.config, ranks), ranks, progress)
            if not trainer.resume():
                progress.say("there is no checkpoint yet; the run begins anew")
            elif trainer.is_done():
                remedy = "a larger train.steps (or train.patience) would go on"
                progress.say(f"training has ended at step {trainer.step} and is only measured again; {remedy}")
            if overrides and ranks.first:  # only now, so that a change which does not fit the checkpoint is not kept
                write_config(run.folder, run.config)
            return _train(trainer)


def _changed(run: Run, overrides: Sequence[str]) -> Run:
    """Lay overrides over the config of a run that goes on."""
    wrong = [change for change in overrides if not change.startswith("train.") or change.startswith("train.seed")]
    if wrong:
        kept = "a run that goes on keeps its data, its model and its seed"
        raise ConfigError(f"{wrong[0]!r}: {kept}; only train.* can change")
    table = override(to_table(run.config), overrides)
    training = table["train"]
    if isinstance(training["schedule"], Mapping) and training["schedule"].keys() == {"kind"}:  # another than it had
        training["schedule"] = plan_schedule(training["schedule"]["kind"], run.config.train.steps, begun=False)
    return replace(run, config=from_table(table, RunConfig))


def build_model(config: RunConfig, ranks: Ranks) -> Model:
    """Make the model of a run; the weights begin on the CPU, so that they do not depend on the device."""
    return build(config.model, seed=config.train.seed).to(ranks.device)


def _progress(console: Console, run: Run) -> Progress:
    return Progress(console, run.config.train.steps, max(run.config.train.log_every, run.config.train.steps // 100))


def _trainer(run: Run, task: Task, model: Model, ranks: Ranks, progress: Progress) -> Trainer:
    if ranks.device.type == "cuda":
        torch.set_float32_matmul_precision("high")
    task.to(ranks.device)
    return Trainer(run, task, model, ranks, progress)


def _train(trainer: Trainer) -> Run:
    values = trainer.train()
    if trainer.ranks.first:
        trainer.progress.say(f"done: {trainer.run.folder}", "bold")
        trainer.progress.validation(trainer.best_step, values, True)
        finish(trainer.run, trainer.task, values)
    return trainer.run


def try_updates(planned: Planned, ranks: Ranks, count: int = 3) -> tuple[float, int]:
    """Run a few updates that nobody keeps, fewer if they take long; give the seconds of one, and the memory in use."""
    config, task = planned.config.train, planned.task
    model = build_model(planned.config, ranks)
    task.to(ranks.device)
    order = task.order(model, config.tokens, config.seed)
    update = Update(model, task, config, ranks, len(order.shapes))
    times = []
    for step, draw in enumerate(islice(order.epoch(0), count + 1), 1):
        begun = time.perf_counter()
        float(update(task.batch(draw, 0), step).loss)
        times.append(time.perf_counter() - begun)
        if ranks.largest(int(sum(times) > ENOUGH)):
            break
    return min(times), memory_in_use(ranks.device)


def finish(run: Run, task: Task, values: Mapping[str, float]) -> None:
    """Draw the curves and write the report."""
    draw_curves(run.folder)
    counts = [(name, f"{count:,}") for name, count in task.facts().items()]
    skipped = [("left out", line) for line in task.skipped.report()]
    found = cost(build_empty(run.config.model))
    model = [("kind", str(to_table(run.config.model)["kind"])), ("parameters", f"{found.parameters:,}")]
    training = [(key, _plain(value)) for key, value in to_table(run.config.train).items()]
    final = [(name, f"{value:.4g}") for name, value in values.items()]
    result = ("Result on the validation data", final)
    facts = [result, ("Data", counts + skipped), ("Model", model), ("Training", training)]
    write_report(run.folder, run.folder.name, facts)


def _plain(value: Any) -> str:
    """Write a value, or a table in one line as people do: muon, rate 0.02, momentum 0.95."""
    if not isinstance(value, Mapping):
        return str(value)
    rest = [f"{key} ({_plain(item)})" if isinstance(item, Mapping) else f"{key} {item}" for key, item in value.items()]
    return ", ".join(rest).removeprefix("kind ")


def take_weights(model: Model, origin: Origin, say: Say) -> None:
    """Begin from the weights of another model, where name and shape agree."""
    found, folder = origin.weights(), origin.folder
    own = tensors(model)
    taken = [name for name, tensor in own.items() if name in found and found[name].shape == tensor.shape]
    if not taken:
        raise RegardError(f"{folder}: none of its weights fits this model; --init-from needs a model like it")
    with torch.no_grad():
        for name in taken:
            own[name].copy_(found[name])
    new = sorted(own.keys() - set(taken))
    say(f"{len(taken)} of {len(own)} weights taken from {folder}" + (f"; new: {', '.join(new[:6])}" if new else ""))
