"""The log of a run: `metrics.jsonl`, `samples.jsonl`, and events for TensorBoard where it is installed.

Both files hold one JSON object per line, so they survive a crash (at worst the last line is cut), and any tool can read
them.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from importlib.util import find_spec
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TextIO

from regard.atomic import write_file
from regard.errors import RegardError
from regard.runs.layout import EVENTS, METRICS, SAMPLES
from regard.runs.records import Record, read_records
from regard.tasks.sample import Sample

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter


class Log:
    """The metrics and samples of a run, written as they come.

    A run that resumes at a step removes what was logged after it; one that begins at step 0 removes everything.
    """

    def __init__(self, folder: Path, resume_step: int = 0) -> None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._metrics = _reopen(folder / METRICS, resume_step)
            self._samples = _reopen(folder / SAMPLES, resume_step)
            self._events = _open_events(folder / EVENTS, resume_step)
            self._events_folder = folder / EVENTS
            self._hook, threading.excepthook = threading.excepthook, _silence_full_disk
        except OSError as error:
            raise RegardError(
                f"{folder}: the log cannot be written here: {error.strerror}; choose another folder"
            ) from None

    def write(self, step: int, kind: Literal["train", "valid"], values: Mapping[str, float | int]) -> None:
        """Log the values of a step; NaN and infinity, which JSON does not have, become null."""
        taken = {"step", "kind", "time"} & values.keys()
        assert not taken, f"the log itself writes {taken}; choose other names"
        finite = {name: value if isfinite(value) else None for name, value in values.items()}
        _append(self._metrics, {"step": step, "kind": kind, "time": round(time.time(), 3), **finite})
        if self._events is not None:
            with _explain_full_disk(self._events_folder):
                for name, value in values.items():
                    self._events.add_scalar(f"{kind}/{name}", value, step)

    def samples(self, step: int, samples: Sequence[Sample]) -> None:
        """Log the model's samples at a step."""
        for sample in samples:
            _append(self._samples, {"step": step, **asdict(sample)})
        if samples and self._events is not None:
            with _explain_full_disk(self._events_folder):
                self._events.add_text("samples", "\n\n---\n\n".join(map(_as_markdown, samples)), step)

    def close(self) -> None:
        """Finish the files."""
        for file in (self._metrics, self._samples, self._events):
            with suppress(OSError):  # an error was already raised by `write` or `samples`
                if file is not None:
                    file.close()
        threading.excepthook = self._hook


# --- lines of JSON -------------------------------------------------------------------------------------------------


def _reopen(path: Path, resume_step: int) -> TextIO:
    """Open a file to append lines, keeping those up to the step; it is rewritten completely or not at all."""
    kept = [record for record in read_records(path) if record["step"] <= resume_step] if resume_step else []
    with write_file(path) as part, _open(part, "w") as file:
        for record in kept:
            _append(file, record)
    return _open(path, "a")


def _open(path: Path, mode: Literal["w", "a"]) -> TextIO:
    """Open a text file; a lone surrogate, which UTF-8 cannot write, becomes an escape that JSON can."""
    return path.open(mode, encoding="utf-8", errors="backslashreplace", newline="\n")


def _append(file: TextIO, record: Record) -> None:
    with _explain_full_disk(file.name):
        file.write(json.dumps(record, ensure_ascii=False, allow_nan=False) + "\n")
        file.flush()


@contextmanager
def _explain_full_disk(path: str | Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise RegardError(f"{path}: cannot be written: {error.strerror}; free some space, then resume") from None


# --- TensorBoard ---------------------------------------------------------------------------------------------------


def _open_events(folder: Path, resume_step: int) -> SummaryWriter | None:
    """Open the events, if TensorBoard is installed; it hides older ones from `purge_step` on."""
    if find_spec("tensorboard") is None:
        return None
    from torch.utils.tensorboard import SummaryWriter

    return SummaryWriter(folder, purge_step=resume_step + 1 if resume_step else 0, flush_secs=10)


def _silence_full_disk(died: threading.ExceptHookArgs) -> None:
    """Print no traceback of TensorBoard's writer thread when the disk is full: the next event raises the error."""
    if not isinstance(died.exc_value, OSError):
        threading.__excepthook__(died)


def _as_markdown(sample: Sample) -> str:
    """Return a sample as an indented block, which TensorBoard shows verbatim."""
    rows = []
    for name, text in sample.texts().items():
        for number, line in enumerate(text.splitlines()):
            rows.append(f"    {'' if number else name:8}{line}")
    return "\n".join(rows).encode("utf-8", "backslashreplace").decode()
