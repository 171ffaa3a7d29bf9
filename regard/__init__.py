"""regard: attention models from the RNN to today's LLM, each a few lines of data over the same few parts.

    import regard
    model = regard.build("gpt2", "model.depth=4")
    with regard.watch(model) as tape:
        model(tokens)

Torch is imported when a name is first used, so that the command line answers at once.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from regard.errors import ConfigError, InputError, RegardError
    from regard.models.count import cost
    from regard.models.recipe import build, load_recipe
    from regard.models.store import save_model
    from regard.parts.attend import watch
    from regard.runs.weights import load_model
    from regard.training.run import open_run
    from regard.training.start import resume, train
    from regard.use.convert import convert
    from regard.use.load import load
    from regard.viewer.notebook import look

__version__ = "0.1.0"

_HOMES = {
    "ConfigError": "regard.errors",
    "InputError": "regard.errors",
    "RegardError": "regard.errors",
    "build": "regard.models.recipe",
    "convert": "regard.use.convert",
    "cost": "regard.models.count",
    "load": "regard.use.load",
    "load_model": "regard.runs.weights",
    "load_recipe": "regard.models.recipe",
    "look": "regard.viewer.notebook",
    "open_run": "regard.training.run",
    "resume": "regard.training.start",
    "save_model": "regard.models.store",
    "train": "regard.training.start",
    "watch": "regard.parts.attend",
}

__all__ = [
    "ConfigError",
    "InputError",
    "RegardError",
    "build",
    "convert",
    "cost",
    "load",
    "load_model",
    "load_recipe",
    "look",
    "open_run",
    "resume",
    "save_model",
    "train",
    "watch",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'regard' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
