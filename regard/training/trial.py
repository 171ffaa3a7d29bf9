"""Try a few updates, to measure how long one takes and how much memory; their weights are discarded."""

import time
from copy import deepcopy
from itertools import islice
from typing import NamedTuple

from torch import nn

from regard.models.model import Model
from regard.models.recipe import build
from regard.tasks.task import Task
from regard.training.config import RunConfig
from regard.training.memory import memory_in_use
from regard.training.ranks import Ranks
from regard.training.update import Update

ENOUGH_SECONDS = 20  # of updates, after which no more are tried


def build_model(config: RunConfig, ranks: Ranks) -> Model:
    """Build the model of a run; weights are drawn on the CPU, so that they do not depend on the device."""
    assert config.model is not None
    return build(config.model, seed=config.train.seed).to(ranks.device)


class Trial(NamedTuple):
    """The time and the memory that an update takes."""

    seconds: float
    memory: int  # bytes in use


def time_updates(config: RunConfig, task: Task, ranks: Ranks, module: nn.Module | None = None, count: int = 3) -> Trial:
    """Run a few updates on a new model, or a copy of a module, fewer if they take long, and measure the fastest."""
    model = build_model(config, ranks) if module is None else deepcopy(module).to(ranks.device)
    task.to(ranks.device)
    feed = task.feed(model, config.train.tokens, config.train.seed)
    update = Update(model, task, config.train, ranks, len(feed.order.shapes))
    times = []
    for step, draw in enumerate(islice(feed.order.epoch(0), count + 1), 1):
        started = time.perf_counter()
        float(update(feed.batch(draw, 0), step).loss)
        times.append(time.perf_counter() - started)
        if ranks.largest(int(sum(times) > ENOUGH_SECONDS)):
            break
    return Trial(min(times), memory_in_use(ranks.device))
