"""Try a few updates, to measure how long one takes and how much memory; their weights are discarded."""

import time
from copy import deepcopy
from statistics import median
from typing import NamedTuple

from torch import nn

from regard.models.model import Model
from regard.models.recipe import build
from regard.tasks.task import Task
from regard.training.config import RunConfig
from regard.training.memory import peak_memory
from regard.training.ranks import Ranks
from regard.training.settings import use_threads
from regard.training.update import Update

ENOUGH_SECONDS = 20  # of updates, after which no more are tried


def build_model(config: RunConfig, ranks: Ranks) -> Model:
    """Build the model of a run; weights are drawn on the CPU, so that they do not depend on the device."""
    assert config.model is not None
    return build(config.model, seed=config.train.seed).to(ranks.device)


class Trial(NamedTuple):
    """The time and the memory that an update takes."""

    seconds: float  # of an update, without compiling
    memory: int  # bytes, at most so far
    compiling: float = 0.0  # seconds until all shapes of batches are compiled, once for a run


def time_updates(config: RunConfig, task: Task, ranks: Ranks, module: nn.Module | None = None, count: int = 5) -> Trial:
    """Repeat one update on a new model, or a copy of a module, fewer times if it takes long, and measure it.

    The first update compiles or allocates, so it is counted apart; the time is the median of the others.
    """
    model = build_model(config, ranks) if module is None else deepcopy(module).to(ranks.device)
    use_threads(config.train.threads)
    task.to(ranks.device)
    feed = task.feed(model, config.train.tokens, config.train.seed)
    update = Update(model, task, config.train, ranks, len(feed.order.shapes))
    batch = feed.batch(next(feed.order.epoch(0)), 0)
    compiles = update.execution.compiles or update.execution.captures
    times: list[float] = []
    for step in range(1, count + 2):
        started = time.perf_counter()
        float(update(batch, step).loss)
        times.append(time.perf_counter() - started)
        if ranks.largest(int(sum(times[compiles:]) > ENOUGH_SECONDS)):
            break
    seconds = median(times[1:] or times)
    first = sum(times) - len(times) * seconds  # what compiling, or capturing, took
    compiling = max(first, 0.0) * len(feed.order.shapes) if compiles else 0.0
    return Trial(seconds, peak_memory(ranks.device), compiling)
