"""The result of a comparison: a row for each model, with its spread over seeds and the test against the best model."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from io import StringIO
from math import floor, isfinite, log10
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from rich.table import Table as RichTable
from rich.text import Text

from regard.atomic import write_text
from regard.errors import InputError
from regard.escape import escape_controls
from regard.lab.comparison.significance import (
    RESAMPLES,
    BleuCounts,
    Difference,
    correct_for_number,
    deviation,
    interval_of_mean,
    paired_bootstrap,
    welch_test,
)
from regard.quantity import short_count
from regard.tasks.metric import HIGHER_IS_BETTER, range_of
from regard.terminal import plain_console
from regard.training.progress import duration
from regard.use.evaluate import Evaluation

if TYPE_CHECKING:
    from rich.console import Console

LEVEL = 0.05  # a smaller p is called significant
PER_TOKEN = ("loss", "perplexity")
TABLE_FILE, RUNS_FILE, CURVES_FILE = "table.csv", "runs.jsonl", "curves.jsonl"
TITLES = {"bleu": "BLEU", "chrf": "chrF", "f1": "F1", "bits_per_byte": "bits per byte"}


@dataclass(frozen=True)
class RunRecord:
    """One finished run: what it measures, and what its training cost, as far as its log says."""

    model: str
    seed: int | None  # None: a run that was given, and not trained by the comparison
    folder: Path
    evaluation: Evaluation
    parameters: int | None
    spent: Mapping[str, int | float]  # steps, tokens, seconds, flops, memory
    tokenizer: str | None  # its checksum; None if there is none

    def row(self) -> dict[str, Any]:
        """Return it as a line of `runs.jsonl`."""
        metrics = {name: value if isfinite(value) else None for name, value in self.evaluation.items()}
        about = {"model": self.model, "seed": self.seed, "run": str(self.folder), "parameters": self.parameters}
        return {**about, **metrics, **self.spent}


@dataclass(frozen=True)
class Comparison:
    """The table of a comparison: `print(table)`, a notebook, and `pandas.DataFrame(table.rows)` show it.

    `rows` has a dictionary for each model, the best first; `runs` one for each run. `folder` holds the page, the
    pictures, the runs and the same numbers as files.
    """

    task: str
    metric: str
    unit: str  # what the speed counts: tok, images
    rows: list[dict[str, Any]]
    runs: list[dict[str, Any]]
    notes: list[str]  # how it was measured and tested
    failures: dict[str, str] = field(default_factory=dict)  # why runs failed, by name and seed
    folder: Path = Path()

    def __str__(self) -> str:
        file = StringIO()
        print_comparison(self, plain_console(file=file, width=120, color_system=None))
        return file.getvalue().rstrip("\n")

    def __repr__(self) -> str:
        return f"<comparison of {len(self.rows)} models by {self.metric}: {self.folder}>"

    def _repr_html_(self) -> str:
        notes = "".join(f"<p><small>{escape(escape_controls(note))}</small></p>" for note in self.notes)
        return table_html(self) + notes


# --- computing the rows ----------------------------------------------------------------------------------------------


def choose_metric(records: Sequence[RunRecord], metric: str) -> str:
    """Return the metric that compares these runs: per byte instead of per token, if their tokenizers differ."""
    tokenizers = {record.tokenizer: record.model for record in records}
    if metric not in PER_TOKEN or len(tokenizers) == 1:
        return metric
    if all(isfinite(record.evaluation.metrics.get("bits_per_byte", float("nan"))) for record in records):
        return "bits_per_byte"
    names = " and ".join(list(tokenizers.values())[:2])
    rule = f"{names} have different tokenizers, so their {metric} per token cannot be compared"
    raise InputError(f"{rule}; compare runs with one tokenizer")


def compare_records(
    records: Sequence[RunRecord], metric: str, references: Sequence[str] = ()
) -> tuple[list[dict[str, Any]], list[str]]:
    """Return a row for each model, the best first, and how they were tested; `references` are those of BLEU."""
    models: dict[str, list[RunRecord]] = {}
    for record in records:
        models.setdefault(record.model, []).append(record)
    values = {name: [record.evaluation[metric] for record in runs] for name, runs in models.items()}
    sign = -1.0 if HIGHER_IS_BETTER[metric] else 1.0
    order = sorted(models, key=lambda name: (not isfinite(fmean(values[name])), sign * fmean(values[name])))
    best = order[0]
    counts: dict[str, BleuCounts] = {}
    if metric == "bleu" and references:
        made = {name: [run.evaluation.translations for run in runs] for name, runs in models.items()}
        counts = {name: BleuCounts(texts, references) for name, texts in made.items()}
    tests = {name: _test(name, best, values, counts) for name in order[1:]}
    rows = [_row(name, models[name], metric) for name in order]
    corrected = correct_for_number([p for test in tests.values() if (p := test.p) is not None])
    corrections = iter(corrected)
    for row in rows[1:]:
        test = tests[row["model"]]
        p = None if test.p is None else next(corrections)
        row |= test.columns() | {"p": p, "significant": None if p is None else p < LEVEL}
    return rows, list(_explain(models, best, metric, tests))


@dataclass(frozen=True)
class BothTests:
    """The tests of a model against the best one: over seeds, and over sentences."""

    against: str
    difference: float | None  # None: one of the means is not finite
    seeds: Difference | None
    sentences: Difference | None

    @property
    def p(self) -> float | None:
        """The larger of both, before it is corrected: a difference must be larger than both kinds of noise."""
        found = [test.p for test in (self.seeds, self.sentences) if test is not None]
        return max(found, default=None)

    def columns(self) -> dict[str, Any]:
        """Return the columns of a row; the interval is the wider one."""
        found = [test for test in (self.seeds, self.sentences) if test is not None]
        widest = max(found, key=lambda test: test.high - test.low, default=None)
        return {
            "against": self.against,
            "difference": self.difference,
            "difference_low": None if widest is None else widest.low,
            "difference_high": None if widest is None else widest.high,
            "p_seeds": None if self.seeds is None else self.seeds.p,
            "p_sentences": None if self.sentences is None else self.sentences.p,
        }


def _test(ours: str, best: str, values: Mapping[str, Sequence[float]], counts: Mapping[str, BleuCounts]) -> BothTests:
    sentences = paired_bootstrap(counts[ours], counts[best]) if counts else None
    difference = _mean([fmean(values[ours]) - fmean(values[best])])
    return BothTests(best, difference, welch_test(values[ours], values[best]), sentences)


def _row(name: str, runs: Sequence[RunRecord], metric: str) -> dict[str, Any]:
    """Return the row of a model: means over its runs, and the spread of the metric."""
    values = [run.evaluation[metric] for run in runs]
    interval = _within_range(interval_of_mean(values), metric)
    row: dict[str, Any] = {"model": name, "runs": len(runs), metric: _mean(values)}
    row[f"{metric}_sd"] = deviation(values)
    row[f"{metric}_low"], row[f"{metric}_high"] = interval or (None, None)
    empty = ("against", "difference", "difference_low", "difference_high", "p_seeds", "p_sentences", "p", "significant")
    row |= dict.fromkeys(empty)
    row["parameters"] = runs[0].parameters
    for key in ("steps", "tokens", "flops", "seconds"):
        mean = _mean([run.spent[key] for run in runs if key in run.spent])
        row[key] = mean if mean is None or key == "seconds" else round(mean)
    timed = [run.spent for run in runs if run.spent.get("seconds")]
    seconds = sum(spent["seconds"] for spent in timed)
    row["tokens_per_second"] = sum(spent["tokens"] for spent in timed) / seconds if timed else None
    row["memory"] = max((run.spent["memory"] for run in runs if "memory" in run.spent), default=None)
    others = [key for key in runs[0].evaluation if key != metric]
    return row | {key: _mean([run.evaluation[key] for run in runs if key in run.evaluation.metrics]) for key in others}


def _within_range(interval: tuple[float, float] | None, metric: str) -> tuple[float, float] | None:
    """Return the part of an interval that a metric can have: an accuracy is never below 0 or above 1."""
    low, high = range_of(metric)
    return None if interval is None else (max(interval[0], low), min(interval[1], high))


def _mean(values: Sequence[int | float]) -> float | None:
    mean = fmean(values) if values else None
    return mean if mean is not None and isfinite(mean) else None


def _explain(
    models: Mapping[str, Sequence[RunRecord]], best: str, metric: str, tests: Mapping[str, BothTests]
) -> Iterator[str]:
    """Yield how the spread and the tests are computed."""
    name, direction = title_of(metric), "highest" if HIGHER_IS_BETTER[metric] else "lowest"
    if any(len(runs) > 1 for runs in models.values()):
        yield f"{name}: mean ± standard deviation over runs; the interval of 95 % is that of the mean (Student's t)."
    if not tests:
        return
    counts = sorted({len(runs) for runs in models.values()})
    runs = f"{counts[0]} runs" if len(counts) == 1 else f"{counts[0]} to {counts[-1]} runs"
    methods = []
    if any(test.seeds is not None for test in tests.values()):
        methods.append(f"Welch's t-test over {runs} each")
    if any(test.sentences is not None for test in tests.values()):
        methods.append(f"the paired bootstrap over sentences ({RESAMPLES:,} resamples)")
    if not methods:
        why = "with one run each" if counts[0] == 1 else "as the runs of a model do not differ"
        yield f"Differences are to {best}, which has the {direction} {name}. They cannot be tested {why}."
        return
    joined = f"{' and '.join(methods)}, of which the larger p counts" if len(methods) > 1 else methods[0]
    several = f", corrected for {len(tests)} comparisons (Holm)" if len(tests) > 1 else ""
    yield f"Differences are to {best}, which has the {direction} {name}; * is p < {LEVEL:g} by {joined}{several}."
    if not any(test.sentences is not None for test in tests.values()):
        yield "The test covers the noise of training, not the choice of the validation rows."
    if counts[0] < 5 and any(test.seeds is not None for test in tests.values()):
        yield "With so few runs only large differences are significant; one without * does not prove equality."


# --- showing them ----------------------------------------------------------------------------------------------------


def title_of(metric: str) -> str:
    """Return the name of a metric for people."""
    return TITLES.get(metric, metric.replace("_", " "))


def columns_of(table: Comparison) -> dict[str, list[str]]:
    """Return the columns as texts by their headings, the most important first; columns without a value are left out."""
    metric = table.metric
    columns = {
        "model": [row["model"] for row in table.rows],
        title_of(metric): [_with_spread(row, metric) for row in table.rows],
        "to the best": [_difference(row) for row in table.rows],
        "parameters": [_shortened(row["parameters"]) for row in table.rows],
        "95 %": [_interval(row, metric) for row in table.rows],
        "runs": [str(row["runs"]) for row in table.rows],
        f"{table.unit}/s": [_shortened(row["tokens_per_second"]) for row in table.rows],
        "memory": ["" if not row["memory"] else f"{short_count(row['memory'])}B" for row in table.rows],
        "FLOPs": [_shortened(row["flops"]) for row in table.rows],
        "updates": [_shortened(row["steps"]) for row in table.rows],
        "time": ["" if row["seconds"] is None else duration(row["seconds"]) for row in table.rows],
    }
    return {name: cells for name, cells in columns.items() if any(cells)}


def _shortened(value: int | float | None) -> str:
    return "" if value is None else short_count(value)


def _with_spread(row: Mapping[str, Any], metric: str) -> str:
    if row[metric] is None:
        return "not finite"
    spread = row[f"{metric}_sd"]
    if spread is None:
        return f"{row[metric]:#.4g}"
    digits = _digits(spread)
    return f"{row[metric]:.{digits}f} ± {spread:.{digits}f}"


def _digits(spread: float) -> int:
    """Return how many digits after the point a number has, of which two are uncertain."""
    return min(max(1 - floor(log10(spread)), 0), 6) if spread > 0 else 4


def _difference(row: Mapping[str, Any]) -> str:
    if row["difference"] is None:
        return "best" if row["against"] is None else ""
    p = "" if row["p"] is None else " p<0.001" if row["p"] < 0.001 else f" p={row['p']:.2g}"
    return f"{row['difference']:+.3g}{p}{'*' if row['significant'] else ''}"


def _interval(row: Mapping[str, Any], metric: str) -> str:
    spread, low, high = (row[f"{metric}_{name}"] for name in ("sd", "low", "high"))
    return "" if spread is None else f"{low:.{_digits(spread)}f} to {high:.{_digits(spread)}f}"


def print_comparison(table: Comparison, console: "Console") -> None:
    """Print the columns that fit, and the notes."""
    columns = columns_of(table)
    grid = RichTable(box=None, padding=(0, 2, 0, 0), header_style="dim")
    free = console.width
    for name, cells in columns.items():
        free -= max(map(len, (name, *cells))) + 2
        if free < 0 and grid.columns:  # the others are in the files
            break
        grid.add_column(name, justify="left" if name in ("model", "to the best") else "right", no_wrap=True)
    for number in range(len(table.rows)):
        cells = [column[number] for column in list(columns.values())[: len(grid.columns)]]
        grid.add_row(*(Text(escape_controls(cell), "bold" if number == 0 else "") for cell in cells))
    console.print(grid)
    console.print()
    for note in table.notes:
        console.print(Text(escape_controls(note), "dim"), soft_wrap=not console.is_terminal)
    for title, reason in table.failures.items():
        console.print(Text(escape_controls(f"{title} failed: {reason}"), "yellow"), soft_wrap=not console.is_terminal)


def table_html(table: Comparison) -> str:
    """Return the table as HTML."""
    columns = columns_of(table)
    heads = "".join(f"<th>{escape(name)}</th>" for name in columns)
    lines = []
    for number in range(len(table.rows)):
        cells = [escape(escape_controls(column[number])) for column in columns.values()]
        lines.append("<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>")
    return f'<table class="numbers"><thead><tr>{heads}</tr></thead><tbody>{"".join(lines)}</tbody></table>'


def write_tables(table: Comparison, curves: Sequence[Mapping[str, Any]]) -> None:
    """Write the rows as CSV; the runs and their learning curves as lines of JSON, as pandas reads them."""
    file = StringIO()
    writer = csv.DictWriter(file, list(dict.fromkeys(key for row in table.rows for key in row)), lineterminator="\n")
    writer.writeheader()
    writer.writerows(table.rows)
    write_text(table.folder / TABLE_FILE, file.getvalue())
    for name, records in ((RUNS_FILE, table.runs), (CURVES_FILE, curves)):
        lines = (json.dumps(record, ensure_ascii=False) for record in records)
        write_text(table.folder / name, "".join(f"{line}\n" for line in lines))
