"""Show the progress of training: one live line on a terminal, plain lines in a pipe or file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf, isfinite
from time import monotonic
from types import TracebackType
from typing import TYPE_CHECKING

from rich.cells import cell_len, set_cell_size
from rich.live import Live
from rich.text import Text

from regard.escape import escape_controls
from regard.tasks.metric import DETAILS
from regard.tasks.sample import Sample

if TYPE_CHECKING:
    from rich.console import Console

SECONDS_BETWEEN_DRAWINGS = 0.2
SHOWN_SAMPLES = 3
NARROWEST_BAR, WIDEST_BAR = 8, 40
GAP = "  "

# The columns in their order on the line; a narrow terminal drops those at the end of IMPORTANCE first.
PLAIN = ("step", "loss", "metric", "speed", "memory", "left")
LIVE = ("step", "bar", "loss", "metric", "rate", "speed", "memory", "left")
IMPORTANCE = ("step", "loss", "left", "metric", "bar", "speed", "memory", "rate")
STYLES = {"bar": "green", "loss": "bold", "metric": "bold cyan"}


@dataclass(frozen=True)
class Standing:
    """The values to show at a step; `memory` is in bytes, `metric` is of the last validation: "BLEU 23.4"."""

    step: int
    steps: int
    loss: float
    rate: float
    tokens_per_second: float
    memory: int
    seconds_left: float
    metric: str | None = None
    unit: str = "tok"  # what the speed counts


class Progress:
    """The display of a run; a context manager. The live line is drawn a few times a second, however fast the steps."""

    def __init__(self, console: Console, steps: int, every: int) -> None:
        self._console = console
        self._steps = steps
        self._every = every
        # FORCE_COLOR makes rich treat a pipe as a terminal; colours are fine there, a live line is not.
        self._lively = console.is_interactive and console.file.isatty()
        self._live = Live(console=console, auto_refresh=False)
        self._standing: Standing | None = None
        self._drawn = -inf
        self._widths: dict[str, int] = {}

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live.is_started and self._standing is not None:
            self._live.update(self._line(self._standing))  # the current state, not the last one drawn
        self._live.stop()

    def step(self, standing: Standing) -> None:
        """Record a step, and show it when it is time."""
        before = self._standing.step if self._standing else standing.step - 1
        self._standing = standing
        if not self._lively:
            if standing.step // self._every > before // self._every or before < standing.step == self._steps:
                self._print(Text(standing_text(standing, self._console.encoding)))
        elif monotonic() - self._drawn >= SECONDS_BETWEEN_DRAWINGS or standing.step == self._steps:
            self._live.start()  # not before there is something to show; later calls do nothing
            self._live.update(self._line(standing), refresh=True)
            self._drawn = monotonic()

    def say(self, text: str, style: str = "") -> None:
        """Print a line above the live one."""
        for line in text.splitlines() or [""]:
            self._print(Text(escape_controls(line, self._console.encoding), style))

    def validation(self, step: int, values: Mapping[str, float | int], best: bool, method: str = "") -> None:
        """Print the values of a validation, aligned with those before; the best one so far is marked.

        `method` says how they were measured: "greedy, 500 of 2,000 pairs".
        """
        line = Text(f"valid {step:{len(str(self._steps))}}").append(" best" if best else "     ", "bold green")
        self._print(self._with_values(line, values, method))

    def result(self, weights: str, values: Mapping[str, float | int], method: str = "") -> None:
        """Print what the run ends with: the values of its best weights."""
        self._print(self._with_values(Text(f"weights of {weights}:"), values, method))

    def _with_values(self, line: Text, values: Mapping[str, float | int], method: str) -> Text:
        for name, value in values.items():
            if name in DETAILS:
                continue
            text = f"{escape_controls(name, self._console.encoding)} {short_number(value)}"
            line.append(GAP + self._aligned(f"valid {name}", text))
        return line.append(f"{GAP}({method})", "dim") if method else line

    def samples(self, samples: Sequence[Sample]) -> None:
        """Print a few samples, a line for each text, cut to the width of the terminal."""
        for sample in samples[:SHOWN_SAMPLES]:
            for name, text in sample.texts().items():
                line = Text(f"{GAP}{name:8}", "dim")
                shown = self._cut(escape_controls(text, self._console.encoding), self._console.width - line.cell_len)
                self._print(line.append(shown, "not dim cyan" if name == "made" else "not dim"))
            self._print(Text())

    def _line(self, standing: Standing) -> Text:
        """Lay out the live line: the columns that fit, by importance; the remaining width goes to the bar."""
        known = {name: text for name, text in _cells(standing, self._console.encoding).items() if text}
        cells = {name: self._aligned(name, text) for name, text in known.items()}
        cells["bar"] = " " * NARROWEST_BAR
        free = self._console.width + len(GAP)
        shown: set[str] = set()
        for name in filter(cells.__contains__, IMPORTANCE):
            width = len(GAP) + cell_len(cells[name])
            if width > free and shown:  # the step is always shown, even if it is cut
                break
            shown.add(name)
            free -= width
        cells["bar"] = self._bar(standing.step / standing.steps, min(NARROWEST_BAR + max(free, 0), WIDEST_BAR))
        columns = [Text(cells[name], STYLES.get(name, "")) for name in LIVE if name in shown]
        line = Text(GAP).join(columns)
        line.no_wrap, line.overflow = True, "crop"
        return line

    def _bar(self, share: float, width: int) -> str:
        """Draw the bar; heavy and light lines make it readable without colours."""
        done = min(int(width * share), width)
        heavy, light = "#-" if self._console.options.ascii_only else "━─"
        return heavy * done + light * (width - done)

    def _aligned(self, column: str, text: str) -> str:
        """Pad to the widest text this column has had, so that columns do not move."""
        self._widths[column] = max(self._widths.get(column, 0), cell_len(text))
        return set_cell_size(text, self._widths[column])

    def _cut(self, text: str, width: int) -> str:
        if cell_len(text) <= width:
            return text
        mark = "..." if self._console.options.ascii_only else "…"
        return set_cell_size(text, max(width - len(mark), 0)).rstrip() + mark

    def _print(self, line: Text) -> None:
        """Print without markup; a long line wraps between words on a terminal, and not at all in a file."""
        line.rstrip()
        try:
            self._console.print(line, soft_wrap=not self._lively)
        except (BrokenPipeError, SystemExit):  # rich turns the first into the second
            self._console.quiet = True  # the reader (`| head`) has closed the pipe; the run continues


def standing_text(standing: Standing, encoding: str) -> str:
    """Return the columns of a plain line that have a value."""
    cells = _cells(standing, encoding)
    return GAP.join(cells[name] for name in PLAIN if cells[name])


def _cells(standing: Standing, encoding: str) -> dict[str, str]:
    """Format each column; a column without a value is empty."""
    steps = str(standing.steps)
    speed, left = standing.tokens_per_second, standing.seconds_left
    return {
        "step": f"step {standing.step:{len(steps)}}/{steps}",
        "loss": f"loss {short_number(standing.loss)}",
        "metric": escape_controls(standing.metric or "", encoding),
        "rate": f"rate {standing.rate:.1e}",
        "speed": f"{_scaled(speed)} {standing.unit}/s" if isfinite(speed) and speed > 0 else "",
        "memory": f"{standing.memory / 1e9:.1f} GB" if standing.memory > 0 else "",
        "left": f"{duration(left)} left" if isfinite(left) else "",
    }


def short_number(value: float | int) -> str:
    """Format with three significant digits: 2.31, 0.0231, 1234."""
    if not isfinite(value) or 100 <= abs(value) < 1e6:
        return f"{value:.0f}"
    return f"{value:#.3g}" if value == 0 or 1e-3 <= abs(value) < 99.95 else f"{value:.3g}"


def _scaled(value: float) -> str:
    """Format a speed: 950, 12.3k, 1.2M."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.1f}{letter}"
    return f"{value:.0f}"


def duration(seconds: float) -> str:
    """Format a duration in one or two units."""
    minutes, hours = round(seconds / 60), round(seconds / 3600)
    if seconds < 59.5:
        return f"{seconds:.0f} s"
    if minutes < 60:
        return f"{minutes} min"
    return f"{minutes // 60} h {minutes % 60} min" if hours < 24 else f"{hours // 24} d {hours % 24} h"
