"""`metrics.jsonl`, `samples.jsonl` and `sessions.jsonl`: what a run measured, made and ran on, read back.

They hold one JSON object per line, so they survive a crash (at worst the last line is cut) and any tool reads them.
"""

from pathlib import Path
from typing import Any

from regard.errors import RegardError
from regard.runs.layout import METRICS, SAMPLES, SESSIONS
from regard.tasks.sample import Sample
from regard.untrusted import JsonError, parse_json

Record = dict[str, Any]


def read_metrics(folder: Path) -> list[Record]:
    """Read every line of `metrics.jsonl`, in order; an empty list if the file does not exist yet."""
    return read_records(folder / METRICS)


def read_sessions(folder: Path) -> list[Record]:
    """Read `sessions.jsonl`: one record for each time that a process began to train the run (training/session.py)."""
    path = folder / SESSIONS
    records = read_records(path)
    for number, record in enumerate(records, start=1):
        if not _is_session(record):
            raise RegardError(f"{path}:{number}: not a session of a run; remove the line")
    return records


def _is_session(record: Record) -> bool:
    kinds: dict[str, type | tuple[type, ...]] = {
        "time": (int, float),
        "versions": dict,
        "processes": int,
        "files": list,
    }
    kinds |= {"command": str, "machine": str}
    if not all(isinstance(record.get(name), kind) for name, kind in kinds.items()):
        return False
    return all(isinstance(file, dict) and _is_file(file) for file in record["files"])


def _is_file(file: Record) -> bool:
    numbers = (file.get("bytes"), file.get("files", 0))
    return isinstance(file.get("path"), str) and all(isinstance(number, int) for number in numbers)


def read_samples(folder: Path) -> dict[int, list[Sample]]:
    """Read `samples.jsonl`: the samples of each step, in the order of the steps."""
    path = folder / SAMPLES
    found: dict[int, list[Sample]] = {}
    for number, record in enumerate(read_records(path), start=1):
        texts = [record.get(name) for name in ("given", "wanted", "made")]
        if not all(isinstance(text, str) for text in texts):
            raise RegardError(f"{path}:{number}: not a sample of this log; remove the line")
        found.setdefault(record["step"], []).append(Sample(*map(str, texts)))
    return dict(sorted(found.items()))


def read_records(path: Path) -> list[Record]:
    """Read the objects of a file; a last line that a crash has cut is ignored."""
    if not path.exists():
        return []
    *whole, rest = path.read_bytes().split(b"\n")
    records = []
    for number, line in enumerate([*whole, rest], start=1):
        try:
            record = parse_json(line, path)
            if not isinstance(record, dict) or type(record.get("step")) is not int:
                raise ValueError
        except (JsonError, ValueError):
            if number > len(whole):
                break
            raise RegardError(f"{path}:{number}: not a line of this log; remove the line") from None
        records.append(record)
    return records
