"""Report a run: the learning curves as a picture, and an HTML page with scores, curves, samples and settings."""

from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from math import nan
from pathlib import Path

from regard.draw import DARK, LIGHT, Curve, Look, Panel, curves, encode_figure
from regard.draw.file import write_bytes
from regard.errors import RegardError
from regard.escape import escape_controls
from regard.runs.layout import CURVES, METRICS, REPORT
from regard.runs.records import Record, read_metrics, read_samples
from regard.tasks.baselines import Baseline, describe_baseline, find_better_baselines
from regard.tasks.metric import DETAILS, HIGHER_IS_BETTER, better
from regard.training.progress import SHOWN_SAMPLES, short_number

Facts = Sequence[tuple[str, Sequence[tuple[str, str]]]]
Points = dict[int, float]

NAMES = {"bleu": "BLEU", "bleu_lowercase": "BLEU, lowercase", "chrf": "chrF", "f1": "F1"}


def draw_curves(folder: Path) -> Path:
    """Draw loss, metrics and learning rate over the steps into `curves.png`."""
    path = folder / CURVES
    write_bytes(path, _picture(_logged(folder), LIGHT, columns=2))
    return path


def write_report(
    folder: Path,
    title: str,
    scores: Mapping[str, float],
    measured: str,
    facts: Facts,
    method: str = "",
    baselines: Sequence[Baseline] = (),
) -> Path:
    """Write `report.html`: scores, curves, samples and facts in one page that needs no network and no script.

    `scores` are of the best weights, the most important first; `measured` says which weights these are, and how they
    were measured. `method` says how the validations of the curves measured: "greedy, 500 of 2,000 pairs". `baselines`
    are compared with the first score.
    """
    path = folder / REPORT
    records = _logged(folder)
    sections = [
        f"<h1>{_text(title)}</h1>",
        f"<p>{_text(measured)}</p>",
        *_cards(scores, records),
        *_comparison(scores, baselines),
        "<h2>Learning curves</h2>",
        f"<p>Validations while training: {_text(method)}.</p>" if method else "",
        _pictures(records),
        *_samples(folder),
        *_tables(facts),
    ]
    page = PAGE.format(title=_text(title), style=STYLE, body="\n".join(sections))
    write_bytes(path, page.encode())
    return path


def _logged(folder: Path) -> list[Record]:
    records = read_metrics(folder)
    if not records:
        raise RegardError(f"{folder / METRICS}: nothing is logged here, so there is nothing to draw; train first")
    return records


# --- curves --------------------------------------------------------------------------------------------------------


def _curve(records: list[Record], kind: str, name: str) -> Points:
    """Collect one value over the steps; the last of two values of a step counts, and a missing number is a gap."""
    found = {record["step"]: record[name] for record in records if record.get("kind") == kind and name in record}
    return {step: float(found[step]) if isinstance(found[step], int | float) else nan for step in sorted(found)}


def _metrics(records: list[Record]) -> list[str]:
    """List what validation measured besides the loss, in the order of the log."""
    names = dict.fromkeys(name for record in records if record.get("kind") == "valid" for name in record)
    return [name for name in names if name in HIGHER_IS_BETTER and name != "loss" and name not in DETAILS]


def _best(name: str, curve: Points) -> int | None:
    """Find the step at which a metric was best, the first of equals."""
    found: int | None = None
    for step, value in curve.items():
        if better(name, value, None if found is None else curve[found]):
            found = step
    return found


def _panels(records: list[Record]) -> list[Panel]:
    """List the curves: the loss, then what validation measured, then the learning rate."""

    def measured(name: str, title: str) -> Curve:
        points = _curve(records, "valid", name)
        return Curve(title, points, measured=True, best=_best(name, points))

    loss = Curve("training", _curve(records, "train", "loss"))
    panels = [Panel("Loss", [loss, measured("loss", "validation")])]
    panels += [Panel(_name(name), [measured(name, _name(name))]) for name in _metrics(records)]
    if rate := _curve(records, "train", "rate"):
        panels.append(Panel("Learning rate", [Curve("Learning rate", rate)]))
    return panels


def _picture(records: list[Record], look: Look, columns: int) -> bytes:
    """Draw the curves as a PNG."""
    return encode_figure(curves(_panels(records), columns=columns, look=look), "png")


def _name(metric: str) -> str:
    return NAMES.get(metric, metric.replace("_", " ").capitalize())


# --- the page ------------------------------------------------------------------------------------------------------


def _text(text: str) -> str:
    """Escape text for HTML; line ends stay."""
    return escape(escape_controls(text, keep="\n"))


def _cards(scores: Mapping[str, float], records: list[Record]) -> Iterator[str]:
    """Yield a card for each score of the best weights; then one for the training loss."""
    cards = [(value, "Validation loss" if name == "loss" else _name(name), "") for name, value in scores.items()]
    if training := _curve(records, "train", "loss"):
        last, value = list(training.items())[-1]
        cards.append((value, "Training loss", f"at step {last}"))
    yield '<div class="cards">'
    for value, title, when in cards:
        yield f'<div class="card"><b>{short_number(value)}</b> {_text(title)}<small>{when}</small></div>'
    yield "</div>"


