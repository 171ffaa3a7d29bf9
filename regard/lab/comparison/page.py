"""The page of a comparison: the table, learning curves over what was spent, and every command."""

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from statistics import fmean
from typing import Any

from regard.draw import lines
from regard.escape import escape_controls
from regard.lab.comparison.table import CURVES_FILE, RUNS_FILE, TABLE_FILE, Comparison, table_html, title_of
from regard.lab.experiment import Picture
from regard.lab.page import DrawnPicture, figure_html, preformatted, write_page
from regard.runs.layout import REPORT
from regard.tasks.metric import HIGHER_IS_BETTER

PAGE_OF_COMPARISON = "index.html"
PREFIXES = {"P": 1e15, "T": 1e12, "G": 1e9, "M": 1e6, "k": 1e3}
SPENT = {"step": "updates", "tokens": "tokens", "flops": "FLOPs", "seconds": "seconds of updates"}


def curve_rows(records: Mapping[tuple[str, int | None], Sequence[Mapping[str, Any]]]) -> list[dict[str, Any]]:
    """Return the validations of all runs as rows: model, seed, what was spent until then, and what was measured."""
    return [
        {"model": model, "seed": seed, **{key: value for key, value in record.items() if key not in ("kind", "time")}}
        for (model, seed), log in records.items()
        for record in log
        if record.get("kind") == "valid"
    ]


def draw_comparison(
    rows: Sequence[Mapping[str, Any]], metric: str, counted: str, method: str = ""
) -> Iterator[Picture]:
    """Draw the metric over updates, tokens, FLOPs and seconds: the mean over seeds, and the range as a band.

    `counted` names what the log counts as tokens, as `Task.unit` does; it may be texts or images. `method` says how
    validations measure while a model is trained: "greedy, 500 of 2,000 pairs".
    """
    measured = [row for row in rows if isinstance(row.get(metric), int | float)]
    how = f" ({method})" if method else ""
    for key, name in (SPENT | {"tokens": counted.replace("tok", "tokens")}).items():
        unit, size = _unit(name, max((row[key] for row in measured if key in row), default=0))
        points = list(_at_mean_places(measured, key, unit, size, metric))
        if points and len({point[unit] for point in points}) > 1:
            figure = lines(points, x=unit, y=title_of(metric), by="model")
            what = f"{_capitalised(title_of(metric))} on the validation data{how} over {name}"
            yield Picture(f"curves-{key}", f"{what}: mean and range over seeds.", figure)


def _unit(name: str, most: int | float) -> tuple[str, float]:
    """Return the name of an axis with a unit that keeps its numbers short, and the size of the unit."""
    if name not in (SPENT["step"], SPENT["seconds"]):
        for letter, size in PREFIXES.items():
            if most >= 10 * size:
                return f"{letter}{name}" if name == "FLOPs" else f"{name} ({letter})", size
    return name, 1.0


def _at_mean_places(
    rows: Iterable[Mapping[str, Any]], key: str, name: str, size: float, metric: str
) -> Iterator[dict[str, Any]]:
    """Yield points to draw; seeds that have made the same number of updates are at one place, the mean of theirs."""
    same: dict[tuple[str, int], list[Mapping[str, Any]]] = {}
    for row in rows:
        if isinstance(row.get(key), int | float):
            same.setdefault((row["model"], row["step"]), []).append(row)
    for (model, _), group in same.items():
        place = fmean(row[key] for row in group) / size
        yield from ({"model": model, name: place, title_of(metric): row[metric]} for row in group)


def _capitalised(text: str) -> str:
    return text[:1].upper() + text[1:]


# --- the page --------------------------------------------------------------------------------------------------------


