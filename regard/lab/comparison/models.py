"""What is compared: recipes by name or file, folders of finished runs, and the task that all of them can learn."""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import Any

from regard.config import kind_of
from regard.data.tables import is_table
from regard.errors import ConfigError, InputError, choices
from regard.models.recipe import MODELS
from regard.models.store import WEIGHTS
from regard.recipe_files import read_recipe, recipe_names
from regard.runs.folder import is_run, not_a_run, read_run
from regard.tasks.kinds import TASKS
from regard.training.model_table import check_kind

NAMES_OF_RUNS = "give the name of a recipe, a recipe file (.toml) or the folder of a run"


@dataclass(frozen=True)
class Contender:
    """A model to compare: an architecture that is trained (`recipe`), or a run that is trained already (`run`)."""

    name: str
    recipe: str | Path | None = None
    run: Path | None = None

    @property
    def is_shipped(self) -> bool:
        """Whether it is a recipe of the package, which is scaled to suit the data."""
        return self.recipe is not None and str(self.recipe) in recipe_names()


def find_contenders(models: Iterable[object]) -> list[Contender]:
    """Find what is compared: names of recipes, recipe files, run folders."""
    found = [_find_contender(model) for model in models]
    if not found:
        raise ConfigError(f"nothing to compare; {NAMES_OF_RUNS}")
    for place, one in enumerate(found):
        for other in found[:place]:
            if one.name == other.name:
                given = sorted({str(each.recipe or each.run) for each in (one, other)})
                rule = f"{given[0]} is given twice" if len(given) == 1 else f"{' and '.join(given)} have the same name"
                raise ConfigError(f"{rule} ({one.name!r}); leave one of them out, or rename it")
    return found


def _find_contender(model: object) -> Contender:
    if not isinstance(model, str | os.PathLike):
        raise ConfigError(f"{model!r} cannot be compared; {NAMES_OF_RUNS}")
    text, path = str(os.fspath(model)), Path(model)
    named = text in recipe_names()
    if is_run(path):
        if named:
            raise ConfigError(f"{text!r} is both a recipe and a run; write ./{text} for the run")
        if not (path / WEIGHTS).is_file():
            remedy = f"finish it with: regard train --resume {quote(text)}"
            raise InputError(f"{text}: this run has no weights yet; {remedy}")
        return Contender(text, run=path)
    if named:
        return Contender(text, recipe=text)
    if text.endswith(".toml"):
        return Contender(path.stem, recipe=path)
    if path.exists():
        raise InputError(not_a_run(path, NAMES_OF_RUNS) if path.is_dir() else f"{text}: is a file; {NAMES_OF_RUNS}")
    raise ConfigError(f"{text!r} is neither a recipe nor a run; {choices(text, recipe_names())}")


def find_task(contenders: Sequence[Contender], files: Sequence[str], asked: str | None) -> str:
    """Return the kind of the task: as asked for, or the only one that all models and the files allow."""
    if asked is not None:
        if asked not in TASKS:
            raise ConfigError(f"unknown task {asked!r}; {choices(asked, TASKS)}")
        for contender in contenders:
            _check_task(contender, asked)
        return asked
    able = {contender.name: _tasks_of(contender) for contender in contenders}
    common = [task for task in TASKS if all(task in tasks for tasks in able.values())]
    if len(common) > 1 and not any(is_table(Path(name)) for name in files):
        common = [task for task in common if task != "classification"]  # which needs tables
    if len(common) == 1:
        return common[0]
    if not common:
        listed = "; ".join(f"{name}: {', '.join(tasks)}" for name, tasks in able.items())
        raise ConfigError(f"these models learn different tasks, so they cannot be compared ({listed})")
    raise ConfigError(f"the models can learn several tasks on this data; choose one with task={' or '.join(common)}")


def _tasks_of(contender: Contender) -> list[str]:
    """Return the kinds of tasks that a model can learn, or was trained for."""
    if contender.run is not None:
        return [kind_of(type(read_run(contender.run).task_config)) or ""]
    kind = str(_model_table(contender).get("kind"))
    return [task for task in TASKS if kind in TASKS[task].models or task in getattr(MODELS.get(kind), "tasks", ())]


def _check_task(contender: Contender, task: str) -> None:
    """Check that a model can learn the task, or that a run was trained for it."""
    if contender.run is not None:
        [trained] = _tasks_of(contender)
        if trained != task:
            raise InputError(f"{contender.name}: was trained for {trained}, not for {task}; leave it out")
        return
    with naming_recipe(contender):
        check_kind(task, _model_table(contender).get("kind"))


def _model_table(contender: Contender) -> Mapping[str, Any]:
    assert contender.recipe is not None
    model = read_recipe(contender.recipe).get("model")
    if not isinstance(model, Mapping):
        raise ConfigError(f"{contender.recipe}: has no [model] table; add one, or give another recipe")
    return model


@contextmanager
def naming_recipe(contender: Contender) -> Iterator[None]:
    """Put the name of the recipe in front of mistakes of its model."""
    try:
        yield
    except ConfigError as error:
        if not error.path.startswith("model"):
            raise
        raise ConfigError(error.rule, f"{contender.name}: {error.path}") from None
