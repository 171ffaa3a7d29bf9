"""The claims of the lectures as experiments, and comparisons of models.

    from regard.lab import run_experiment

    result = run_experiment("lookup", scale="tiny")
    print(result.verdict.text, result.page)

Names are imported when they are first used, so that `regard lab` lists the experiments without importing torch.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from regard.lab.experiment import Experiment as Experiment
    from regard.lab.experiment import Lab as Lab
    from regard.lab.experiment import Picture as Picture
    from regard.lab.experiment import Verdict as Verdict
    from regard.lab.runner import run_experiment as run_experiment

__all__ = ["Experiment", "Lab", "Picture", "Verdict", "run_experiment"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'regard.lab' has no attribute {name!r}")
    from regard.lab import runner  # which imports the others

    return getattr(runner, name)
