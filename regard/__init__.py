"""regard: attention models from the RNN to today's LLM, each a few lines of data over the same few parts.

    import regard
    regard.load("en-fr").translate(["Good morning."])  # a model that comes with the package, or your own
    run = regard.train("language", "corpus.txt", "train.minutes=5", run="runs/mine")
    regard.look(run, "Once upon a time")  # in a notebook

    model = regard.build("gpt2", "model.depth=4")  # a torch module
    with regard.watch(model) as tape:
        model(tokens)

`load` returns a model with a method for each verb of the command. Torch is imported when a name is first used, so that
`import regard` and `regard --help` are instant.
"""

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # for type checkers and editors; a test compares these lines with the table below
    from regard.config import Config as Config
    from regard.errors import ConfigError as ConfigError
    from regard.errors import InputError as InputError
    from regard.errors import RegardError as RegardError
    from regard.extend import register as register
    from regard.lab.comparison.compare import compare as compare
    from regard.models.count import cost as cost
    from regard.models.intervention import read_vectors as read_vectors
    from regard.models.recipe import build as build
    from regard.models.recipe import load_recipe as load_recipe
    from regard.models.store import save_model as save_model
    from regard.parts.watch import watch as watch
    from regard.runs.weights import load_model as load_model
    from regard.training.run import open_run as open_run
    from regard.training.start import resume as resume
    from regard.training.start import train as train
    from regard.use.convert import convert as convert
    from regard.use.intervene import intervene as intervene
    from regard.use.load import load as load
    from regard.viewer.notebook import look as look

__version__ = "0.1.0"

# Memory of large tensors on a CPU comes in pages of 2 MB, where the system has them. It is taken from the system again
# for each tensor, and with pages of 4 KB the page faults take up to half the time of an update. Torch reads this
# variable when it first needs memory.
os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")

_HOMES = {  # the public names and the modules that define them
    "Config": "regard.config",
    "ConfigError": "regard.errors",
    "InputError": "regard.errors",
    "RegardError": "regard.errors",
    "build": "regard.models.recipe",
    "compare": "regard.lab.comparison.compare",
    "convert": "regard.use.convert",
    "cost": "regard.models.count",
    "intervene": "regard.use.intervene",
    "load": "regard.use.load",
    "load_model": "regard.runs.weights",
    "load_recipe": "regard.models.recipe",
    "look": "regard.viewer.notebook",
    "open_run": "regard.training.run",
    "read_vectors": "regard.models.intervention",
    "register": "regard.extend",
    "resume": "regard.training.start",
    "save_model": "regard.models.store",
    "train": "regard.training.start",
    "watch": "regard.parts.watch",
}
__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'regard' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
