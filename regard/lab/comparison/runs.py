"""Train the runs of a comparison: several processes at a time, each the command `regard train` that the page names.

A finished run is kept as it is, and one that was stopped is resumed. A signal is passed on to the processes, which save
and stop; a second one stops them at once. If this process is killed, they continue; the next one waits for them.
"""

import os
import shlex
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any

from rich.progress import BarColumn, TaskID
from rich.text import Text

from regard.atomic import LockedError, lock, make_folder, wait_for_lock
from regard.errors import RegardError
from regard.escape import escape_controls
from regard.runs.folder import is_run
from regard.runs.layout import LOCK, METRICS
from regard.terminal import plain_console, progress_bars, text_column
from regard.training.progress import duration
from regard.training.result import read_result
from regard.training.start import resume, train
from regard.training.stop import SIGNALS, StopError
from regard.untrusted import JsonError, parse_json

if TYPE_CHECKING:
    from rich.console import Console

POLL = 0.1  # seconds between two looks at the processes
TAIL = 4096  # bytes at the end of a log that are read


@dataclass(frozen=True)
class ComparedRun:
    """One run of a comparison: a recipe and a seed."""

    name: str
    seed: int
    steps: int
    metric: str  # of its task
    recipe: Path
    folder: Path
    log: Path  # what its process prints

    @property
    def title(self) -> str:
        """Its name and seed, for messages."""
        return f"{self.name}, seed {self.seed}"

    def arguments(self) -> list[str]:
        """Return the arguments of `regard` that train it, or continue it."""
        if is_run(self.folder):
            return ["train", "--resume", str(self.folder)]
        return ["train", str(self.recipe), f"train.seed={self.seed}", "--run", str(self.folder)]


class ComparisonStopError(RegardError):
    """A signal stopped a comparison; the exit code is the one that shells expect."""

    def __init__(self, finished: int, total: int, number: int) -> None:
        kept = f"{finished} of {total} runs are finished, the others are saved"
        super().__init__(f"stopped; {kept}; the same command continues")
        self.exit_code = 128 + number


def is_finished(run: ComparedRun) -> bool:
    """Return whether a run was trained to its end."""
    result = read_result(run.folder)
    return result is not None and result.step >= run.steps


def train_runs(
    runs: Sequence[ComparedRun],
    jobs: int,
    devices: Sequence[str],
    imported: Sequence[str],
    console: "Console",
    watch: Callable[[Mapping[str, str]], None] = lambda failed: None,
) -> dict[str, str]:
    """Train all runs that are not finished; return why runs failed, by their titles.

    With 0 jobs they are trained in this process, one after the other: for parts that only this process knows. While
    other processes train them, `watch` is called regularly, with the runs that have failed so far.
    """
    wait_for_others(runs, console)
    left = [run for run in runs if not is_finished(run)]
    failed: dict[str, str] = {}
    with RunsDisplay(console, runs, len(runs) - len(left)) as display:
        if jobs == 0:
            for run in left:
                _train_here(run, devices[0], display, failed, runs)
        else:
            Processes(left, jobs, devices, imported, display, failed, watch).train(
                lambda: sum(map(is_finished, runs)), len(runs)
            )
    return failed


def wait_for_others(runs: Sequence[ComparedRun], console: "Console") -> None:
    """Wait for processes that still train some of the runs, since the one that had started them was killed."""
    for run in runs:
        if not run.folder.is_dir():
            continue
        try:
            with lock(run.folder / LOCK, "waiting until it ends"):
                pass
        except LockedError as error:
            say(console, str(error), "yellow")
            with wait_for_lock(run.folder / LOCK):
                pass


def _train_here(
    run: ComparedRun, device: str, display: "RunsDisplay", failed: dict[str, str], runs: Sequence[ComparedRun]
) -> None:
    """Train a run in this process."""
    how: dict[str, Any] = {
        "device": device,
        "console": plain_console(quiet=True),
        "callbacks": [ShowSteps(run, display)],
    }
    display.begin(run)
    try:
        if is_run(run.folder):
            resume(run.folder, **how)
        else:
            train(run.recipe, f"train.seed={run.seed}", run=run.folder, **how)
    except StopError as stopped:
        raise ComparisonStopError(sum(map(is_finished, runs)), len(runs), stopped.exit_code - 128) from None
    except RegardError as error:
        failed[run.title] = str(error)
    display.end(run, failed.get(run.title))


@dataclass(frozen=True)
class ShowSteps:
    """A callback that shows the steps of a run."""

    run: ComparedRun
    display: "RunsDisplay"

    def on_update(self, step: int, metrics: dict[str, float]) -> None:
        """Show a step."""
        self.display.step(self.run, step, metrics.get("loss"))


# --- processes -------------------------------------------------------------------------------------------------------


