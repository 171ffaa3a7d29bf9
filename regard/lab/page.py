"""The page of an experiment, and the report of all: HTML files that need no network and no script.

`write_page` and `figure_html` are also for other pages in the same style.
"""

import re
import shlex
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from math import isfinite
from pathlib import Path
from statistics import fmean, stdev
from textwrap import shorten
from typing import Any

from regard.atomic import write_text
from regard.draw.style import DPI
from regard.escape import escape_controls
from regard.lab.experiment import Experiment, Row, Verdict
from regard.models.recipe import MODELS
from regard.runs.folder import read_run_recipe
from regard.training.report import PAGE, STYLE

SHORT = 16  # rows of a table that is shown without being asked for
MOST = 400  # rows of a table that is shown at all
LONGEST = 70  # characters of a text in a table
PIXELS = 120  # on the page, of an inch of a picture


@dataclass(frozen=True)
class DrawnPicture:
    """A picture as PNG files, for light and dark pages."""

    name: str
    caption: str
    light: bytes
    dark: bytes


@dataclass(frozen=True)
class Result:
    """What an experiment found, and where it is kept."""

    experiment: Experiment
    folder: Path
    settings: Mapping[str, Any]
    seeds: tuple[int, ...]
    rows: tuple[Row, ...]
    verdict: Verdict
    pictures: tuple[DrawnPicture, ...]
    seconds: float
    page: Path
    recipes: Mapping[str, str]  # resolved recipes by the names of their files
    runs: tuple[Path, ...]  # of models that were trained

    @property
    def worked(self) -> str:
        """The experiment's own text, such as a calculation step by step; "" if it has none."""
        return "" if self.experiment.worked is None else self.experiment.worked(self.rows)

    def _repr_html_(self) -> str:
        return "\n".join(_sections(self, "h2"))


def write_lab_page(path: Path, result: Result) -> None:
    """Write the page of one experiment."""
    title = result.experiment.title
    write_page(path, title, [f"<h1>{_text(title)}</h1>", *_sections(result, "h2")])


def write_lab_report(path: Path, results: Sequence[Result], failed: Mapping[str, str]) -> None:
    """Write one page with all verdicts at a glance, then all experiments; `failed` are errors by experiment."""
    held = sum(result.verdict.holds is True for result in results)
    title = "The lectures, measured"
    body = [
        f"<h1>{title}</h1>",
        f"<p>{held} of {len(results)} claims hold in these measurements. {_how(results[0])}</p>" if results else "",
        '<table class="glance">',
        *(
            f'<tr><td>{_chip(result.verdict)}</td><td><a href="#{_text(result.experiment.name)}">'
            f"{_text(result.experiment.title)}</a><small>{_inline(result.verdict.text)}</small></td></tr>"
            for result in results
        ),
        *(
            f'<tr><td><span class="chip open">not run</span></td><td>{_text(name)}<small>{_text(why)}</small></td></tr>'
            for name, why in failed.items()
        ),
        "</table>",
    ]
    for result in results:
        name, experiment_title = _text(result.experiment.name), _text(result.experiment.title)
        body += [f'<section id="{name}">', f"<h2>{experiment_title}</h2>", *_sections(result, "h3"), "</section>"]
    write_page(path, title, body)


def write_page(path: Path, title: str, body: Sequence[str]) -> None:
    """Write a page in the style of the lab; `body` is HTML."""
    write_text(path, PAGE.format(title=_text(title), style=STYLE + LAB_STYLE, body="\n".join(body)))


# --- sections --------------------------------------------------------------------------------------------------------


def _sections(result: Result, heading: str) -> Iterator[str]:
    experiment = result.experiment

    def head(text: str) -> str:
        return f"<{heading}>{text}</{heading}>"

    yield f'<div class="verdict">{_chip(result.verdict)}<p>{_inline(result.verdict.text)}</p></div>'
    yield head("Claim")
    yield f'<div class="claim">{_paragraphs(experiment.claim)}<p class="source">{_inline(experiment.source)}</p></div>'
    yield head("Method")
    yield _paragraphs(experiment.method)
    yield head("Result")
    if len(result.seeds) > 1:
        yield f"<p>{_text(_spread(len(result.seeds)))}</p>"
    for picture in result.pictures:
        yield figure_html(picture)
    if worked := result.worked:
        yield preformatted(worked)
    yield _table(experiment.table(result.rows) if experiment.table else average_seeds(result.rows))
    yield head("Vary it")
    yield _paragraphs(experiment.vary)
    yield from _look(result)
    yield head("How it was run")
    yield f"<p>{_how(result)}</p>"
    yield preformatted(_command(result))
    yield from _files(result)


def _chip(verdict: Verdict) -> str:
    kind, word = {True: ("yes", "holds"), False: ("no", "does not hold"), None: ("open", "not decided")}[verdict.holds]
    return f'<span class="chip {kind}">{word}</span>'


