"""Schedules against their formulas, and what every schedule must keep."""

from dataclasses import dataclass
from math import cos, pi, sqrt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.config import from_table, to_table
from regard.errors import ConfigError
from regard.training.schedule import CosineScheduleConfig, InverseSqrtConfig, LinearScheduleConfig, ScheduleConfig


@dataclass(frozen=True)
class Holder:
    schedule: ScheduleConfig


def curve(schedule: ScheduleConfig, steps: int) -> list[float]:
    return [schedule.factor(step, steps) for step in range(1, steps + 1)]


def test_inverse_sqrt_is_the_formula_of_the_paper_over_its_peak() -> None:
    peak = 4000**-0.5
    for step in (1, 17, 3999, 4000, 4001, 100_000):
        wanted = min(step**-0.5, step * 4000**-1.5) / peak
        assert InverseSqrtConfig(warmup=4000).factor(step, 1) == pytest.approx(wanted, rel=1e-12)


def test_inverse_sqrt_without_warmup_falls_from_the_first_step() -> None:
    assert curve(InverseSqrtConfig(warmup=0), 4) == pytest.approx([1, 1 / sqrt(2), 1 / sqrt(3), 1 / 2])


def test_cosine_by_hand() -> None:
    down = [0.2 + 0.8 * (1 + cos(pi * progress / 4)) / 2 for progress in range(5)]
    assert curve(CosineScheduleConfig(warmup=3, floor=0.2), 7) == pytest.approx([1 / 3, 2 / 3, *down])
    assert CosineScheduleConfig(warmup=3, floor=0.2).factor(8, 7) == pytest.approx(0.2)  # never up again
    assert CosineScheduleConfig(warmup=3, floor=0.2).factor(5, 7) == pytest.approx(0.6)  # halfway down


def test_linear_by_hand() -> None:
    assert curve(LinearScheduleConfig(warmup=2, cooldown=0.4), 10) == pytest.approx(
        [0.5, 1, 1, 1, 1, 1, 0.8, 0.6, 0.4, 0.2]
    )
    assert curve(LinearScheduleConfig(warmup=0, cooldown=0.0), 3) == [1, 1, 1]
    assert curve(LinearScheduleConfig(warmup=0, cooldown=1.0), 3) == pytest.approx([3 / 4, 2 / 4, 1 / 4])
    assert LinearScheduleConfig(warmup=0, cooldown=1.0).factor(9, 3) == pytest.approx(1 / 4)


warmups = st.integers(0, 50)
rates = st.floats(0, 1)
schedules = st.one_of(
    st.builds(InverseSqrtConfig, warmups),
    st.builds(CosineScheduleConfig, warmups, rates),
    st.builds(LinearScheduleConfig, warmups, rates),
)


@given(schedules, st.integers(1, 100))
def test_a_schedule_rises_and_then_falls(schedule: ScheduleConfig, steps: int) -> None:
    factors = curve(schedule, steps)
    assert all(0 <= factor <= 1 for factor in factors)
    assert all(factor > 0 for factor in factors[:-1])  # only a cosine with floor 0 may end at 0
    top = factors.index(max(factors))
    assert factors[: top + 1] == sorted(factors[: top + 1])
    assert factors[top:] == sorted(factors[top:], reverse=True)


@given(st.integers(0, 50), rates, st.integers(0, 50))
def test_the_peak_is_reached_at_the_end_of_the_warmup(warmup: int, rate: float, more: int) -> None:
    first = max(warmup, 1)
    assert InverseSqrtConfig(warmup).factor(first, 1) == 1
    assert LinearScheduleConfig(warmup, 0.0).factor(first, first + more) == 1
    if warmup:  # otherwise the peak is at step 0, before the first
        assert CosineScheduleConfig(warmup, rate).factor(first, first + more) == pytest.approx(1)


@pytest.mark.parametrize(
    ("table", "schedule"),
    [
        ({"kind": "inverse-sqrt", "warmup": 5}, InverseSqrtConfig(5)),
        ({"kind": "cosine", "warmup": 5, "floor": 0.1}, CosineScheduleConfig(5)),
        ({"kind": "linear", "warmup": 5, "cooldown": 0.4}, LinearScheduleConfig(5)),
    ],
)
def test_a_schedule_is_a_table(table: dict[str, object], schedule: ScheduleConfig) -> None:
    assert from_table({"schedule": table}, Holder).schedule == schedule
    assert to_table(schedule) == table


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"kind": "cosine", "warmup": -1}, "schedule.warmup: -1 must be at least 0"),
        ({"kind": "cosine", "warmup": 0, "floor": 1.5}, "schedule.floor: 1.5 must be between 0 and 1"),
        ({"kind": "linear"}, "schedule.warmup: missing; must be a whole number, at least 0"),
        ({"kind": "cosin", "warmup": 0}, "schedule.kind: 'cosin' is not a known schedule; did you mean 'cosine'?"),
    ],
)
def test_mistakes_are_named(table: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError) as error:
        from_table({"schedule": table}, Holder)
    assert str(error.value).startswith(message)
