"""Run an experiment: measure each seed, draw, judge, and write the folder with its page.

settings.json        what was measured; a folder with other settings is refused
seeds/0.jsonl        the rows of seed 0, each as it arrived; `0.part.jsonl` until all are there
results.csv          the rows of the seeds of the last call
NAME.png, NAME.svg   the pictures
recipes/             the resolved recipes of the models
runs/, data/         what was trained, and on which generated files
index.html           the page
.lock                held by the process that measures
"""

import csv
import json
import random
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from io import StringIO
from math import isfinite
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import torch

from regard import __version__
from regard.arguments import check_path
from regard.atomic import explain_write_errors, lock, make_folder, write_text
from regard.data.device import choose_device
from regard.draw import DARK, LIGHT, encode_figure, use_look, write_figure
from regard.errors import RegardError, choices
from regard.lab.experiment import RECIPES, RUNS, Experiment, Lab, Row, Verdict
from regard.lab.experiment import Picture as Picture  # for `from regard.lab import Picture`
from regard.lab.experiments import find_experiment
from regard.lab.page import DrawnPicture, Result, write_lab_page
from regard.models.recipe import load_recipe
from regard.recipe_files import override
from regard.runs.layout import LOCK
from regard.training.settings import left_as_found
from regard.training.stop import StopError
from regard.untrusted import JsonError, parse_json, read_json

SETTINGS, RESULTS, SEEDS, PAGE_FILE = "settings.json", "results.csv", "seeds", "index.html"
LARGEST_SEED = 2**32 - 1  # of numpy
FEW_UPDATES = (
    "These models were trained for a few updates only, since --scale tiny tries an experiment out; without it, they "
    "are trained long enough to decide the claim."
)
LAB = "lab"  # the folder of results that the user gives no name

Say = Callable[[str, float], None]


class LabStopError(RegardError):
    """Ctrl-C or another signal stopped the lab; the exit code is the one that shells expect."""

    def __init__(self, folder: Path, exit_code: int = 130) -> None:
        super().__init__(f"stopped; what was measured is kept in {folder}: the same command continues there")
        self.exit_code = exit_code


def run_experiment(
    experiment: str | Experiment,
    *changes: str,
    scale: str = "default",
    seed: int = 0,
    seeds: int | None = None,
    recipe: str | Path | None = None,
    device: str = "auto",
    out: str | Path | None = None,
    say: Say | None = None,
) -> Result:
    """Measure an experiment, and write plots, a CSV file and a page; return rows, verdict and the path of the page.

    `changes` are settings of the experiment, such as "noise=0.5", that differ from those of the `scale` ("tiny",
    "default" or "full"). `seeds` seeds are measured, from `seed` on. Seeds that a folder has already are not measured
    again. `say` is called with what is being done, and the share of all work that is done.
    """
    found = find_experiment(experiment) if isinstance(experiment, str) else experiment
    name = None if recipe is None else str(recipe)
    folder = check_path(out, "out") if out is not None else default_folder(found.name, scale, name)
    chosen = choose_device(device)
    values = _values(found, scale, changes)
    _check_recipe(found, name)
    settings = {
        "experiment": found.name,
        "scale": scale,
        "changes": list(changes),
        "recipe": name,
        "device": chosen.type,
        "values": parse_json(json.dumps(asdict(values)), "settings"),
        "regard": __version__,
    }
    numbers = _seeds(seed, found.seeds if seeds is None else seeds)
    with _hold_folder(folder, settings), _explain_failures(found, changes):
        rows, seconds = [], 0.0
        try:
            for place, number in enumerate(numbers):
                lab = Lab(
                    number,
                    folder.resolve(),
                    chosen,
                    name,
                    _share(say, f"{found.name}, seed {number}", place, len(numbers)),
                )
                measured = _seed_rows(found, values, lab)
                rows += [{"seed": number, **row} for row in measured.rows]
                seconds += measured.seconds
        except KeyboardInterrupt:
            raise LabStopError(folder) from None
        except StopError as stop:
            raise LabStopError(folder, stop.exit_code) from None
        if say is not None:
            say("drawing", 1.0)
        result = _result(found, folder, settings, rows, seconds, numbers)
        write_lab_page(folder / PAGE_FILE, result)
    return result


