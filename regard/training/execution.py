"""How updates are executed: kernel by kernel as Python calls them (eager), captured as a CUDA graph, or compiled.

The figures are of an H200 (docs/performance.md). Launching the kernels of an update takes about 50 ms, whatever the
size of the model. A graph is captured in a fraction of a second; its kernels, however small, take about 6 ms. Compiled
code needs less, after seconds of compiling: regions (parts/region.py), each once for all layers, or the whole model,
whose layers are compiled one by one and then fused with their neighbours.
"""

from typing import NamedTuple

from torch import nn

from regard.errors import RegardError
from regard.machine import what_compiling_lacks
from regard.models.stack import Layer
from regard.tasks.task import Task
from regard.training.capture import can_capture
from regard.training.config import TrainConfig
from regard.training.ranks import Ranks

SPEED = 1.5e14  # FLOPs per second of kernels that are not compiled
LEAST_SECONDS = 0.006  # that the kernels of an update take, for each pass through the model
LAUNCH_SECONDS = 0.05  # that launching them one by one takes
CAPTURED_SECONDS = 0.1  # of kernels, up to which a graph saves time: compiled, they take half of that
SAVED = 0.3  # share of the time that compiling saves
COMPILE_SECONDS = 20.0  # that compiling the regions takes, for each shape
SAVED_BY_WHOLE = 0.05  # share of the time that compiling the whole model saves beyond that
WHOLE_SECONDS = 40.0  # that it takes


class Execution(NamedTuple):
    """Whether a model is compiled, whether its updates are captured, and whether it is compiled as a whole."""

    compiles: bool
    captures: bool
    whole: bool = False
    obstacle: str = ""  # why it is not compiled, although that would pay, or was asked for


def choose_execution(model: nn.Module, task: Task, config: TrainConfig, ranks: Ranks, shapes: int) -> Execution:
    """Choose how a model is trained, from its size and the length of the run, where the user leaves it open."""
    kind = ranks.device.type
    kernels = estimate_kernels(estimate_flops(model, config.tokens * task.passes()), task.passes())
    captures = config.capture == "always" or (
        config.capture == "auto" and kernels < CAPTURED_SECONDS and can_capture(model, task, config.optimizer)
    )
    captures = captures and kind == "cuda" and ranks.world == 1
    seconds = config.steps * (kernels if captures else max(kernels, LAUNCH_SECONDS))  # of all updates, uncompiled
    compiles = config.compile == "always"
    if config.compile == "auto":
        pays = seconds * SAVED > shapes * COMPILE_SECONDS and getattr(model, "compile_pays", True)
        compiles = kind != "cpu" and pays
    obstacle = what_compiling_lacks(kind) if compiles else ""
    compiles = compiles and not obstacle
    has_regions = any(isinstance(part, Layer) for part in model.modules())
    long = ranks.world == 1 and seconds * SAVED_BY_WHOLE > shapes * WHOLE_SECONDS
    return Execution(compiles, captures, compiles and (long or not has_regions), obstacle)


def why_compiling_failed(error: RuntimeError) -> str | None:
    """Return in a line why the compiler failed; None if the error is another one, such as a signal that it met."""
    from torch._dynamo.exc import BackendCompilerFailed

    if not isinstance(error, BackendCompilerFailed) or isinstance(error.inner_exception, RegardError):
        return None
    inner = error.inner_exception
    return f"{type(inner).__name__}: {str(inner).strip().partition(chr(10))[0]}"


def estimate_kernels(flops: float, passes: int = 0) -> float:
    """Estimate the seconds of kernels that are not compiled, those of an update with this many passes over its rows."""
    return passes * LEAST_SECONDS + flops / SPEED


def estimate_flops(model: nn.Module, tokens: int) -> float:
    """Estimate the FLOPs of an update: two for each weight and token in the forward pass, four in the backward."""
    return 6.0 * tokens * sum(parameter.numel() for parameter in model.parameters())
