"""The time left: compiling is not taken for speed, and validations are counted."""

from math import isnan

import pytest

from regard.config import from_table
from regard.training.config import TrainConfig
from regard.training.time_left import TimeLeft, count_validations, is_averaged, is_validated


def test_compiling_is_not_taken_for_the_speed_of_updates():
    """Ten updates, the first of which compiles for a minute; 590 are left."""
    left = TimeLeft()
    left.add_update((64,), 60.0)
    for _ in range(9):
        left.add_update((64,), 0.001)
    left.add_window(10, 60.0 + 9 * 0.1)
    assert left.estimate(590, 0) == pytest.approx(59.0)
    assert left.compiling == 60.0


def test_every_shape_compiles_once():
    left = TimeLeft()
    left.add_update((8,), 20.0)
    left.add_update((16,), 30.0)
    left.add_window(2, 50.0)
    assert isnan(left.estimate(10, 0))  # nothing but compiling so far
    left.add_update((8,), 0.0)
    left.add_update((24,), 40.0)
    left.add_window(2, 40.5)
    assert left.estimate(10, 0) == pytest.approx(5.0)


def test_the_validations_that_are_left_are_counted():
    """4 min of updates took 5 min 19 s, with a validation of 4 s every 23 updates."""
    left = TimeLeft()
    left.add_window(10, 10 * 240 / 450)
    left.add_validation(4.0)
    validations = count_validations(0, make_config(450, 23))
    assert validations == 20
    assert left.estimate(450, validations) == pytest.approx(240 + 20 * 4)


def make_config(steps: int, every: int, rare_until: float = 0.0, average: int = 0) -> TrainConfig:
    table = {
        "average": average,
        "steps": steps,
        "tokens": 64,
        "validate_every": every,
        "checkpoint_every": every,
        "rare_until": rare_until,
        "optimizer": {"kind": "adamw", "rate": 0.001},
        "schedule": {"kind": "cosine", "warmup": 0},
    }
    return from_table(table, TrainConfig)


@pytest.mark.parametrize(
    ("step", "steps", "every", "count"),
    [(0, 20, 10, 2), (10, 20, 10, 1), (20, 20, 10, 0), (0, 25, 10, 3), (25, 25, 10, 0)],
)
def test_validations_come_at_intervals_and_at_the_end(step: int, steps: int, every: int, count: int):
    assert count_validations(step, make_config(steps, every)) == count


def test_at_first_every_fourth_validation_is_made_while_they_get_better():
    config = make_config(205, 10, rare_until=0.6)
    made = [step for step in range(1, 206) if is_validated(step, config, config.rare_until)]
    assert made == [40, 80, 120, 130, 140, 150, 160, 170, 180, 190, 200, 205]
    assert [count_validations(step, config) for step in (0, 39, 40, 125, 204, 205)] == [12, 12, 11, 9, 1, 0]
    assert [step for step in range(1, 50) if is_validated(step, config, 0.0)] == [10, 20, 30, 40]  # the last was worse


@pytest.mark.parametrize(("steps", "averaged"), [(20, [16, 18, 20]), (21, [16, 18, 20])])
def test_the_last_weights_are_averaged(steps: int, averaged: list[int]):
    """With 21 steps, those of the last step, which are always validated, come instead of those of step 16."""
    config = make_config(steps, 2, average=3)
    assert [step for step in range(steps + 1) if is_averaged(step, config)] == averaged
    assert not any(is_averaged(step, make_config(steps, 2)) for step in range(steps + 1))


def test_a_pause_of_the_machine_is_forgotten():
    left = TimeLeft()
    for seconds in (1.0, 1.0, 100.0, 1.0, 1.0):
        left.add_window(10, seconds)
    assert left.estimate(10, 0) == pytest.approx(1.0)
