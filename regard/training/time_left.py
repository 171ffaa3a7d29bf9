"""Estimate how long a run still takes, from what its updates and validations have taken."""

from collections import deque
from collections.abc import Hashable
from math import nan
from statistics import median

from regard.training.config import TrainConfig

RARE = 4  # of validations, one is made in the first part of a run
RECENT = 9  # log lines, and validations, that the estimate follows: other programs may come and go


class TimeLeft:
    """Seconds per update and per validation. The first update of each shape compiles, so it is counted apart."""

    def __init__(self) -> None:
        self.compiling = 0.0  # seconds of all first updates
        self._shapes: set[Hashable] = set()
        self._first, self._first_seconds = 0, 0.0  # first updates since the last log line
        self._updates: deque[float] = deque(maxlen=RECENT)
        self._validations: deque[float] = deque(maxlen=RECENT)

    def add_update(self, shape: Hashable, seconds: float) -> None:
        """Note an update of this shape, and how long calling it took."""
        if shape not in self._shapes:
            self._shapes.add(shape)
            self._first += 1
            self._first_seconds += seconds
            self.compiling += seconds

    def add_window(self, updates: int, seconds: float) -> None:
        """Note that the updates since the last log line took this long together."""
        if updates > self._first:
            self._updates.append(max(seconds - self._first_seconds, 0.0) / (updates - self._first))
        self._first, self._first_seconds = 0, 0.0

    def add_validation(self, seconds: float) -> None:
        """Note how long a validation took."""
        self._validations.append(seconds)

    def estimate(self, updates: int, validations: int) -> float:
        """Return the seconds for the updates and validations that are left; NaN as long as nothing is known."""
        if not self._updates:
            return nan
        each = median(self._validations) if self._validations else 0.0
        return updates * median(self._updates) + validations * each


def is_validated(step: int, config: TrainConfig, rare_until: float) -> bool:
    """Return whether there is a validation after a step: at intervals, few of them at first, and at the end."""
    number, rest = divmod(step, config.validate_every)
    rare = step <= rare_until * config.steps
    return step == config.steps or (rest == 0 and not (rare and number % RARE))


def is_averaged(step: int, config: TrainConfig) -> bool:
    """Return whether the weights after a step are among the last that are averaged, validated or not."""
    return step % config.validate_every == 0 and step > config.steps - config.average * config.validate_every


def count_validations(step: int, config: TrainConfig) -> int:
    """Return how many validations follow after a step, if each is better than the last."""
    every = config.validate_every
    later = range(step - step % every + every, config.steps, every)
    return sum(is_validated(each, config, config.rare_until) for each in later) + (step < config.steps)
