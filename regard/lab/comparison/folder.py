"""The folder of a comparison: found again by its settings, and held by one process at a time."""

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from regard.atomic import explain_write_errors, lock, make_folder, write_text
from regard.config import from_table, to_toml
from regard.errors import RegardError
from regard.lab.comparison.models import Contender
from regard.lab.comparison.plan import ComparePlan, CompareSettings, differing_key
from regard.recipe_files import read_recipe
from regard.runs.layout import LOCK
from regard.training.config import RunConfig
from regard.untrusted import JsonError, read_json

COMPARISONS = Path("comparisons")  # where comparisons are that the user gives no folder
SHARED, RECIPES_OF = "comparison.json", "recipes"
REMEDY = "choose another folder with --out"


@dataclass(frozen=True)
class CompareRequest:
    """What is compared, and where."""

    contenders: Sequence[Contender]
    files: Sequence[str]
    valid: Sequence[str]
    seeds: int
    changes: Sequence[str]
    device: str
    folder: Path
    settings: CompareSettings

    def command(self) -> str:
        """Return the command that continues the comparison."""
        words = ["regard", "compare", *(str(each.recipe or each.run) for each in self.contenders)]
        for option, names in (("--on", self.files), ("--valid", self.valid)):
            words += [word for name in names for word in (option, name)]
        words += ["--task", self.settings.task["kind"]]
        if budget := self.settings.budget:
            words += [f"--{budget.unit}", f"{budget.amount:.15g}"]
        words += ["--seeds", str(self.seeds)]
        words += ["--size", self.settings.size] if self.settings.size != "auto" else []
        words += ["--parameters", f"{self.settings.parameters:.15g}"] if self.settings.parameters else []
        words += ["--own-optimizer"] if self.settings.own_optimizer else []
        words += ["--device", self.device] if self.device != "auto" else []
        return shlex.join([*words, "--out", str(self.folder), *self.changes])

    def recipe(self, name: str) -> Path:
        """Return where the complete recipe of a model is."""
        return self.folder / RECIPES_OF / f"{name}.toml"


def find_folder(settings: CompareSettings, kind: str, out: Path | None) -> Path | None:
    """Return the folder `out`, or the one that has a comparison with these settings; None if there is none yet."""
    if out is None:
        for path in sorted(COMPARISONS.glob(f"{kind}-*/{SHARED}")) if COMPARISONS.is_dir() else []:
            with suppress(RegardError):  # another comparison may be damaged
                if _shared(path).get("settings") == settings.table():
                    return path.parent
        return None
    if out.exists() and not out.is_dir():
        raise RegardError(f"{out}: is a file; {REMEDY}")
    path = out / SHARED
    if not path.exists():
        if out.is_dir() and any(not item.name.startswith(".") for item in out.iterdir()):
            raise RegardError(f"{out}: holds something else; {REMEDY}")
        return out
    there, here = _shared(path).get("settings", {}), settings.table()
    for name, value in here.items():
        if there.get(name) != value:
            rule = f"{name} is {there.get(name)!r} there and {value!r} here"
            raise RegardError(f"{out}: holds a comparison with other settings: {rule}; {REMEDY}")
    return out


def _shared(path: Path) -> dict[str, Any]:
    try:
        return read_json(path)
    except JsonError as error:
        raise RegardError(f"{path}: {error.reason}; {REMEDY}, or remove this one") from None


def stored_recipes(folder: Path | None) -> dict[str, RunConfig]:
    """Return the complete recipes of a comparison that is continued, by model."""
    if folder is None:
        return {}
    return {
        path.stem: from_table(read_recipe(path), RunConfig) for path in sorted((folder / RECIPES_OF).glob("*.toml"))
    }


def check_stored(folder: Path | None, plan: ComparePlan, stored: Mapping[str, RunConfig]) -> None:
    """Check that what was trained before is what would be trained now."""
    if folder is None or not (folder / SHARED).exists():
        return
    if _shared(folder / SHARED).get("data") != plan.task.fingerprint():
        raise RegardError(f"{folder}: the data has changed since this comparison began; restore it, or {REMEDY}")
    for recipe in plan.recipes:
        name = recipe.contender.name
        key = differing_key(stored[name], recipe.config) if name in stored else None
        if key is not None:
            rule = f"{name} has changed since this comparison began: {key}"
            raise RegardError(f"{folder}: {rule}; give it another name, or {REMEDY}")


@contextmanager
def hold_comparison(
    found: Path | None, settings: CompareSettings, kind: str, plan: ComparePlan | None
) -> Iterator[Path]:
    """Take the folder, write what all runs share, and hold its lock during the block."""
    folder = found or _next_folder(kind)
    make_folder(folder, REMEDY)
    with lock(folder / LOCK, f"wait until it ends, or {REMEDY}"):
        shared = {"settings": settings.table(), "data": None if plan is None else plan.task.fingerprint()}
        write_text(folder / SHARED, json.dumps(shared, indent=2, ensure_ascii=False) + "\n", REMEDY)
        for recipe in () if plan is None else plan.recipes:
            path = folder / RECIPES_OF / f"{recipe.contender.name}.toml"
            if not path.exists():
                make_folder(path.parent)
                write_text(path, to_toml(recipe.config))
        yield folder


def _next_folder(kind: str) -> Path:
    """Create the next folder of comparisons."""
    for number in count(1):
        folder = COMPARISONS / f"{kind}-{number}"
        with explain_write_errors(folder, REMEDY), suppress(FileExistsError):
            COMPARISONS.mkdir(exist_ok=True)
            folder.mkdir()
            return folder
    raise AssertionError
