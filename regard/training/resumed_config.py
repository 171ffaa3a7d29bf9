"""The config of a run that is resumed with other settings of its training."""

from collections.abc import Mapping, Sequence

from regard.config import Table, from_table, optional_keys, to_table
from regard.errors import ConfigError
from regard.recipe_files import override, override_path
from regard.tasks.defaults import suggest_schedule
from regard.training.config import RunConfig, TrainConfig
from regard.training.request import changed_keys
from regard.training.suggestions import suggest_intervals
from regard.training.time_left import RARE


def resumed_config(config: RunConfig, overrides: Sequence[str]) -> RunConfig:
    """Apply overrides to the config of a resumed run; values that were derived from its steps follow new steps."""
    for change in overrides:
        path = override_path(str(change))
        if not path.startswith("train.") or path == "train.seed":
            kept = "a resumed run keeps its data, its model and its seed"
            raise ConfigError(f"{change!r}: {kept}; only train.* can change")
        if path == "train.minutes":
            raise ConfigError(f"{change!r}: a resumed run counts updates; ask for more with train.steps=...")
    table = to_table(config)
    optional = optional_keys(TrainConfig, "train")
    steps = override(table, overrides, optional)["train"]["steps"]
    if type(steps) is int and steps > 0 and steps != config.train.steps:
        table["train"] = _follow_steps(table["train"], steps)
    if "validate_every" in changed_keys(overrides):  # then all of them are wanted
        table["train"]["rare_until"] = 0.0
    table = override(table, overrides, optional)
    schedule = table["train"]["schedule"]
    if isinstance(schedule, Mapping) and schedule.keys() == {"kind"}:  # a new kind without its other values
        table["train"]["schedule"] = suggest_schedule(schedule["kind"], config.train.steps, pretrained=False)
    return from_table(table, RunConfig)


def _follow_steps(train: Table, steps: int) -> Table:
    """Return the table of training with new steps in all values that the planner derived from them.

    A value that differs from what the planner derives was set by the user, and stays.
    """
    old, new = suggest_intervals(train["steps"]), suggest_intervals(steps)
    followed = {key: new[key] if train[key] == old[key] else train[key] for key in new}
    if train["checkpoint_every"] == RARE * old["checkpoint_every"]:
        followed["checkpoint_every"] = new["checkpoint_every"]
    kind, schedule = train["schedule"]["kind"], train["schedule"]
    for pretrained in (False, True):
        if train["schedule"] == schedule | suggest_schedule(kind, train["steps"], pretrained):
            schedule = schedule | suggest_schedule(kind, steps, pretrained)
    rest = {key: value for key, value in train.items() if key != "minutes"}  # which belong to the old number of steps
    return {**rest, **followed, "schedule": schedule}
