"""The result of a finished run, `evaluation.json`: what its best weights measure on the validation data.

The file exists from the end of a training until the run is resumed, so that it also says whether a run is finished.
"""

import json
from dataclasses import asdict, dataclass
from math import isfinite, nan
from pathlib import Path
from shlex import quote
from typing import Any

from regard.atomic import write_text
from regard.errors import RegardError
from regard.runs.layout import EVALUATION
from regard.untrusted import JsonError, read_json
from regard.use.evaluate import Evaluation


@dataclass(frozen=True)
class RunResult:
    """The evaluation at the end of a run, the step at which it ended, and which weights were the best."""

    step: int
    weights: str  # "step 450", or an average
    evaluation: Evaluation


def write_result(folder: Path, result: RunResult) -> None:
    """Write the result of a run; NaN and infinity, which JSON does not have, become null."""
    table = {"step": result.step, "weights": result.weights, **asdict(result.evaluation)}
    table["metrics"] = {name: value if isfinite(value) else None for name, value in result.evaluation.items()}
    write_text(folder / EVALUATION, json.dumps(table, ensure_ascii=False, indent=1) + "\n")


def read_result(folder: Path) -> RunResult | None:
    """Read the result of a run; None if the run is not finished."""
    path = folder / EVALUATION
    if not path.is_file():
        return None
    try:
        table: dict[str, Any] = read_json(path)
        step, weights = int(table.pop("step")), str(table.pop("weights"))
        numbers = {str(name): nan if value is None else float(value) for name, value in table.pop("metrics").items()}
        return RunResult(step, weights, Evaluation(numbers, **table))
    except (JsonError, KeyError, TypeError, ValueError, AttributeError):
        remedy = f"remove it, and measure the run again with: regard train --resume {quote(str(folder))}"
        raise RegardError(f"{path}: not the result of a run; {remedy}") from None
