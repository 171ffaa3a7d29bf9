"""Starting runs: from files, from a recipe, from another model's weights, or from where a run was stopped."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from regard.config import Table, from_table, merge, override, read_recipe, to_table
from regard.data.tokenizer import TokenizerConfig
from regard.errors import ConfigError, RegardError, choices
from regard.models.count import cost
from regard.models.model import Model
from regard.models.recipe import ModelConfig, build, build_empty
from regard.models.store import load_model, tensors
from regard.tasks.kinds import TASKS, TaskConfig
from regard.tasks.task import Task, fit
from regard.train.config import RunConfig
from regard.train.loop import Trainer
from regard.train.memory import memory_in_use
from regard.train.plan import (
    Amount,
    choose_size,
    fit_patches,
    plan_model,
    plan_task,
    plan_tokenizer,
    plan_train,
)
from regard.train.progress import Progress
from regard.train.ranks import Ranks, join_ranks
from regard.train.report import draw_curves, write_report
from regard.train.run import Run, create_run, open_run, write_config
from regard.train.update import Update

Say = Callable[[str], None]
TABLES = ("task", "tokenizer", "model", "train")


@dataclass(frozen=True)
class _TaskTable:
    task: TaskConfig


@dataclass(frozen=True)
class _ModelTable:
    model: ModelConfig


@dataclass(frozen=True)
class _TokenizerTable:
    tokenizer: TokenizerConfig


@dataclass(frozen=True)
class Planned:
    """A run that is decided but not begun."""

    config: RunConfig
    task: Task
    size: str | None  # None: a recipe's own


def train(
    what: str | Path | Mapping[str, Any],
    *overrides: str,
    run: str | Path | None = None,
    size: str = "auto",
    recipe: str | Path | None = None,
    init_from: str | Path | None = None,
    device: str = "auto",
    console: Console | None = None,
) -> Run:
    """Train a model and return the run: `train({"kind": "language", "train": ["corpus.txt"]}, "train.steps=500")`.

    `what` is a task's table as in a recipe, or the path of a recipe that has one. `recipe` names another
    architecture than the task's own; `init_from` is a folder whose weights (and tokenizer) are the beginning.
    """
    console = console or Console()
    with join_ranks(device) as ranks:
        planned = plan(what, *overrides, size=size, recipe=recipe, init_from=init_from, ranks=ranks)
        folder = run_folder(run, planned.task.name, ranks)
        return begin(planned, folder, ranks, console, init_from)


def plan(
    what: str | Path | Mapping[str, Any],
    *overrides: str,
    size: str = "auto",
    recipe: str | Path | None = None,
    init_from: str | Path | None = None,
    ranks: Ranks,
    say: Say = lambda text: None,
) -> Planned:
    """Read the data and decide everything that nobody decided."""
    given = read_recipe(what) if isinstance(what, str | Path) else {"task": dict(what)}
    if "task" not in given:
        raise ConfigError(f"{what} says nothing about the task; add a [task] table with kind = {choices('', TASKS)}")
    changes = _by_table(overrides)
    device = ranks.device.type
    task_table = plan_task(override({"task": given["task"]}, changes["task"])["task"], device)
    task_config: Any = from_table({"task": task_table}, _TaskTable).task
    tokenizer = _tokenizer(task_table, given.get("tokenizer"), changes["tokenizer"], init_from)
    train_table = override({"train": given.get("train", {})}, changes["train"])["train"]
    with ranks.first_first():
        task: Task = task_config.prepare(tokenizer, train_table.get("seed", 0), say)
    amount = _amount(task)
    model, chosen = _model(task, given.get("model"), changes["model"], size, recipe, init_from, amount, device)
    flops = cost(build_empty(model)).flops_per_token
    train_table = merge(plan_train(task.name, chosen or "base", amount, flops, device), given.get("train", {}))
    train_table = override({"train": train_table}, changes["train"])["train"]
    table: Table = {key: given[key] for key in ("about", "paper") if key in given}
    table |= {"task": to_table(task.config), "model": to_table(model), "train": train_table}
    if tokenizer is not None:
        table["tokenizer"] = to_table(tokenizer)
    return Planned(from_table(table, RunConfig), task, chosen)


def _by_table(overrides: Sequence[str]) -> dict[str, list[str]]:
    """Sort overrides by the table they change, since some are needed before others can be known."""
    sorted_: dict[str, list[str]] = {name: [] for name in TABLES}
    for change in overrides:
        table = change.partition("=")[0].partition(".")[0].strip()
        if table not in sorted_ or "=" not in change:
            raise ConfigError(f"override {change!r} must have the form table.key=value; tables: {', '.join(TABLES)}")
        sorted_[table].append(change)
    return sorted_


def _tokenizer(
    task: Mapping[str, Any], given: Mapping[str, Any] | None, changes: list[str], init_from: str | Path | None
) -> TokenizerConfig | None:
    chosen = plan_tokenizer(task)
    if chosen is None:
        return None
    if init_from is not None and (Path(init_from) / "tokenizer.json").exists():
        chosen = {"path": str(init_from)}
    table = override({"tokenizer": merge(chosen, given or {})}, changes)["tokenizer"]
    return from_table({"tokenizer": table}, _TokenizerTable).tokenizer


def _amount(task: Task) -> Amount:
    facts = list(task.facts().items())
    by_name = dict(facts)
    rows = facts[0][1]
    return Amount(rows, by_name.get("tokens", by_name.get("target tokens", rows * 64)))


def _model(
    task: Task,
    given: Mapping[str, Any] | None,
    changes: list[str],
    size: str,
    recipe: str | Path | None,
    init_from: str | Path | None,
    amount: Amount,
    device: str,
) -> tuple[ModelConfig, str | None]:
    """Decide the architecture: what the recipe says, or what it is begun from, or the task's own in some size."""
    chosen: str | None = choose_size(size, amount, device)
    own = given is not None and "kind" in given  # a whole model, and not a change of the task's own
    sources = [name for name, is_given in (("--recipe", recipe), ("--init-from", init_from)) if is_given]
    if own:
        sources.append("the recipe's [model]")
    if (len(sources) > 1 and not (own and recipe is None)) or (sources and size != "auto"):
        clash = [*sources, *(["--size"] if size != "auto" else [])]
        raise ConfigError(f"{' and '.join(clash)} each decide the model; give one of them")
    if recipe is not None:
        base, chosen = _table_of(read_recipe(recipe)["model"], given), None
    elif own and given is not None:
        base, chosen = dict(given), None
    elif init_from is not None:
        base, chosen = _table_of(to_table(load_model(init_from).config), given), None
    else:
        assert chosen is not None
        base = _table_of(plan_model(task.name, chosen, amount), given)
    if task.name == "vision" and not own:
        needs = task.needs()["patches"]
        base = fit_patches(base, needs["height"], needs["width"])
    table = fit(base, task.needs(), given=own)
    table = override({"model": table}, changes)["model"]
    fit(table, task.needs(), given=True)  # an override may not contradict the data either
    return from_table({"model": table}, _ModelTable).model, chosen


