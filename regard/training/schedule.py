"""Schedules: how the learning rate rises and falls. Each gives a factor between 0 and 1 of the peak.

Inverse square root (Vaswani et al. 2017), cosine (Loshchilov, Hutter 2017), constant with a linear cooldown (Hägele et
al. 2024). All warm up linearly; steps count from 1, so that the first step already learns.
"""

from dataclasses import dataclass
from math import cos, pi, sqrt

from regard.config import Config, Kinds, Rate, Times


class ScheduleConfig(Config):
    """Base of the configs of schedules."""

    def factor(self, step: int, steps: int) -> float:
        """Return the factor of the peak learning rate at this step, of all steps."""
        raise NotImplementedError


@dataclass(frozen=True)
class InverseSqrtConfig(ScheduleConfig):
    """min(s^-1/2, s * w^-3/2), scaled to be 1 at the end of the warm-up, s = w; independent of the number of steps."""

    warmup: Times
    """Updates in which the rate rises."""

    def factor(self, step: int, steps: int) -> float:
        """Return the factor of the peak rate at this step."""
        return min(_warm(step, self.warmup), sqrt(max(self.warmup, 1) / step))


@dataclass(frozen=True)
class CosineScheduleConfig(ScheduleConfig):
    """Half a cosine from 1 at the end of the warm-up down to `floor` at the last step."""

    warmup: Times
    """Updates in which the rate rises."""
    floor: Rate = 0.1
    """Share of the peak rate at the end."""

    def factor(self, step: int, steps: int) -> float:
        """Return the factor of the peak rate at this step."""
        progress = (step - self.warmup) / max(steps - self.warmup, 1)
        height = (1 + cos(pi * min(max(progress, 0.0), 1.0))) / 2
        return min(_warm(step, self.warmup), self.floor + (1 - self.floor) * height)


@dataclass(frozen=True)
class LinearScheduleConfig(ScheduleConfig):
    """A trapezoid: 1 after the warm-up, then a straight line towards 0 over the last `cooldown` share of the steps.

    The line would reach 0 one step after the last, since a step with rate 0 learns nothing.
    """

    warmup: Times
    """Updates in which the rate rises."""
    cooldown: Rate = 0.4
    """Share of the updates, at the end, in which the rate falls."""

    def factor(self, step: int, steps: int) -> float:
        """Return the factor of the peak rate at this step."""
        length = round(self.cooldown * steps)
        left = max(steps - step, 0) + 1
        return min(_warm(step, self.warmup), left / (length + 1))


def _warm(step: int, warmup: int) -> float:
    """Rise linearly to 1 at step `warmup`, and stay there."""
    return min(step / max(warmup, 1), 1.0)


SCHEDULES = Kinds(
    "schedule",
    ScheduleConfig,
    {"inverse-sqrt": InverseSqrtConfig, "cosine": CosineScheduleConfig, "linear": LinearScheduleConfig},
)