def write_comparison_page(
    table: Comparison,
    pictures: Sequence[DrawnPicture],
    facts: Mapping[str, str],
    command: str,
    recipes: Mapping[str, Path],
) -> None:
    """Write the page; `facts` say how it was run, and `recipes` are the complete recipes of what was trained."""
    names = [str(row["model"]) for row in table.rows]
    title = f"{', '.join(names[:-1])} and {names[-1]}, compared" if len(names) > 1 else names[0]
    curves = f", all validations in <code>{CURVES_FILE}</code>; the curves are beside them as PNG and SVG"
    curves = curves if pictures else ""  # runs that are only measured have none
    body = [
        f"<h1>{_html(title)}</h1>",
        *(f"<p>{_html(sentence)}</p>" for sentence in verdict_sentences(table)),
        f'<div class="wide">{table_html(table)}</div>',
        *(f'<p class="source">{_html(note)}</p>' for note in table.notes),
        *(f"<p>{_html(f'{run} failed: {reason}')}</p>" for run, reason in table.failures.items()),
        *(["<h2>Learning curves</h2>"] if pictures else []),
        *map(figure_html, pictures),
        "<h2>Look inside</h2>",
        "<p>See what the models attend to in the viewer, side by side:</p>",
        preformatted(_look_command(table)),
        *_models(table),
        "<h2>How it was run</h2>",
        "<table>" + "".join(f"<tr><th>{_html(name)}</th><td>{_html(text)}</td></tr>" for name, text in facts.items()),
        "</table>",
        "<p>This command shows it again, and continues it after an interruption:</p>",
        preformatted(command),
        *_commands(table, recipes),
        f"<p>The numbers are in <code>{TABLE_FILE}</code>, those of each run in <code>{RUNS_FILE}</code>{curves}.</p>",
    ]
    write_page(table.folder / PAGE_OF_COMPARISON, title, body)


def verdict_sentences(table: Comparison) -> Iterator[str]:
    """Yield what the table says in words: the best model, and what differs from it significantly."""
    best, *others = table.rows
    metric, name = table.metric, title_of(table.metric)
    word = "highest" if HIGHER_IS_BETTER[metric] else "lowest"
    if best[metric] is None:
        yield f"No model has a finite {name}."
        return
    yield f"{best['model']} has the {word} {name}: {best[metric]:.4g} ({_runs(best['runs'])})."
    worse = [f"{row['model']} ({row['difference']:+.3g})" for row in others if row["significant"]]
    unclear = [f"{row['model']} ({row['difference']:+.3g})" for row in others if row["significant"] is False]
    if worse:
        yield f"Significantly worse: {', '.join(worse)}."
    if unclear:
        yield f"The difference is within the noise for {', '.join(unclear)}."


def _runs(count: int) -> str:
    return "1 run" if count == 1 else f"{count} runs"


def _look_command(table: Comparison) -> str:
    """Return the command that opens the first run of every model in the viewer."""
    first = {run["model"]: run["run"] for run in reversed(table.runs)}
    return shlex.join(["regard", "look", *(word for row in table.rows for word in ("-m", first[row["model"]]))])


def _models(table: Comparison) -> Iterator[str]:
    """Yield the viewer's command for each model, with links to the reports of its runs."""
    for row in table.rows:
        runs = [run for run in table.runs if run["model"] == row["model"]]
        first = shlex.quote(runs[0]["run"])
        reports = [run for run in runs if (Path(run["run"]) / REPORT).is_file()]
        links = ", ".join(_report_link(run, table.folder) for run in reports)
        yield f"<h3>{_html(row['model'])}</h3>{preformatted(f'regard look -m {first}')}"
        if links:
            yield f'<p class="source">Reports: {links}</p>'


def _report_link(run: Mapping[str, Any], folder: Path) -> str:
    path = Path(run["run"]).resolve() / REPORT
    inside = path.is_relative_to(folder.resolve())
    address = path.relative_to(folder.resolve()).as_posix() if inside else path.as_uri()
    name = Path(run["run"]).name if run["seed"] is None else f"seed {run['seed']}"
    return f'<a href="{escape(address)}">{_html(name)}</a>'


def _commands(table: Comparison, recipes: Mapping[str, Path]) -> Iterator[str]:
    """Yield the command of every run, folded, and the recipes."""
    trained = [run for run in table.runs if run["model"] in recipes and run["seed"] is not None]
    words = [
        ["regard", "train", str(recipes[run["model"]]), f"train.seed={run['seed']}", "--run", run["run"]]
        for run in trained
    ]
    if words:
        listed = "\n".join(map(shlex.join, words))
        yield f"<details><summary>The command of each run</summary>{preformatted(listed)}</details>"
    for name, path in recipes.items():
        text = path.read_text(encoding="utf-8")
        yield f"<details><summary>Recipe of {_html(name)}</summary>{preformatted(text)}</details>"


def _html(text: str) -> str:
    return escape(escape_controls(text, keep="\n"))
