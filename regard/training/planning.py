"""Planning a run: `STAGES`, one after the other, fill in one `Draft` until nothing is left to decide.

What the task suggests (tasks/defaults.py and the task's own file) overrides the recipe, and what the user wrote
overrides both. The source of each value is recorded, with the name of the function that suggested it; `regard train ...
--dry-run` prints them.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, fields, replace
from math import ceil
from pathlib import Path

import torch

from regard.config import Table, from_table, optional_keys, to_table
from regard.data.tokenizer import LEAST, TokenizerConfig
from regard.data.tokenizer_folder import has_tokenizer
from regard.errors import ConfigError
from regard.machine import FREE_CORES, THREADS, suggest_threads
from regard.models.recipe import caution_of_lost_keys
from regard.models.scale import SIZES
from regard.recipe_files import in_file, is_shipped, merge, override, read_own, read_recipe
from regard.tasks.defaults import TaskConfig, suggest_schedule
from regard.tasks.kinds import TASKS
from regard.training.config import RunConfig, TrainConfig
from regard.training.draft import COMMAND_LINE, Draft, RunPlan, Say, chosen_by
from regard.training.interruptions import limit_checkpoints, limit_validations
from regard.training.memory import split_to_fit
from regard.training.model_choice import choose_architecture, choose_model, find_facts
from regard.training.model_table import find_size
from regard.training.ranks import Ranks
from regard.training.request import (
    BY_KIND,
    RunRequest,
    apply_named,
    changed_keys,
    check_tables,
    kind_below,
    not_a_task,
    read_user_choices,
    sort_overrides,
    with_absolute_paths,
    with_plain_paths,
)
from regard.training.suggestions import (
    check_size,
    count_affordable,
    suggest_intervals,
    suggest_patience,
    suggest_recurrent_rates,
    suggest_steps,
    suggest_tokens,
)
from regard.training.trial import time_updates

SECONDS = 1200.0  # about how long a run takes if the user does not say: twenty minutes
UPDATE_SHARE = 0.8  # of the time that `train.minutes` asks for; the rest is for validations
FEW_STEPS = 500  # updates in which a model hardly begins to learn
PRETRAINED_PASSES = 3  # passes over the data for a model that starts from trained weights

EXAMPLE = '{"kind": "language", "train": ["corpus.txt"]}'
NEEDED = {field.name for field in fields(TrainConfig) if field.default is MISSING}


def plan_run(request: RunRequest, ranks: Ranks, say: Say = lambda text: None) -> RunPlan:
    """Read the data and decide everything that the user left open."""
    draft = Draft(request, ranks, say)
    with in_file(request.what, request.overrides):
        for stage in STAGES:
            stage(draft)
        config = _run_config(draft)
    warnings = (*draft.warnings, *_cautions_of_recipes(draft))
    return RunPlan(
        config, draft.task, draft.size, draft.pretrained, draft.sources, request.model, warnings, not draft.named
    )


# --- the stages, in their order --------------------------------------------------------------------------------------


def read_request(draft: Draft) -> None:
    """Read the recipe file or the task's table, and sort the overrides by table."""
    what = draft.request.what
    check_size(draft.request.size)
    if not isinstance(what, str | Path | Mapping):
        raise ConfigError(f"{what!r} is not a task: give its table, such as {EXAMPLE}, or the path of a recipe")
    if isinstance(what, str) and not what.endswith(".toml") and not is_shipped(what):
        raise ConfigError(not_a_task(what))
    from_file = isinstance(what, str | Path)
    draft.given = read_recipe(what) if isinstance(what, str | Path) else {"task": with_plain_paths(what)}
    draft.own = read_own(what) if isinstance(what, str | Path) else draft.given
    draft.origin = f"recipe {what}" if from_file else COMMAND_LINE
    if "task" not in draft.given:
        remedy = f"add it, or name a task and its files: `regard train TASK FILE --recipe {what}`"
        raise ConfigError(f"{what}: has no [task] table; {remedy}; tasks: {', '.join(TASKS)}")
    check_tables(draft.given)
    draft.changes = sort_overrides(draft.request.overrides)
    draft.choices, draft.given["train"] = read_user_choices(draft.given.get("train", {}), draft.changes["train"])


