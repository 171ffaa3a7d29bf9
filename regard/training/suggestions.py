"""Sizes and lengths of runs that suit the data and the device, where the user says nothing."""

import sys
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import replace
from math import ceil

from regard.config import Table
from regard.errors import ConfigError, choices
from regard.models.scale import SIZES
from regard.tasks.defaults import Amount, TaskConfig
from regard.training.config import TrainConfig
from regard.training.time_left import RARE, count_validations

SPEED = {"cpu": 8e10, "cuda": 1e14}  # FLOPs per second that are assumed for it
LEAST_STEPS = 100  # updates of a run, however little data there is
ACCELERATED = 4  # factor for the tokens of an update on an accelerator
RECURRENT_MUON, RECURRENT_REST = 1.5, 4.0  # factors of the rates of recurrent models
PATIENCE = 0.4  # the share of a run without a better validation after which it stops
PASS_UPDATES = 40  # updates of a pass over the data that an accelerator leaves at least
LEAST_PATIENCE = 5  # validations without a better one, however few there are
LEAST_PATIENT_STEPS = 50  # and updates, however often they are validated
VALIDATIONS = 20  # of a run; fewer if that would be more often than every tenth update
RARE_UNTIL = 0.6  # of a run, while the rate is high; the best weights come after that
VALIDATION_SHARE = 0.1  # of the cost of all updates that validations may have
CHECKPOINT_SECONDS = 10.0  # between checkpoints on an accelerator, below which only every fourth is made
# on an accelerator, the size for fewer tokens than this
AUTO_SIZES = {"tiny": 200_000, "small": 20_000_000, "base": 1_000_000_000, "big": None}


def check_size(size: str) -> None:
    """Raise an error if a size is not a known one, nor "auto"."""
    if size not in ("auto", *SIZES):
        raise ConfigError(f"size={size!r} is unknown; {choices(size, ('auto', *SIZES))}")


def choose_size(size: str, config: TaskConfig, amount: Amount, device: str) -> str:
    """Return the name of a size: the user's choice, or one that suits the amount of data and the device."""
    if size != "auto":
        return size
    limits = config.cpu_sizes if device == "cpu" else AUTO_SIZES
    return next(name for name, limit in limits.items() if limit is None or amount.tokens < limit)


def suggest_tokens(config: TaskConfig, amount: Amount, device: str) -> int:
    """Return the tokens of an update: what the task suggests, but at most an eighth of the data.

    An accelerator gets more, unless a pass over little data would then be too few updates to learn from.
    """
    least = min(config.update_tokens, max(64, amount.tokens // 8))
    return least if device == "cpu" else min(ACCELERATED * least, max(least, amount.tokens // PASS_UPDATES))


def suggest_recurrent_rates(rates: Table) -> Table:
    """Return higher rates than the task's, for models whose layers are all recurrent and that start from nothing.

    Validation loss with them, and with the task's own: GRU 1.594 and 1.627, MUT1 1.593 and 1.634, LSTM 1.624 and 1.637
    (letters of Tiny Shakespeare, width 256, 600 updates). With 1.7 instead of 4: GRU 1.607, LSTM 1.616; rnn-attention
    2.60, with 4 2.28 (Multi30k, 300 updates). After 1,500 updates, an LSTM has 1.518 with 1.7, and 1.527 without.
    """
    rest = rates["rest"]
    faster = rest | {"rate": RECURRENT_REST * rest["rate"]}
    return rates | {"rate": RECURRENT_MUON * rates["rate"], "rest": faster}


def count_affordable(seconds: float, flops: float, tokens: int, device: str) -> float:
    """Return how many updates the time allows; `flops` are those of a forward pass for one token."""
    return seconds * SPEED["cpu" if device == "cpu" else "cuda"] / (3 * flops * tokens)


def suggest_steps(wanted: float, affordable: float) -> int:
    """Return the number of updates: those that the data is worth, limited by the time."""
    steps = ceil(max(LEAST_STEPS, min(wanted, affordable)))
    return round(steps, -2) if steps > 1000 else steps


def suggest_intervals(steps: int) -> Table:
    """Return the number of updates between validations and between checkpoints, and when validations become more."""
    every = max(10, ceil(steps / VALIDATIONS))
    return {"validate_every": every, "checkpoint_every": every, "rare_until": RARE_UNTIL}


def suggest_rare_until(config: TrainConfig, cost: float) -> float:
    """Return the share of a run in which validations are rare: the least with which all of them cost little enough.

    `cost` is that of a validation in updates.
    """
    shares = [share / 10 for share in range(round(10 * RARE_UNTIL), 11)]
    cheap = (share for share in shares if cost <= affordable_cost(replace(config, rare_until=share)))
    return next(cheap, shares[-1])


def suggest_part(
    config: TrainConfig, cost: Callable[[int | None], float], least: int, most: int | None = None
) -> int | None:
    """Return how many rows validations measure so that all of them cost little enough, at least `least`.

    `cost` is that of measuring some rows, or all, in updates. None: they can measure `most` rows, or all.
    """
    affordable = affordable_cost(config)
    if cost(most) <= max(affordable, cost(least)):
        return None
    return max(least, least - 1 + bisect_right(range(least, most or sys.maxsize), affordable, key=cost))


def affordable_cost(config: TrainConfig) -> float:
    """Return what a validation may cost, in updates, where the average at the end is validated, too."""
    return VALIDATION_SHARE * config.steps / (count_validations(0, config) + (config.average > 0))


def suggest_checkpoints(config: TrainConfig, seconds: float) -> int:
    """Return the updates between checkpoints on an accelerator, where an update takes this long: not seconds apart."""
    every = config.checkpoint_every
    return every if every * seconds >= CHECKPOINT_SECONDS else RARE * every


def suggest_patience(steps: int, every: object) -> int:
    """Return after how many validations without a better one a run stops: a share of all, but not too few.

    A run must not stop before the rate has fallen, which is when the loss falls most.
    """
    if type(every) is not int or every < 1:  # a mistake of the user, which is reported later
        return LEAST_PATIENCE
    return max(LEAST_PATIENCE, ceil(max(PATIENCE * steps, LEAST_PATIENT_STEPS) / every))
