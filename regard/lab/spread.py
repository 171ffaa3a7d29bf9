"""A number with its spread over seeds, for verdicts."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from regard.lab.experiment import Row


@dataclass(frozen=True)
class Spread:
    """The mean of some values, the smallest and the largest."""

    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        if f"{self.low:.3g}" == f"{self.high:.3g}":
            return f"{self.mean:.3g}"
        return f"{self.mean:.3g} ({self.low:.3g} to {self.high:.3g})"


def over_seeds(rows: Iterable[Row], column: str, where: Mapping[str, Any] | None = None) -> Spread:
    """Return mean and range of a column over the rows that have these values: over the seeds, if these name one row."""
    found = [row for row in rows if all(row.get(name) == value for name, value in (where or {}).items())]
    values = [float(row[column]) for row in found]
    assert values, f"no row has {where}"
    return Spread(fmean(values), min(values), max(values))