def _comparison(scores: Mapping[str, float], baselines: Sequence[Baseline]) -> Iterator[str]:
    """Yield a table of the model and the baselines, and a warning if the model does not beat them."""
    if not baselines:
        return
    metric, score = next(iter(scores.items()))
    ahead = {baseline.name for baseline in find_better_baselines(metric, score, baselines)}
    yield "<h2>Against simple models</h2>"
    if ahead:
        yield f'<p class="warning">This model is not better than a simple one: {_text(", ".join(sorted(ahead)))}.</p>'
    rows = [("this model", f"{metric} {score:.3g}")]
    rows += [(baseline.name, describe_baseline(metric, baseline).partition(": ")[2]) for baseline in baselines]
    yield _table(rows, "facts")


def _pictures(records: list[Record]) -> str:
    """Embed the curves four times, for light and dark, desktop and phone; the browser chooses."""

    def source(look: Look, columns: int) -> str:
        return "data:image/png;base64," + b64encode(_picture(records, look, columns)).decode()

    dark, narrow = "(prefers-color-scheme: dark)", "(max-width: 600px)"
    return f"""<picture>
<source media="{narrow} and {dark}" srcset="{source(DARK, 1)}">
<source media="{narrow}" srcset="{source(LIGHT, 1)}">
<source media="{dark}" srcset="{source(DARK, 2)}">
<img src="{source(LIGHT, 2)}" alt="Loss, metrics and learning rate over the steps of the run">
</picture>"""


def _samples(folder: Path) -> Iterator[str]:
    """Yield the model's samples at the beginning, in the middle and at the end, grouped by input."""
    steps = read_samples(folder)
    if not steps:
        return
    every = list(steps)
    made: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for step in dict.fromkeys((every[0], every[len(every) // 2], every[-1])):
        for sample in steps[step][:SHOWN_SAMPLES]:
            made.setdefault((sample.given, sample.wanted), []).append((f"step {step}", sample.texts()["made"]))
    yield "<h2>Samples</h2>"
    for (given, wanted), rows in made.items():
        known = [(name, text) for name, text in (("given", given), ("wanted", wanted)) if text]
        yield _table([*known, *rows], "sample")


def _tables(facts: Facts) -> Iterator[str]:
    for heading, rows in facts:
        yield f"<h2>{_text(heading)}</h2>"
        yield _table(rows, "facts")


def _table(rows: Sequence[tuple[str, str]], kind: str) -> str:
    """Return a table of names and values; `dir=auto` sets the direction of Arabic and Hebrew."""
    cells = [f'<tr><th>{_text(name)}</th><td dir="auto">{_text(value)}</td></tr>' for name, value in rows]
    return f'<table class="{kind}">' + "\n".join(cells) + "</table>"


STYLE = f"""
:root {{ color-scheme: light dark; --ground: {LIGHT.ground}; --ink: {LIGHT.ink}; --soft: {LIGHT.soft};
  --line: {LIGHT.line}; --card: {LIGHT.card}; --accent: {LIGHT.orange}; }}
@media (prefers-color-scheme: dark) {{ :root {{ --ground: {DARK.ground}; --ink: {DARK.ink}; --soft: {DARK.soft};
  --line: {DARK.line}; --card: {DARK.card}; --accent: {DARK.orange}; }} }}
body {{ max-width: 900px; margin: 0 auto; padding: 2rem 1rem 4rem; background: var(--ground); color: var(--ink);
  font: 16px/1.5 system-ui, sans-serif; overflow-wrap: anywhere; }}
h1 {{ font-size: 1.7rem; margin: 0 0 1.2rem; line-height: 1.25; }}
h2 {{ font-size: 1.15rem; margin: 2.4rem 0 .7rem; }}
.cards {{ display: grid; grid-template-columns: repeat(auto-fit, minmax(9.5rem, 1fr)); gap: .8rem; }}
.card {{ background: var(--card); border-radius: 10px; padding: .8rem 1rem; }}
.card b {{ display: block; font-size: 1.7rem; line-height: 1.2; color: var(--accent); }}
.warning {{ border: 2px solid var(--accent); border-radius: 10px; padding: .6rem 1rem; font-weight: bold; }}
.card small {{ display: block; color: var(--soft); }}
img {{ width: 100%; height: auto; display: block; }}
table {{ width: 100%; border-collapse: collapse; }}
th, td {{ text-align: start; vertical-align: top; padding: .35rem .5rem; border-top: 1px solid var(--line); }}
th {{ width: 11rem; font-weight: normal; color: var(--soft); }}
td {{ white-space: pre-wrap; }}
.sample {{ background: var(--card); border-radius: 10px; margin-bottom: .8rem; }}
.sample tr:first-child > * {{ border-top: 0; }}
.sample th {{ width: 5.5rem; padding-left: 1rem; }}
@media (max-width: 600px) {{ th {{ width: 7rem; }} }}
"""

PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; img-src data:; style-src 'unsafe-inline'">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<main>
{body}
</main>
</body>
</html>
"""
