"""The progress of training in a notebook: one output that is replaced, with a curve that grows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from math import inf, isfinite
from time import monotonic
from typing import TYPE_CHECKING

from regard.escape import html_text
from regard.html_table import html_table
from regard.kernel import take_display
from regard.tasks.metric import DETAILS
from regard.tasks.sample import Sample
from regard.training.progress import SHOWN_SAMPLES, Progress, Standing, short_number, standing_text

if TYPE_CHECKING:
    from types import TracebackType

    from rich.console import Console

SECONDS_BETWEEN_UPDATES = 1.0  # of the output, since every update travels to the browser
MOST_POINTS = 300  # of a curve; neighbours are averaged
SHOWN_LINES = 12
WIDTH, HEIGHT, LEFT, BOTTOM = 560, 180, 46, 20
TRAIN, VALID = "#3b82c4", "#d9622b"

Point = tuple[int | float, float]  # a step, or the mean of some, and a loss
Points = Sequence[Point]


class NotebookProgress(Progress):
    """The display of a run in the output of a cell; a context manager."""

    def __init__(self, console: Console, steps: int, every: int) -> None:
        super().__init__(console, steps, every)
        self._display = take_display()
        self._train: list[Point] = []
        self._valid: list[Point] = []
        self._lines: list[str] = []
        self._results: list[str] = []
        self._samples: list[Sample] = []
        self._updated = -inf

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._update()

    def step(self, standing: Standing) -> None:
        """Record a step, and show it when it is time."""
        self._standing = standing
        if isfinite(standing.loss):
            self._train.append((standing.step, standing.loss))
        if monotonic() - self._updated >= SECONDS_BETWEEN_UPDATES:
            self._update()

    def say(self, text: str, style: str = "") -> None:
        """Show a line under the curve."""
        self._lines += text.splitlines()
        self._update()

    def validation(self, step: int, values: Mapping[str, float | int], best: bool, method: str = "") -> None:
        """Show the values of a validation."""
        if isfinite(values.get("loss", inf)):
            self._valid.append((step, values["loss"]))
        self._results.append(f"valid {step}{' best' if best else ''}: {_values(values, method)}")
        self._update()

    def result(self, weights: str, values: Mapping[str, float | int], method: str = "") -> None:
        """Show what the run ends with: the values of its best weights."""
        self.say(f"weights of {weights}: {_values(values, method)}")

    def samples(self, samples: Sequence[Sample]) -> None:
        """Show the samples of the last validation."""
        self._samples = list(samples[:SHOWN_SAMPLES])
        self._update()

    def _update(self) -> None:
        """Replace the output."""
        if self._console.quiet:
            return
        lines = [*self._results[-3:], *self._lines[-SHOWN_LINES:]]
        state = "" if self._standing is None else standing_text(self._standing, "utf-8")
        done = 0.0 if self._standing is None else self._standing.step / self._standing.steps
        rows = [(name, text) for sample in self._samples for name, text in sample.texts().items()]
        html = [
            f"<div><b>{html_text(state)}</b></div>" if state else "",
            f'<progress value="{done:.4f}" style="width: min(100%, {WIDTH}px)"></progress>' if done < 1 else "",
            curve_svg(self._train, self._valid),
            "".join(f"<div>{html_text(line)}</div>" for line in lines),
            html_table((), rows) if rows else "",
        ]
        self._display.show("".join(html), "\n".join(filter(None, [state, *lines])))
        self._updated = monotonic()


def _values(values: Mapping[str, float | int], method: str) -> str:
    shown = ", ".join(f"{name} {short_number(value)}" for name, value in values.items() if name not in DETAILS)
    return f"{shown} ({method})" if method else shown


def curve_svg(train: Points, valid: Points) -> str:
    """Draw the losses of training and validation over the steps, as SVG; "" if there is less than a line to draw."""
    train, valid = thin_out(train), list(valid)
    points = [*train, *valid]
    if len(train) < 2 and len(valid) < 2:
        return ""
    low, high = min(y for _, y in points), max(y for _, y in points)
    first, last = min(x for x, _ in points), max(x for x, _ in points)

    def place(x: int | float, y: float) -> str:
        across = LEFT + (WIDTH - LEFT - 10) * (x - first) / max(last - first, 1)
        down = 8 + (HEIGHT - BOTTOM - 8) * (high - y) / max(high - low, 1e-9)
        return f"{across:.1f},{down:.1f}"

    def line(line: Points, colour: str) -> str:
        return f'<polyline points="{" ".join(place(*point) for point in line)}" fill="none" stroke="{colour}" />'

    def label(x: int, y: int, text: str, anchor: str = "end", colour: str = "currentColor") -> str:
        return f'<text x="{x}" y="{y}" text-anchor="{anchor}" fill="{colour}">{escape(text)}</text>'

    floor = HEIGHT - BOTTOM
    dots = "".join(
        f'<circle cx="{x}" cy="{y}" r="2.5" fill="{VALID}" />'
        for x, y in (place(*point).split(",") for point in valid[-MOST_POINTS:])
    )
    title = f"loss of training {short_number(train[-1][1])}" if train else "loss"
    title += f", of validation {short_number(valid[-1][1])}" if valid else ""
    return (
        f'<svg role="img" aria-label="{escape(title)}" viewBox="0 0 {WIDTH} {HEIGHT}" '
        f'style="display: block; width: 100%; max-width: {WIDTH}px; font: 11px sans-serif; stroke-width: 1.5">'
        f'<path d="M{LEFT},8V{floor}H{WIDTH - 10}" fill="none" stroke="currentColor" opacity="0.3" />'
        + label(LEFT - 6, 14, short_number(high))
        + label(LEFT - 6, floor, short_number(low))
        + label(LEFT, HEIGHT - 5, f"{first:.0f}", "start")
        + label(WIDTH - 10, HEIGHT - 5, f"step {last:.0f}")
        + label(WIDTH - 12, 18, "training loss", colour=TRAIN)
        + (label(WIDTH - 12, 32, "validation loss", colour=VALID) if valid else "")
        + line(train, TRAIN)
        + line(valid, VALID)
        + dots
        + "</svg>"
    )


def thin_out(points: Points, most: int = MOST_POINTS) -> list[Point]:
    """Return at most `most` points: means of neighbours, and the last one as it is."""
    if len(points) <= most:
        return list(points)
    size = -(-len(points) // (most - 1))
    groups = [points[begin : begin + size] for begin in range(0, len(points), size)]
    means = [(sum(x for x, _ in group) / len(group), sum(y for _, y in group) / len(group)) for group in groups]
    return [*means[: most - 1], points[-1]]
