"""How updates are executed: kernel by kernel as Python calls them (eager), captured as a CUDA graph, or compiled.

The figures are of an H200 (docs/performance.md). Launching the kernels of an update takes about 50 ms, whatever the
size of the model. A graph is captured in a fraction of a second; its kernels, however small, take about 8 ms. Compiled
code needs 60 % of that time, after a minute of compiling.
"""

from typing import NamedTuple

from torch import nn

from regard.tasks.task import Task
from regard.training.capture import can_capture
from regard.training.config import TrainConfig
from regard.training.ranks import Ranks

SPEED = 1.5e14  # FLOPs per second of kernels that are not compiled
LEAST_SECONDS = 0.008  # that the kernels of an update take
LAUNCH_SECONDS = 0.05  # that launching them one by one takes
SAVED = 0.4  # share of the time that compiling saves
COMPILE_SECONDS = 60.0  # that compiling takes, for each shape


class Execution(NamedTuple):
    """Whether a model is compiled, and whether its updates are captured."""

    compiles: bool
    captures: bool


def choose_execution(model: nn.Module, task: Task, config: TrainConfig, ranks: Ranks, shapes: int) -> Execution:
    """Choose how a model is trained, from its size and the length of the run, where the user leaves it open."""
    kind = ranks.device.type
    kernels = LEAST_SECONDS + estimate_flops(model, config.tokens) / SPEED
    captures = config.capture == "always" or (
        config.capture == "auto" and kernels < LAUNCH_SECONDS and can_capture(model, task)
    )
    captures = captures and kind == "cuda" and ranks.world == 1
    if config.compile != "auto":
        return Execution(config.compile == "always", captures)
    pays = compiling_pays(kernels, config.steps, shapes, captures) and getattr(model, "compile_pays", True)
    return Execution(kind != "cpu" and pays, captures)


def estimate_flops(model: nn.Module, tokens: int) -> float:
    """Estimate the FLOPs of an update: two for each weight and token in the forward pass, four in the backward."""
    return 6.0 * tokens * sum(parameter.numel() for parameter in model.parameters())


def compiling_pays(kernels: float, steps: int, shapes: int, captures: bool) -> bool:
    """Return whether compiling saves more time than it takes; `kernels` are the seconds that those of an update run.

    Without a graph an update takes at least as long as launching its kernels, of which compiled code has fewer.
    """
    seconds = kernels if captures else max(kernels, LAUNCH_SECONDS)
    return steps * seconds * SAVED > shapes * COMPILE_SECONDS