def default_folder(name: str, scale: str, recipe: str | None = None) -> Path:
    """Return the folder of an experiment: lab/NAME, or one whose name says what is not as usual."""
    return default_root(scale) / (name if recipe is None else f"{name}-{Path(recipe).stem}")


def default_root(scale: str) -> Path:
    """Return the folder of all experiments at a scale."""
    return Path(LAB if scale == "default" else f"{LAB}-{scale}")


# --- settings --------------------------------------------------------------------------------------------------------


def _values(experiment: Experiment, scale: str, changes: Sequence[str]) -> Any:
    """Return the settings of a scale with the user's changes."""
    if scale not in experiment.scales:
        raise RegardError(f"scale={scale!r} is not a scale of {experiment.name}; {choices(scale, experiment.scales)}")
    values = experiment.scales[scale]
    table = override(asdict(values), changes)
    for name, value in table.items():
        old = getattr(values, name, None)
        if not hasattr(values, name):
            raise RegardError(f"{name}: is not a setting of {experiment.name}; {choices(name, asdict(values))}")
        if isinstance(value, float) and not isfinite(value):
            raise RegardError(f"{name}: {value} must be a finite number")
        fits = type(value) is type(old) or (isinstance(old, float) and type(value) is int)
        if not fits and not (isinstance(old, tuple) and isinstance(value, list | tuple)):
            raise RegardError(f"{name}: {value!r} must be of the kind of {old!r}")
    changed = {
        name: type(getattr(values, name))(value) for name, value in table.items() if value != getattr(values, name)
    }
    return replace(values, **changed)


def _seeds(first: int, count: int) -> range:
    if count < 1:
        raise RegardError(f"seeds={count} must be at least 1")
    if not 0 <= first <= LARGEST_SEED - count:
        raise RegardError(f"seed={first} must be at least 0, and with the seeds after it at most {LARGEST_SEED}")
    return range(first, first + count)


@contextmanager
def _explain_failures(experiment: Experiment, changes: Sequence[str]) -> Iterator[None]:
    """Turn an error into one line where the user's own settings may be the cause: a width of 0, no lengths."""
    try:
        yield
    except RegardError:
        raise
    except Exception as error:
        if not changes:
            raise
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise RegardError(f"{experiment.name}: cannot be measured with {' '.join(changes)}: {reason}") from error


def _check_recipe(experiment: Experiment, recipe: str | None) -> None:
    """Check that the experiment takes a recipe, and that it can be read, before anything is measured."""
    if recipe is not None:
        if not experiment.recipes:
            raise RegardError(f"recipe={recipe!r}: {experiment.name} does not take a recipe; leave it out")
        load_recipe(recipe)


@contextmanager
def _hold_folder(folder: Path, settings: Mapping[str, Any]) -> Iterator[None]:
    """Hold the folder of an experiment; refuse one that has results of other settings, or something else."""
    remedy = "choose another folder with --out"
    path = folder / SETTINGS
    if folder.exists() and not folder.is_dir():
        raise RegardError(f"{folder}: is a file; {remedy}")
    if folder.is_dir() and not path.exists() and any(not item.name.startswith(".") for item in folder.iterdir()):
        raise RegardError(f"{folder}: holds something else; {remedy}")
    make_folder(folder, remedy)
    with lock(folder / LOCK, f"wait until it ends, or {remedy}"):
        if not _has_results(folder):  # nothing was measured, for example because a setting is wrong
            path.unlink(missing_ok=True)
            shutil.rmtree(folder / RECIPES, ignore_errors=True)
        found = read_json(path) if path.exists() else settings
        for name, value in settings.items():
            if found.get(name) != value:
                there = f"{name} is {found.get(name)!r} there and {value!r} here"
                raise RegardError(f"{folder}: holds results of other settings: {there}; {remedy}, or remove it")
        write_text(path, json.dumps(settings, indent=2) + "\n")
        yield


def _has_results(folder: Path) -> bool:
    """Return whether anything was measured in a folder, or a model trained."""
    return (folder / RUNS).exists() or any(path.stat().st_size for path in (folder / SEEDS).glob("*.jsonl"))


# --- measuring -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Measured:
    rows: Sequence[Row]
    seconds: float


