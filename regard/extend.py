"""Your own parts: `register` adds them to the tables of the package, and `import_file` runs a file that does so.

    @regard.register("score", "l2")
    @dataclass(frozen=True)
    class L2Config(ScoreConfig):
        def build(self, query_dim: int, key_dim: int) -> Score:
            return L2()

From then on `score.kind = "l2"` is valid in recipes, overrides and checkpoints. Nothing is imported because a recipe or
a checkpoint names it: the user imports the file, in Python or with `--import FILE`. Walk-throughs: docs/extending.md.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any, TypeVar

from regard.config import Registry
from regard.errors import RegardError, choices

T = TypeVar("T")

REGISTRIES = {  # what can be registered, and the table to which it is added
    "mixer": ("regard.models.stack", "MIXERS"),
    "cell": ("regard.parts.cells", "RECURRENT"),
    "heads": ("regard.parts.heads", "HEADS"),
    "score": ("regard.parts.score", "SCORES"),
    "mask": ("regard.parts.mask", "MASKS"),
    "relative position": ("regard.parts.position", "RELATIVE"),
    "scaling": ("regard.parts.position", "SCALINGS"),
    "absolute position": ("regard.parts.absolute_position", "ABSOLUTE"),
    "feedforward": ("regard.parts.feedforward", "FEEDFORWARDS"),
    "activation": ("regard.parts.feedforward", "ACTIVATIONS"),
    "norm": ("regard.parts.norm", "NORMS"),
    "residual": ("regard.parts.residual", "RESIDUALS"),
    "pool": ("regard.parts.pool", "POOLS"),
    "outer": ("regard.parts.pair", "OUTERS"),
    "head": ("regard.models.head", "HEADS"),
    "pooled head": ("regard.models.head", "POOLED_HEADS"),
    "residue head": ("regard.models.residue_head", "RESIDUE_HEADS"),
    "init": ("regard.models.init", "INITS"),
    "model": ("regard.models.recipe", "MODELS"),
    "task": ("regard.tasks.kinds", "TASKS"),
    "optimizer": ("regard.training.optimizer", "OPTIMIZERS"),
    "schedule": ("regard.training.schedule", "SCHEDULES"),
    "family": ("regard.hub.families", "FAMILIES"),
    "experiment": ("regard.lab.experiments", "EXPERIMENTS"),
}

IMPORTED: list[Path] = []  # files of the user that were run, which other processes must run, too


def open_registry(sort: str) -> Registry[Any]:
    """Return the table of one sort of part, such as "score"."""
    if sort not in REGISTRIES:
        raise RegardError(f"{sort!r} cannot be registered; {choices(sort, REGISTRIES)}")
    module, name = REGISTRIES[sort]
    registry: Registry[Any] = getattr(import_module(module), name)
    return registry


def register(sort: str, name: str) -> Callable[[T], T]:
    """Return a decorator that registers a config class (or a function, or a family) under a name."""
    registry = open_registry(sort)

    def add(item: T) -> T:
        registry.add(name, item)
        return item

    return add


@contextmanager
def registered(*parts: tuple[str, str, Any]) -> Iterator[None]:
    """Register parts, each given by its sort, name and item, for the time of a `with` block only."""
    with ExitStack() as added:
        for sort, name, item in parts:
            registry = open_registry(sort)
            registry.add(name, item)
            added.callback(registry.remove, name)
        yield


def known_only_here() -> list[str]:
    """Return the names that were registered in this process, but not by a file of `--import`."""
    added = [pair for sort in REGISTRIES for pair in open_registry(sort).added().items()]
    modules = [(name, sys.modules.get(getattr(item, "__module__", ""))) for name, item in added]
    files = [(name, getattr(module, "__file__", None)) for name, module in modules]
    return [name for name, file in files if file is None or Path(file).resolve() not in IMPORTED]


def import_file(path: str | Path) -> None:
    """Run a Python file of the user, which registers parts. A file that was imported before is not run again."""
    path = Path(path).resolve()
    if not path.is_file():
        raise RegardError(f"{path}: cannot be imported: there is no such file")
    known = sys.modules.get(path.stem)
    if path in IMPORTED or getattr(known, "__file__", None) == str(path):
        return
    name = path.stem if known is None else f"imported_{path.stem}"
    spec = spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise RegardError(f"{path}: cannot be imported: it must be a Python file (.py)")
    module = module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look up their module by name
    try:
        spec.loader.exec_module(module)
    except BaseException:
        sys.modules.pop(name, None)  # so that the corrected file is run, as after a failed `import`
        raise
    IMPORTED.append(path)