def figure_html(picture: DrawnPicture) -> str:
    """Embed a picture, as wide as its text needs to be as large as that of the page."""
    width = round(int.from_bytes(picture.light[16:20], "big") / DPI * PIXELS)  # the header of a PNG has its width
    light, dark = (f"data:image/png;base64,{b64encode(png).decode()}" for png in (picture.light, picture.dark))
    return f"""<figure><picture>
<source media="(prefers-color-scheme: dark)" srcset="{dark}">
<img style="max-width: {width}px" src="{light}" alt="{_text(picture.caption)}">
</picture><figcaption>{_inline(picture.caption)}</figcaption></figure>"""


def _look(result: Result) -> Iterator[str]:
    """Yield the commands that show what was trained in the viewer."""
    commands = [f"regard look -m {shlex.quote(str(run))}" for run in result.runs if _is_shipped_kind(run)]
    if not commands:
        return
    yield "<p>See what a model learned, head by head:</p>"
    yield preformatted(commands[0])
    if commands[1:]:
        others = preformatted("\n".join(commands[1:]))
        yield f"<details><summary>The other {len(commands) - 1} models</summary>{others}</details>"


def _is_shipped_kind(run: Path) -> bool:
    """Return whether a new process can load a run: its model is not of a kind that the experiment registered."""
    kind = read_run_recipe(run)["model"]["kind"]
    return kind in MODELS and kind not in MODELS.added()


def _spread(seeds: int) -> str:
    """Return how plots, sentences and tables show that seeds differ."""
    return (
        f"Lines and bars are means over {seeds} seeds (a line on a logarithmic vertical axis is the geometric mean). "
        "The band of a line, the stroke in a bar and the numbers in brackets reach from the smallest to the largest "
        "value. In tables, ± is the standard deviation."
    )


def _how(result: Result) -> str:
    """Return scale, seeds, device and version in a sentence."""
    seeds = f"{len(result.seeds)} seeds" if len(result.seeds) > 1 else f"seed {result.seeds[0]}"
    settings = result.settings
    trial = " The scale tiny only shows that everything runs; its verdicts mean little." * (settings["scale"] == "tiny")
    return _text(f"Scale {settings['scale']}, {seeds}, on {settings['device']}, regard {settings['regard']}.{trial}")


def _command(result: Result) -> str:
    """Return the command that repeats an experiment."""
    settings, first = result.settings, result.seeds[0]
    words = ["regard", "lab", result.experiment.name, *settings["changes"]]
    words += ["--scale", settings["scale"]] if settings["scale"] != "default" else []
    words += ["--seed", str(first)] if first else []
    words += ["--seeds", str(len(result.seeds))] if len(result.seeds) != result.experiment.seeds else []
    words += ["--recipe", settings["recipe"]] if settings["recipe"] is not None else []
    return shlex.join([*words, "--out", str(result.folder)])


def _files(result: Result) -> Iterator[str]:
    """Yield what was measured in numbers, and the recipes."""
    values = {name: _cell(value) for name, value in result.settings["values"].items()}
    cells = "".join(f"<tr><th>{_text(name)}</th><td>{_text(value)}</td></tr>" for name, value in values.items())
    seconds = f"Measured in {_duration(result.seconds)}. " if result.seconds >= 1 else ""
    yield f"<p>{seconds}All rows are in <code>results.csv</code>, the plots beside it as PNG and SVG.</p>"
    yield f"<details><summary>Settings of this scale</summary><table>{cells}</table></details>"
    if result.recipes:
        listed = "".join(f"<p>{_text(name)}</p>{preformatted(text)}" for name, text in result.recipes.items())
        yield f"<details><summary>Recipes: {_text(', '.join(result.recipes))}</summary>{listed}</details>"


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


# --- tables ----------------------------------------------------------------------------------------------------------


def average_seeds(rows: Sequence[Row]) -> list[Row]:
    """Return one row for each place: what all seeds agree on, else mean and standard deviation over the seeds.

    Seeds that measured different rows are listed one after the other.
    """
    seeds = list(dict.fromkeys(row["seed"] for row in rows))
    every = [[row for row in rows if row["seed"] == seed] for seed in seeds]
    if len(seeds) == 1 or len({len(each) for each in every}) > 1:
        return [{name: _cell(value) for name, value in row.items() if name != "seed"} for row in rows]
    return [
        {name: _average([row.get(name) for row in same]) for name in same[0] if name != "seed"}
        for same in zip(*every, strict=True)
    ]


def _average(values: Sequence[Any]) -> str:
    """Return mean and standard deviation; of texts that differ, the one of the first seed."""
    if len({_cell(value) for value in values}) == 1 or not all(isinstance(value, int | float) for value in values):
        return _cell(values[0])
    if not all(map(isfinite, values)):
        return ", ".join(map(_cell, values))
    return f"{_cell(fmean(values))} ± {stdev(values):.2g}"


