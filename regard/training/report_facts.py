"""The facts of a report: what was run, on which data, with which tokenizer and model, and how it was measured."""

from collections.abc import Iterator, Mapping
from datetime import datetime
from itertools import zip_longest
from math import inf
from pathlib import Path
from shlex import quote
from typing import Any

from regard.config import to_table
from regard.models.count import parameters
from regard.models.recipe import build_empty
from regard.runs.layout import RECIPE
from regard.runs.records import read_metrics, read_sessions
from regard.tasks.task import Task
from regard.training.progress import duration
from regard.training.run import Run
from regard.use.evaluate import Evaluation

Rows = list[tuple[str, str]]


def report_facts(run: Run, task: Task, found: Evaluation) -> list[tuple[str, Rows]]:
    """Return the tables of a report by their headings."""
    how = f" ({found.method})" if found.method else ""
    signatures = [(f"signature of {name}", text) for name, text in found.signatures.items()]
    tables = [
        (f"Result on the validation data{how}", [(name, f"{value:.4g}") for name, value in found.items()] + signatures),
        ("Run", run_facts(run.folder)),
        ("Data", _data_facts(run, task)),
        ("Tokenizer", _tokenizer_facts(run, task)),
        ("Model", _model_facts(run)),
        ("Training", [(key, _plain(value)) for key, value in to_table(run.config.train).items()]),
    ]
    return [(heading, rows) for heading, rows in tables if rows]


def run_facts(folder: Path) -> Rows:
    """Return when, how, where and on which files a run was trained, one group of rows for each of its sessions."""
    records, sessions = read_metrics(folder), read_sessions(folder)
    rows: Rows = []
    for session, later in zip_longest(sessions, sessions[1:]):
        end = inf if later is None else later["time"]
        times = [record["time"] for record in records if session["time"] <= record.get("time", 0) < end]
        began = datetime.fromtimestamp(session["time"]).astimezone()
        took = f", {duration(max(times) - session['time'])}" if times else ""
        rows.append(("from step", f"{session['step']}, {began:%Y-%m-%d %H:%M %Z}{took}"))
        rows.append(("command", session["command"]))
        rows.append(("versions", ", ".join(f"{name} {version}" for name, version in session["versions"].items())))
        processes = f", {session['processes']} processes" if session["processes"] > 1 else ""
        rows.append(("machine", session["machine"] + processes))
        rows += [("file", _file_row(file)) for file in session["files"]]
    return [*rows, ("to repeat it", f"regard train {quote(str(folder / RECIPE))} --run OTHER")]


def _file_row(file: Mapping[str, Any]) -> str:
    """Return a file with its size and checksum as text."""
    count = f"{file['files']:,} files, " if "files" in file else ""
    kind = "sha256 of names and sizes" if "files" in file else "sha256"
    checksum = file.get("listing") or file.get("sha256") or "not computed"
    return f"{file['path']}\n{count}{file['bytes']:,} bytes, {kind} {checksum}"


def _data_facts(run: Run, task: Task) -> Rows:
    """Return what was read, and from which files."""
    counts = [(name, f"{count:,}") for name, count in task.facts().items()]
    skipped = [("left out", line) for line in task.skipped.report()]
    own = [(key, _plain(value)) for key, value in to_table(run.config.task).items() if key not in task.config.file_keys]
    return counts + skipped + own + [("fingerprint", task.fingerprint())]


def _tokenizer_facts(run: Run, task: Task) -> Rows:
    """Return the tokenizer: its settings, its size and its checksum."""
    if run.config.tokenizer is None or task.tokenizer is None:
        return []
    own = [(key, _plain(value)) for key, value in to_table(run.config.tokenizer).items()]
    return [*own, ("tokens", f"{task.tokenizer.size:,}"), ("sha256", task.tokenizer.fingerprint())]


def _model_facts(run: Run) -> Rows:
    """Return the architecture: the number of parameters, and every setting by its path."""
    if run.config.model is None:
        return [("kind", "a module of your own")]
    weights = parameters(build_empty(run.config.model))
    return [("parameters", f"{weights:,}"), *_flat(to_table(run.config.model))]


def _flat(table: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, str]]:
    """Yield the values of a table with their dotted paths; a table in a list stays one value."""
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{path}{key}.")
        else:
            yield f"{path}{key}", str(value)


def _plain(value: Any) -> str:
    """Return a value as text, a table in one line: muon, rate 0.02, momentum 0.95."""
    if isinstance(value, list | tuple):
        return ", ".join(map(_plain, value))
    if not isinstance(value, Mapping):
        return str(value)
    rest = [f"{key} ({_plain(item)})" if isinstance(item, Mapping) else f"{key} {item}" for key, item in value.items()]
    return ", ".join(rest).removeprefix("kind ")