def choose_task(draft: Draft) -> None:
    """Read and check the settings of the task, from which the rest follows."""
    draft.task_table = override({"task": draft.given["task"]}, draft.changes["task"])["task"]
    draft.task_config = from_table(draft.task_table, TaskConfig, "task")
    draft.kind = draft.task_table["kind"]
    draft.note("task", draft.given["task"], draft.origin)
    draft.note_changes("task")


def choose_table_columns(draft: Draft) -> None:
    """Decide which columns of tables are read: those of the first table, which the others must have, too."""
    config = draft.task_config.with_columns()
    for role in config.roles:
        column = getattr(config, role.key)
        if column is not None and role.key not in draft.task_table:
            draft.task_table = {**draft.task_table, role.key: column}
            draft.note(f"task.{role.key}", column, chosen_by("the first table", config.with_columns))
    draft.task_config = config


def choose_length(draft: Draft) -> None:
    """Choose how many tokens a row has: at most as many as the model has positions."""
    key, given = draft.task_config.length_key, draft.given.get("model", {})
    positions = find_size(merge(draft.base, given), draft.changes["model"], "model.embed.position", "length")
    if key is None:
        return
    if key in draft.task_table:
        length = draft.task_table[key]
        if positions is not None and length > positions:
            remedy = "lower it, or raise model.embed.position.length"
            rule = f"{length} tokens are more than the {positions} positions of the model"
            raise ConfigError(f"{rule}; {remedy}", f"task.{key}")
        return
    length = draft.task_config.suggest_length(draft.device, positions)
    if length is not None:
        draft.task_table = {key: length, **draft.task_table}
        draft.task_config = from_table(draft.task_table, TaskConfig, "task")
        draft.note(
            f"task.{key}", length, chosen_by("the data, the device and the model", draft.task_config.suggest_length)
        )


def choose_settings(draft: Draft) -> None:
    """Choose settings of the task that suit its own recipe."""
    if draft.named or draft.pretrained is not None:
        return
    found = draft.task_config.suggest_settings(draft.device)
    suggested = {key: value for key, value in found.items() if key not in draft.task_table}
    draft.note("task", suggested, chosen_by("the data and the device", draft.task_config.suggest_settings))
    draft.task_table = suggested | draft.task_table
    draft.task_config = from_table(draft.task_table, TaskConfig, "task")


def choose_tokenizer(draft: Draft) -> None:
    """Choose the tokenizer, if the task has one: the trained model's own, or one that is learned from the data."""
    config, given = draft.task_config, draft.given.get("tokenizer") or {}
    said = apply_named({"tokenizer": given}, draft.changes["tokenizer"], "tokenizer.kind", "tokenizer.vocabulary")
    pieces = "vocabulary" in said["tokenizer"] and "kind" not in said["tokenizer"]
    suggested = config.suggest_tokenizer(pieces)
    draft.tokenizer = None
    if suggested is None:
        return
    source = chosen_by("the data", config.suggest_tokenizer)
    if draft.pretrained is not None and has_tokenizer(draft.pretrained.folder):
        suggested, source = {"path": str(draft.pretrained.folder)}, f"--init-from {draft.pretrained.folder}"
    table = override({"tokenizer": merge(suggested, given)}, draft.changes["tokenizer"])["tokenizer"]
    draft.note("tokenizer", suggested, source)
    draft.note("tokenizer", given, draft.origin)
    draft.note_changes("tokenizer")
    tokenizer = from_table(table, TokenizerConfig, "tokenizer")
    if tokenizer.path is None and tokenizer.kind in LEAST and tokenizer.vocabulary is None:
        tokenizer = replace(tokenizer, vocabulary=config.suggest_vocabulary())
        draft.note("tokenizer.vocabulary", tokenizer.vocabulary, chosen_by("the data", config.suggest_vocabulary))
    elif tokenizer.path is None and tokenizer.kind not in LEAST and tokenizer.vocabulary is not None:
        rule = f"{tokenizer.vocabulary} is not for kind {tokenizer.kind!r}, whose size the text decides"
        remedy = f"leave it out, or use tokenizer.kind={' or '.join(LEAST)}"
        raise ConfigError(f"{rule}; {remedy}", "tokenizer.vocabulary")
    draft.tokenizer = tokenizer