def _table_of(base: Mapping[str, Any], change: Mapping[str, Any] | None) -> Table:
    return merge(base, change or {})


def run_folder(run: str | Path | None, task: str, ranks: Ranks) -> Path:
    """Take the folder that was named, or the next free one."""
    if run is not None:
        return Path(run)
    number = 1
    while (Path("runs") / f"{task}-{number}").exists():
        number += 1
    ranks.wait()  # before the first process makes it, or the others would take the next
    return Path("runs") / f"{task}-{number}"


def begin(planned: Planned, folder: Path, ranks: Ranks, console: Console, init_from: str | Path | None = None) -> Run:
    """Make the run folder and train."""
    run = create_run(folder, planned.config) if ranks.first else Run(folder, planned.config)
    ranks.wait()
    if ranks.first:
        planned.task.save(folder)
    model = build_model(planned.config, ranks)
    with _progress(console, run) as progress:
        if init_from is not None:
            take_weights(model, init_from, progress.say)
        return _train(run, planned.task, model, ranks, progress, resume=False)


def resume(folder: str | Path, *overrides: str, device: str = "auto", console: Console | None = None) -> Run:
    """Go on with a run that was stopped; `train.steps=...` and the like may be changed."""
    console = console or Console()
    run = open_run(folder)
    if overrides:
        wrong = [change for change in overrides if not change.startswith("train.")]
        if wrong:
            raise ConfigError(f"{wrong[0]!r}: a run that goes on keeps its data and its model; only train.* can change")
        run = replace(run, config=from_table(override(to_table(run.config), overrides), RunConfig))
    with join_ranks(device) as ranks:
        with ranks.first_first():
            task = run.task(device="cpu")
        if overrides and ranks.first:
            write_config(run.folder, run.config)
        with _progress(console, run) as progress:
            return _train(run, task, build_model(run.config, ranks), ranks, progress, resume=True)


