"""Exponents of power laws, fitted to measurements."""

from collections.abc import Iterable, Mapping
from math import log
from statistics import linear_regression
from typing import Any

from regard.lab.experiment import Row


def fit_exponent(
    rows: Iterable[Row], x: str, y: str, where: Mapping[str, Any] | None = None, largest: int | None = None
) -> float:
    """Return p of the least-squares fit y = c x^p in logarithms, over the rows that have these values.

    With `largest`, only that many of the largest values of x count, where lower-order terms matter least.
    """
    found = [row for row in rows if all(row.get(name) == value for name, value in (where or {}).items())]
    kept = sorted({row[x] for row in found})[-(largest or 0) :]
    points = [(log(row[x]), log(row[y])) for row in found if row[x] in kept]
    return linear_regression(*zip(*points, strict=True)).slope