def prepare_data(draft: Draft) -> None:
    """Read and tokenise the data; the first process does so before the others, which find its result in the cache."""
    with draft.ranks.rank_zero_first():
        draft.task = draft.task_config.prepare(draft.tokenizer, draft.choices.seed, draft.say)


def choose_training(draft: Draft) -> None:
    """Choose the number of updates, their size, the optimizer and the schedule; the user's settings override them."""
    config, chosen, amount = draft.task_config, draft.choices, draft.task.amount()
    pretrained = draft.pretrained is not None
    tokens = max(chosen.tokens, 0) or suggest_tokens(config, amount, draft.device)
    model = find_facts(draft)
    seconds = SECONDS if chosen.minutes is None else 60 * chosen.minutes * UPDATE_SHARE
    affordable = count_affordable(seconds, model.flops, tokens, draft.device)
    passes = min(config.passes, PRETRAINED_PASSES) if pretrained else config.passes
    wanted = passes * amount.tokens / tokens if chosen.minutes is None else affordable
    steps = max(chosen.steps, 0) or suggest_steps(wanted, affordable)
    if not chosen.steps and affordable < wanted:
        _warn_of_few_steps(draft, steps)
    optimizer = chosen.optimizer or config.suggest_optimizer_kind(pretrained)
    schedule = chosen.schedule or config.suggest_schedule_kind(optimizer, pretrained)
    task = f"task {draft.kind}"
    rates = config.suggest_optimizer(optimizer, model.dim, pretrained)
    rates_by = chosen_by(task, config.suggest_optimizer)
    if model.recurrent and optimizer == "muon" and not pretrained:
        rates, rates_by = suggest_recurrent_rates(rates), chosen_by("recurrent models", suggest_recurrent_rates)
    suggested: list[tuple[Table, str]] = [
        ({"steps": steps}, chosen_by("the data, the device and the model", suggest_steps)),
        ({"tokens": tokens}, chosen_by("the data and the device", suggest_tokens)),
        ({"clip": 1.0}, chosen_by("all tasks", choose_training)),
        (suggest_intervals(steps), chosen_by("train.steps", suggest_intervals)),
        ({"optimizer": rates}, rates_by),
        (
            {"schedule": suggest_schedule(schedule, steps, pretrained)},
            chosen_by(f"{task} and train.steps", suggest_schedule),
        ),
        (config.suggest_training(), chosen_by(task, config.suggest_training)),
    ]
    for table, source in suggested:
        draft.note("train", table, source)
    plan = {key: value for table, _ in suggested for key, value in table.items()}
    said = draft.given["train"].keys() | changed_keys(draft.changes["train"])
    if "validate_every" in said:  # then the user wants all of them, even if it is what is suggested
        plan["rare_until"] = 0.0
        draft.note("train.rare_until", 0.0, chosen_by("train.validate_every", choose_training))
    every = _with_user_training(draft, plan).get("validate_every")  # which the user may have chosen
    plan["patience"] = suggest_patience(steps, every)
    draft.note("train.patience", plan["patience"], chosen_by("train.steps, train.validate_every", suggest_patience))
    draft.train_table = _with_user_training(draft, plan)


def fit_to_minutes(draft: Draft) -> None:
    """If the user asked for a time, choose the number of updates from the speed of a few trial updates."""
    if draft.choices.minutes is None:
        return
    draft.say("trying a few updates")
    trial = time_updates(_run_config(draft), draft.task, draft.ranks, draft.request.model)
    slowest = draft.ranks.largest(ceil(trial.seconds * 1e6)) / 1e6  # all processes must agree
    seconds = 60 * draft.choices.minutes * UPDATE_SHARE - draft.ranks.largest(ceil(trial.compiling))
    steps = max(1, int(seconds / slowest))
    draft.choices = replace(draft.choices, steps=steps)
    draft.warnings.clear()
    for stage in (choose_training, limit_validations, limit_checkpoints, choose_threads, fit_to_memory):
        stage(draft)
    draft.note("train.steps", steps, chosen_by("train.minutes and the speed of a few updates", fit_to_minutes))
    if steps < FEW_STEPS:
        _warn_of_few_steps(draft, steps)


