"""The budget of a comparison: how many updates of each model it allows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil, isfinite

from regard.errors import ConfigError
from regard.models.count import forward_flops
from regard.models.recipe import build_empty
from regard.training.config import RunConfig
from regard.training.draft import Draft, Say
from regard.training.planning import plan_run
from regard.training.ranks import Ranks
from regard.training.request import RunRequest
from regard.training.suggestions import count_affordable, suggest_steps

UNITS = {"steps": "updates", "tokens": "tokens", "flops": "FLOPs", "minutes": "minutes"}
SUFFIXES = {"k": 1e3, "M": 1e6, "G": 1e9, "B": 1e9, "T": 1e12, "P": 1e15}
DEFAULT_SECONDS = 120.0  # about how long the run of the largest model takes if no budget is given


@dataclass(frozen=True)
class Budget:
    """What every model may spend: a number of steps, tokens, flops or minutes."""

    unit: str
    amount: float

    def __str__(self) -> str:
        return f"{self.amount:,.6g} {UNITS[self.unit]}"


def read_budget(given: Mapping[str, object]) -> Budget | None:
    """Return the budget, of which the user gives one at most; None if there is none."""
    found = {unit: amount for unit, amount in given.items() if amount is not None}
    if len(found) > 1:
        raise ConfigError(f"{' and '.join(f'{unit}={amount}' for unit, amount in found.items())}: give one of them")
    for unit, amount in found.items():
        return Budget(unit, read_amount(unit, amount))
    return None


def read_amount(name: str, given: object) -> float:
    """Read a positive number, which may have a suffix: 500, 2e15, 3M, 1.5k."""
    number: float | None = None
    if isinstance(given, int | float) and not isinstance(given, bool):
        number = float(given)
    elif isinstance(given, str):
        factor = SUFFIXES.get(given.strip()[-1:], 1.0)
        digits = given.strip()[:-1] if factor != 1.0 else given.strip()
        try:
            number = float(digits.replace(",", "")) * factor
        except ValueError:
            number = None
    least = 0 if name == "minutes" else 1
    if number is None or not isfinite(number) or number <= 0 or number < least:
        raise ConfigError(
            f"{name}={given} must be a number of {'more than 0' if least == 0 else 'at least 1'}, as in 3M"
        )
    return number if name == "minutes" else float(round(number))


# --- how many updates it allows --------------------------------------------------------------------------------------


def default_steps(drafts: Sequence[Draft], known: RunConfig | None) -> int:
    """Return the updates of each run if the user gives no budget: about two minutes for the largest model."""
    if known is not None:
        return known.train.steps
    return min(map(_affordable_steps, drafts))


def _affordable_steps(draft: Draft) -> int:
    update = mean_update(draft)
    tokens, amount = draft.train_table["tokens"], draft.task.amount()
    wanted = draft.task_config.passes * amount.tokens / tokens
    if update.flops is None:
        return suggest_steps(wanted, wanted)
    return suggest_steps(wanted, count_affordable(DEFAULT_SECONDS, update.flops / 3 / tokens, tokens, draft.device))


def steps_for(budget: Budget | None, request: RunRequest, draft: Draft, ranks: Ranks, say: Say) -> int:
    """Return how many updates of a model the budget allows."""
    assert budget is not None
    if budget.unit == "steps":
        return int(budget.amount)
    if budget.unit == "minutes":
        timed = replace(request, overrides=(*request.overrides, f"train.minutes={budget.amount}"))
        return plan_run(timed, ranks, say).config.train.steps
    update = mean_update(draft)
    spent = update.tokens if budget.unit == "tokens" else update.flops
    if spent is None:
        raise ConfigError("a part of it does not count its FLOPs, so they cannot be equal; give steps=N", "model")
    return max(1, ceil(budget.amount / spent))


@dataclass(frozen=True)
class MeanUpdate:
    """What an update costs on average: tokens of the data without padding, and FLOPs as they are padded, if known."""

    tokens: float
    flops: float | None


def mean_update(draft: Draft) -> MeanUpdate:
    """Count the updates of one pass over the data."""
    assert draft.model is not None
    model, rows_of_shape, count = build_empty(draft.model), dict[tuple[int, ...], int](), 0
    for draw in draft.task.feed(model, draft.train_table["tokens"], 0).order.epoch(0):
        count += 1
        rows_of_shape[draw.shape] = rows_of_shape.get(draw.shape, 0) + len(draw.rows)
    costs = [(forward_flops(model, max(shape, default=1)), rows) for shape, rows in rows_of_shape.items()]
    flops = sum(3 * (row or 0) * rows for row, rows in costs) * draft.task.passes() / count
    known = all(row is not None for row, _ in costs)
    return MeanUpdate(draft.task.amount().tokens / count, flops if known else None)