def _cell(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.0f}" if 10000 <= abs(value) < 1e12 else f"{value + 0.0:.4g}"
    if isinstance(value, list | tuple):
        return ", ".join(map(_cell, value))
    return shorten(str(value), LONGEST, placeholder=" ...") if len(str(value)) > LONGEST else str(value)


def _table(rows: Sequence[Row]) -> str:
    """Return a table; a long one is folded."""
    if not rows:
        return ""
    columns = list(dict.fromkeys(name for row in rows for name in row))
    head = "".join(f"<th>{_text(name)}</th>" for name in columns)
    lines = ["".join(f"<td>{_inline(_cell(row.get(name, '')))}</td>" for name in columns) for row in rows[:MOST]]
    body = "\n".join(f"<tr>{line}</tr>" for line in lines)
    table = f'<div class="wide" tabindex="0"><table class="numbers"><tr>{head}</tr>\n{body}</table></div>'
    if len(rows) <= SHORT:
        return table
    left = f", the first {MOST} here" if len(rows) > MOST else ""
    return f"<details><summary>The numbers: {len(rows):,} rows{left}</summary>{table}</details>"


# --- text ------------------------------------------------------------------------------------------------------------


def _text(text: str) -> str:
    return escape(escape_controls(text, keep="\n"))


def preformatted(text: str) -> str:
    """Return text that keeps its lines, and can be scrolled with the keyboard where they are too long."""
    return f'<pre tabindex="0">{_text(text)}</pre>'


def _inline(text: str) -> str:
    """Return text as HTML, `backticks` as code, and a number after ^ as an exponent."""
    marked = re.sub(r"`([^`]+)`", r"<code>\1</code>", _text(text))
    return re.sub(r"(?<=\w)\^(-?\d+(?:\.\d+)?)", r"<sup>\1</sup>", marked)


def _paragraphs(text: str) -> str:
    """Return paragraphs; one that is indented by four spaces keeps its lines."""
    found = []
    for paragraph in re.split(r"\n\s*\n", text.strip("\n")):
        lines = paragraph.split("\n")
        if all(line.startswith("    ") for line in lines):
            found.append(preformatted("\n".join(line[4:] for line in lines)))
        else:
            found.append(f"<p>{_inline(' '.join(line.strip() for line in lines))}</p>")
    return "\n".join(found)


LAB_STYLE = """
:root { --yes: #1c7c54; --no: #b4451a; --open: #667080; }
@media (prefers-color-scheme: dark) { :root { --yes: #4fc08d; --no: #f08a55; --open: #98a1b0; } }
h3 { font-size: 1rem; margin: 1.6rem 0 .4rem; }
p { margin: .5rem 0; }
code, pre { font: .87em/1.5 ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; }
code { background: var(--card); border-radius: 4px; padding: .1em .3em; }
pre { background: var(--card); border-radius: 10px; padding: .8rem 1rem; margin: .6rem 0; overflow-x: auto;
  overflow-wrap: normal; }
a { color: inherit; }
.chip { display: inline-block; white-space: nowrap; border: 1.5px solid currentColor; border-radius: 999px;
  padding: 0 .7rem; font-weight: 600; font-size: .85rem; line-height: 1.6rem; }
.chip.yes { color: var(--yes); } .chip.no { color: var(--no); } .chip.open { color: var(--open); }
.verdict { background: var(--card); border-radius: 10px; padding: .8rem 1rem; display: flex; gap: 1rem;
  align-items: baseline; }
.verdict p { margin: 0; }
.claim { border-left: 3px solid var(--line); padding-left: 1rem; }
.claim p:first-child { margin-top: 0; }
sup { line-height: 0; }
.source { color: var(--soft); font-size: .9rem; }
figure { margin: 1rem 0 1.4rem; break-inside: avoid; }
figcaption { color: var(--soft); font-size: .9rem; margin-top: .3rem; }
.wide { overflow-x: auto; }
.numbers { font-variant-numeric: tabular-nums; font-size: .9rem; }
.numbers th { width: auto; white-space: nowrap; } .numbers td { white-space: nowrap; }
.glance td:first-child { width: 8.5rem; } .glance td { white-space: normal; }
.glance small { display: block; color: var(--soft); }
details { margin: .5rem 0; } summary { cursor: pointer; color: var(--soft); }
section { border-top: 2px solid var(--line); margin-top: 3.5rem; }
@media (max-width: 600px) { .verdict { flex-direction: column; gap: .5rem; }
  .glance, .glance tbody, .glance tr, .glance td { display: block; } .glance td { border: 0; padding: .2rem 0; }
  .glance tr { border-top: 1px solid var(--line); padding: .5rem 0; } }
@media print { body { max-width: none; padding: 0; font-size: 10.5pt; }
  section { break-before: page; border: 0; margin: 0; }
  .numbers { font-size: 8pt; } .numbers th, .numbers td { white-space: normal; }
  h2, h3 { break-after: avoid; } details:not([open]) { display: none; } pre { white-space: pre-wrap; }
  .card, .verdict, pre, code { print-color-adjust: exact; } }
"""