def choose_threads(draft: Draft) -> None:
    """Choose how many threads compute on a CPU: the cores that the process may use and that other programs leave."""
    said = draft.train_table.keys() | changed_keys(draft.changes["train"])  # of `none`, the table has nothing
    if draft.device != "cpu" or "threads" in said or draft.given["train"].keys() >= NEEDED:
        return
    is_set = THREADS in os.environ  # by the user, by `regard --threads`, or to the free cores when the command began
    threads = torch.get_num_threads() if is_set else min(torch.get_num_threads(), suggest_threads())
    by_user = is_set and FREE_CORES not in os.environ
    source = THREADS if by_user else chosen_by("the free cores of the machine", choose_threads)
    draft.train_table = {**draft.train_table, "threads": threads}
    draft.note("train.threads", threads, source)


def fit_to_memory(draft: Draft) -> None:
    """Compare the memory that the run needs with what is available, and split updates that are too large for it."""
    if draft.model is None:
        return
    config = from_table(draft.train_table, TrainConfig, "train")
    remedy = "use a smaller --size or model.dim, or free some memory"
    parts, warning = split_to_fit(draft.model, config, draft.task, draft.ranks, remedy)
    if warning:
        draft.train_table = {**draft.train_table, "accumulate": parts}
        draft.warnings.append(warning)
        draft.note("train.accumulate", parts, chosen_by("the memory of the machine", fit_to_memory))


STAGES: tuple[Callable[[Draft], None], ...] = (
    read_request,
    choose_task,
    choose_table_columns,
    choose_architecture,
    choose_length,
    choose_settings,
    choose_tokenizer,
    prepare_data,
    choose_model,
    choose_training,
    limit_validations,
    limit_checkpoints,
    choose_threads,
    fit_to_memory,
    fit_to_minutes,
)


def _cautions_of_recipes(draft: Draft) -> Iterator[str]:
    """Yield cautions of the recipes that the user named."""
    named = [recipe for recipe in (draft.request.what, draft.request.recipe) if isinstance(recipe, str | Path)]
    if draft.model is not None:
        yield from filter(None, (caution_of_lost_keys(recipe, draft.model) for recipe in named))


def _run_config(draft: Draft) -> RunConfig:
    """Return the config of the run; its paths are absolute, so that it can be resumed from any folder."""
    table: Table = {key: draft.given[key] for key in ("about", "paper") if key in draft.given}
    table["task"] = with_absolute_paths(to_table(draft.task.config), draft.task_config.file_keys)
    table["train"] = draft.train_table
    if draft.model is not None:
        table["model"] = to_table(draft.model)
    if draft.tokenizer is not None:
        table["tokenizer"] = with_absolute_paths(to_table(draft.tokenizer), ("path",))
    return from_table(table, RunConfig)


def _with_user_training(draft: Draft, plan: Table) -> Table:
    """Return the plan with the values of the recipe, and then the overrides, in place of its own.

    If an override names another kind of optimizer or schedule than the recipe, the recipe's table is dropped.
    """
    given = draft.given["train"]
    own = {
        key: value
        for key, value in given.items()
        if key not in BY_KIND or kind_below(given, key) in ("", getattr(draft.choices, key))
    }
    replaced = {"steps"} if draft.choices.minutes is not None else set()
    if given.keys() | replaced >= NEEDED:  # a complete table comes from a run: a missing key is meant to be absent
        plan = {key: plan[key] for key in (given.keys() - own.keys()) | replaced}
    draft.note("train", own, draft.origin)
    draft.note_changes("train")
    optional = optional_keys(TrainConfig, "train")
    return override({"train": merge(plan, own)}, draft.changes["train"], optional)["train"]


def _warn_of_few_steps(draft: Draft, steps: int) -> None:
    """Warn of a run that is too short for its model to learn."""
    if steps >= FEW_STEPS:
        return
    smaller = [name for name, size in SIZES.items() if draft.model is not None and size.dim < draft.model.dim]
    fixed = draft.pretrained is not None or draft.request.model is not None
    remedies = [f"use --size {smaller[-1]}"] if smaller and not fixed else []
    remedies.append("ask for more with train.steps or train.minutes")
    minutes = SECONDS / 60 if draft.choices.minutes is None else draft.choices.minutes
    rule = f"only {steps} updates fit into {minutes:g} min, too few for this model to learn"
    draft.warnings.append(f"{rule}; {', or '.join(remedies)}")