def build_model(config: RunConfig, ranks: Ranks) -> Model:
    """Make the model of a run; the weights begin on the CPU, so that they do not depend on the device."""
    return build(config.model, seed=config.train.seed).to(ranks.device)


def _progress(console: Console, run: Run) -> Progress:
    return Progress(console, run.config.train.steps, max(run.config.train.log_every, run.config.train.steps // 100))


def _train(run: Run, task: Task, model: Model, ranks: Ranks, progress: Progress, resume: bool) -> Run:
    if ranks.device.type == "cuda":
        torch.set_float32_matmul_precision("high")
    task.to(ranks.device)
    trainer = Trainer(run, task, model, ranks, progress)
    if resume and not trainer.resume():
        progress.say("there is no checkpoint yet; the run begins anew")
    values = trainer.train()
    if ranks.first:
        progress.say(f"done: {run.folder}", "bold")
        progress.validation(trainer.best_step, values, True)
        finish(run, task, values)
    return run


def try_updates(planned: Planned, ranks: Ranks, count: int = 3) -> tuple[float, int]:
    """Run a few updates that nobody keeps; give the seconds of one, and the memory in use."""
    config, task = planned.config.train, planned.task
    model = build_model(planned.config, ranks)
    task.to(ranks.device)
    update = Update(model, task, config, ranks)
    order = task.order(model, config.tokens, config.accumulate * ranks.world, config.seed)
    times = []
    for step, draw in enumerate(islice(order.epoch(0), count + 1), 1):
        begun = time.perf_counter()
        float(update(task.batch(draw, 0), step).loss)
        times.append(time.perf_counter() - begun)
    return min(times), memory_in_use(ranks.device)


def finish(run: Run, task: Task, values: Mapping[str, float]) -> None:
    """Draw the curves and write the report."""
    draw_curves(run.folder)
    counts = [(name, f"{count:,}") for name, count in task.facts().items()]
    skipped = [("left out", line) for line in task.skipped.report()]
    found = cost(build_empty(run.config.model))
    model = [("kind", str(to_table(run.config.model)["kind"])), ("parameters", f"{found.parameters:,}")]
    training = [(key, str(value)) for key, value in to_table(run.config.train).items()]
    final = [(name, f"{value:.4g}") for name, value in values.items()]
    result = ("Result on the validation data", final)
    facts = [result, ("Data", counts + skipped), ("Model", model), ("Training", training)]
    write_report(run.folder, run.folder.name, facts)


def take_weights(model: Model, folder: str | Path, say: Say) -> None:
    """Begin from the weights of another model, where name and shape agree."""
    found = tensors(load_model(folder))
    own = tensors(model)
    taken = [name for name, tensor in own.items() if name in found and found[name].shape == tensor.shape]
    if not taken:
        raise RegardError(f"{folder}: none of its weights fits this model; --init-from needs a model like it")
    with torch.no_grad():
        for name in taken:
            own[name].copy_(found[name])
    new = sorted(own.keys() - set(taken))
    say(f"{len(taken)} of {len(own)} weights taken from {folder}" + (f"; new: {', '.join(new[:6])}" if new else ""))