def _share(say: Say | None, title: str, place: int, seeds: int) -> Say:
    """Return the function that a lab calls with the share of one seed."""
    if say is None:
        return lambda text, done: None
    return lambda text, done: say(f"{title}: {text}", (place + done) / seeds)


def _seed_rows(experiment: Experiment, values: Any, lab: Lab) -> _Measured:
    """Return the rows of a seed: those that were measured before, or new ones, each written as it arrives."""
    path = lab.folder / SEEDS / f"{lab.seed}.jsonl"
    if path.exists():
        return _read_seed(path)
    make_folder(path.parent)
    part = path.with_suffix(".part.jsonl")
    started, rows = perf_counter(), []
    with explain_write_errors(part), part.open("w", encoding="utf-8") as file, left_as_found(lab.device):
        random.seed(lab.seed)
        np.random.seed(lab.seed)
        torch.manual_seed(lab.seed)
        lab.progress("begins", 0.0)
        for row in experiment.measure(lab, values):
            rows.append({name: _plain(value) for name, value in row.items()})
            print(json.dumps(rows[-1]), file=file, flush=True)
        seconds = perf_counter() - started
        print(json.dumps({"seconds": seconds}), file=file)
    part.replace(path)
    return _Measured(rows, seconds)


def _read_seed(path: Path) -> _Measured:
    try:
        *rows, last = [parse_json(line, path) for line in path.read_text(encoding="utf-8").splitlines()]
        return _Measured(rows, float(last["seconds"]))
    except (OSError, ValueError, TypeError, KeyError, JsonError):
        raise RegardError(f"{path}: is damaged; remove it, and run the command again") from None


def _plain(value: Any) -> str | int | float:
    """Return a text or number of Python for one of numpy or torch."""
    plain = value.item() if hasattr(value, "item") else value
    assert isinstance(plain, str | int | float), f"{value!r} is not a text or number"
    return plain


# --- results ---------------------------------------------------------------------------------------------------------


def _result(
    experiment: Experiment,
    folder: Path,
    settings: Mapping[str, Any],
    rows: Sequence[Row],
    seconds: float,
    seeds: Sequence[int],
) -> Result:
    """Write the table and the pictures of measured rows, and return them with the verdict."""
    write_text(folder / RESULTS, _csv(rows))
    verdict: Verdict = experiment.judge(rows)
    if settings["scale"] == "tiny" and not settings["changes"] and (folder / RUNS).exists():
        verdict = Verdict(None, f"{verdict.text} {FEW_UPDATES}")
    return Result(
        experiment=experiment,
        folder=folder,
        settings=settings,
        seeds=tuple(seeds),
        rows=tuple(rows),
        verdict=verdict,
        pictures=tuple(draw_pictures(lambda: experiment.draw(rows), folder)),
        seconds=seconds,
        page=folder / PAGE_FILE,
        recipes={path.name: path.read_text(encoding="utf-8") for path in _recipes(folder)},
        runs=tuple(sorted(path.parent for path in (folder / RUNS).glob("*/model.safetensors"))),
    )


def _recipes(folder: Path) -> list[Path]:
    """Return the files of the recipes by name; bert-2 comes after bert, and bert-10 after bert-9."""
    return sorted(
        (folder / RECIPES).glob("*.toml"), key=lambda path: (path.stem.rstrip("0123456789-"), len(path.stem), path)
    )


def draw_pictures(draw: Callable[[], Iterable[Picture]], folder: Path) -> Iterator[DrawnPicture]:
    """Draw everything twice, for light and dark pages; write the light ones as files."""
    with use_look(DARK):
        dark = {picture.name: encode_figure(picture.figure, "png") for picture in draw()}
    with use_look(LIGHT):
        for picture in draw():
            for suffix in ("png", "svg"):
                write_figure(picture.figure, folder / f"{picture.name}.{suffix}")
            light = (folder / f"{picture.name}.png").read_bytes()
            yield DrawnPicture(picture.name, picture.caption, light, dark[picture.name])


def _csv(rows: Sequence[Row]) -> str:
    """Return rows as CSV; a column is there if any row has it."""
    columns = list(dict.fromkeys(name for row in rows for name in row))
    text = StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()