@dataclass
class Processes:
    """The processes that train runs, at most `jobs` at a time."""

    left: Sequence[ComparedRun]
    jobs: int
    devices: Sequence[str]  # which the processes share
    imported: Sequence[str]  # files of the user that register parts
    display: "RunsDisplay"
    failed: dict[str, str]
    watch: Callable[[Mapping[str, str]], None]
    running: dict[ComparedRun, "subprocess.Popen[bytes]"] = field(default_factory=dict)
    signalled: int | None = None

    def train(self, finished: Callable[[], int], total: int) -> None:
        """Train all of them; a signal is passed on to those that run, and no other is started."""
        waiting = deque(self.left)
        with self._signals_passed_on():
            while self.running or (waiting and self.signalled is None):
                while waiting and len(self.running) < self.jobs and self.signalled is None:
                    self._start(waiting.popleft())
                self._look()
                self.watch(self.failed)
                if self.running:
                    time.sleep(POLL)
        if self.signalled is not None:
            raise ComparisonStopError(finished(), total, self.signalled)

    def _start(self, run: ComparedRun) -> None:
        used = [str(process.args[-1]) for process in self.running.values() if isinstance(process.args, list)]
        device = min(self.devices, key=used.count)
        make_folder(run.log.parent)
        imports = [argument for file in self.imported for argument in ("--import", file)]
        command = [sys.executable, "-m", "regard", *imports, *run.arguments(), "--device", device]
        with run.log.open("ab") as log:
            log.write(f"$ {shlex.join(command)}\n".encode())
            log.flush()
            # in a session of its own, so that Ctrl-C reaches it once, through this process
            self.running[run] = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        self.display.begin(run)
        if self.signalled is not None:  # it arrived meanwhile
            self._send(self.signalled)

    def _look(self) -> None:
        """Show the steps of all processes, and note those that have ended."""
        for run, process in list(self.running.items()):
            code = process.poll()
            if code is None:
                self.display.step(run, *_last_step(run.folder / METRICS))
                continue
            del self.running[run]
            if self.signalled is None and not (code == 0 and is_finished(run)):
                self.failed[run.title] = _last_words(run.log)
            if self.signalled is None or is_finished(run):
                self.display.end(run, self.failed.get(run.title))

    @contextmanager
    def _signals_passed_on(self) -> Iterator[None]:
        """Pass signals that would end this process on to the others; at the end of the block, none is left running."""
        numbers = [getattr(signal, name) for name in SIGNALS if hasattr(signal, name)]
        heard = [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]
        before: dict[int, Any] = {}
        with suppress(ValueError):  # not in the main thread, where signals do not arrive
            before = {number: signal.signal(number, self._note) for number in heard}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
            for process in self.running.values():  # after an error of this process
                process.terminate()
                process.wait()

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.signalled is None:
            os.write(2, b"\nstopping after this step; a second signal stops at once\n")
        self.signalled = number
        self._send(number)

    def _send(self, number: int) -> None:
        for process in self.running.values():
            with suppress(ProcessLookupError):
                process.send_signal(number)


def _last_step(path: Path) -> tuple[int, float | None]:
    """Return the last step in a log of metrics, and its loss; 0 if there is none yet."""
    with suppress(OSError, JsonError, KeyError, TypeError):
        for line in reversed(_tail(path).splitlines()):
            record = parse_json(line, path) if line.endswith("}") else {}
            if record.get("kind") == "train":
                return int(record["step"]), record.get("loss")
    return 0, None


def _last_words(log: Path) -> str:
    """Return the error at the end of what a process printed."""
    lines = [line for line in _tail(log).splitlines() if line.strip()] or ["it printed nothing"]
    ours = [line.removeprefix("regard: ") for line in lines if line.startswith("regard: ")]
    return (ours or lines)[-1] + f" (see {log})"


def _tail(path: Path) -> str:
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - TAIL))
        return file.read().decode(errors="replace")


# --- what is shown ---------------------------------------------------------------------------------------------------


class RunsDisplay:
    """Shows the runs: a line for each that has ended, and on a terminal a bar for each that is being trained."""

    def __init__(self, console: "Console", runs: Sequence[ComparedRun], finished: int) -> None:
        self.console, self.total, self.done = console, len(runs), finished
        self.started: dict[ComparedRun, float] = {}
        self._bars: dict[ComparedRun, TaskID] = {}
        lively = console.is_interactive and console.file.isatty() and not console.quiet
        columns = text_column(), BarColumn(bar_width=None), text_column("{task.fields[words]}")
        self._progress = progress_bars(*columns, console=console, transient=True, expand=True) if lively else None
        if finished:
            self._say(f"{finished} of {self.total} runs are finished already")

    def __enter__(self) -> "RunsDisplay":
        if self._progress is not None:
            self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._progress is not None:
            self._progress.stop()

    def begin(self, run: ComparedRun) -> None:
        """Show that a run begins."""
        self.started[run] = time.monotonic()
        if self._progress is not None:
            title = Text(escape_controls(run.title)).markup
            self._bars[run] = self._progress.add_task(title, total=run.steps, words=f"0/{run.steps}")

    def step(self, run: ComparedRun, step: int, loss: float | None) -> None:
        """Show how far a run is."""
        if self._progress is not None and step:
            words = f"{step}/{run.steps}" + ("" if loss is None else f"  loss {loss:.3g}")
            words = "measuring" if step >= run.steps else words
            self._progress.update(self._bars[run], completed=step, words=words)

    def end(self, run: ComparedRun, failure: str | None) -> None:
        """Show that a run has ended."""
        self.done += failure is None
        if self._progress is not None:
            self._progress.remove_task(self._bars.pop(run))
        if failure is not None:
            self._say(f"{run.title}: failed: {failure}", "yellow")
            return
        result = read_result(run.folder)
        assert result is not None
        value = result.evaluation[run.metric]
        took = duration(time.monotonic() - self.started[run])
        self._say(
            f"{self.done}/{self.total}  {run.title}: {run.metric} {value:.4g} after {run.steps:,} updates, {took}"
        )

    def _say(self, text: str, style: str = "") -> None:
        say(self.console, text, style)


def say(console: "Console", text: str, style: str = "") -> None:
    """Print a line; if the reader of a pipe has closed it (`| head`), print nothing more, and continue."""
    try:
        console.print(Text(escape_controls(text), style), soft_wrap=not console.is_terminal)
    except (BrokenPipeError, SystemExit):  # rich turns the first into the second
        console.quiet = True
