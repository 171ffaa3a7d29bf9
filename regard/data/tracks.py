"""Tracks: where agents (pedestrians, players) are at equal steps of time, from text files with frame, agent, x and y.

A row of a file is `frame agent x y`, separated by blanks, tabs or commas, as in the ETH and UCY recordings (Pellegrini
et al. 2009; Lerner et al. 2007). The first row may be a header with these names. A window is a number of consecutive
steps; it holds the agents that are present at the last observed step.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import isinf, isnan
from numbers import Real
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Float, Int

from regard.data.batches import Indices
from regard.data.columns import shorten
from regard.data.lines import read_lines
from regard.data.read import Skipped
from regard.errors import InputError

COLUMNS = ("frame", "agent", "x", "y")
LARGEST_FRAME = 2**40
FARTHEST = 1e5  # from the origin, in metres: positions are float32, which is exact to 4 mm there
SHOWN = 24  # characters of a value in a message
LONGEST_NAME = 80  # characters of the name of a file that does not exist
REMEDY = "a row is: frame agent x y"


@dataclass(frozen=True, eq=False)
class Tracks:
    """The positions of all agents in one recording, sorted by agent and time; `times` count steps from the first."""

    name: str
    step: int  # frames from one step to the next
    first: int  # the frame of time 0
    labels: tuple[str, ...]  # of the agents, by their numbers
    agents: Indices
    times: Indices
    positions: Float[np.ndarray, "rows 2"]

    def frame(self, time: int) -> int:
        """Return the frame of a time."""
        return self.first + time * self.step

    def at(self, agents: Int[np.ndarray, "A"], times: Int[np.ndarray, "A T"]) -> Float[np.ndarray, "A T 2"]:
        """Return the positions of agents at the times of each; NaN where an agent is absent."""
        begin, span = int(self.times.min()), int(self.times.max() - self.times.min()) + 1
        keys = self.agents * span + (self.times - begin)
        inside = (times >= begin) & (times < begin + span)
        wanted = agents[:, None] * span + np.where(inside, times - begin, 0)
        place = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
        found = inside & (keys[place] == wanted)
        return np.where(found[..., None], self.positions[place], np.float32(np.nan))


def read_tracks(path: Path, skipped: Skipped) -> Tracks:
    """Read the tracks of a file."""
    return parse_tracks(read_lines(path), str(path), skipped)


def parse_tracks(lines: Iterable[str], name: str, skipped: Skipped) -> Tracks:
    """Read tracks from lines of text. The step is the most frequent distance of an agent's frames."""
    rows = list(_rows(lines, name, skipped))
    if not rows:
        raise InputError(f"{name}: holds no rows; {REMEDY}")
    labels = tuple(dict.fromkeys(agent for _, _, agent, _, _ in rows))
    numbers = {label: number for number, label in enumerate(labels)}
    places = np.array([place for place, *_ in rows])
    frames = np.array([frame for _, frame, *_ in rows], np.int64)
    agents = np.array([numbers[agent] for _, _, agent, _, _ in rows], np.int64)
    positions = np.array([(x, y) for *_, x, y in rows], np.float32)
    order = np.lexsort((frames, agents))
    places, frames, agents, positions = places[order], frames[order], agents[order], positions[order]
    together = agents[1:] == agents[:-1]
    if (twice := np.flatnonzero(together & (frames[1:] == frames[:-1]))).size:
        row = int(twice[0]) + 1
        trouble = f"agent {shorten(labels[agents[row]], SHOWN)} is in frame {frames[row]} twice"
        raise InputError(f"{name}:{places[row]}: {trouble}; remove one of the rows")
    step = _most_frequent(np.diff(frames)[together])
    phase = _most_frequent(frames % step)
    between = frames % step != phase
    if between.any():
        skipped.note("row of a frame between two steps", f"{name}:{places[between].min()}", int(between.sum()))
        frames, agents, positions = frames[~between], agents[~between], positions[~between]
    first = int(frames.min())
    return Tracks(name, step, first, labels, agents, (frames - first) // step, positions)


def _most_frequent(numbers: Int[np.ndarray, "_"]) -> int:
    """Return the most frequent number, of several the smallest; 1 if there is none."""
    values, counts = np.unique(numbers, return_counts=True)
    return int(values[counts.argmax()]) if values.size else 1


def _rows(lines: Iterable[str], name: str, skipped: Skipped) -> Iterator[tuple[int, int, str, float, float]]:
    begun = False
    for place, line in enumerate(lines, 1):
        if not line.strip():
            skipped.note("blank line", f"{name}:{place}")
            continue
        cells = _cells(line)
        is_first, begun = not begun, True
        if is_first and _is_header(cells, f"{name}:{place}"):
            continue
        if len(cells) != len(COLUMNS):
            raise InputError(f"{name}:{place}: has {len(cells)} column{'s' * (len(cells) != 1)} instead of 4; {REMEDY}")
        frame, x, y = (_number(cells[column], COLUMNS[column], f"{name}:{place}") for column in (0, 2, 3))
        if abs(frame) > LARGEST_FRAME:
            rule = f"frame {shorten(cells[0], SHOWN)} is larger than {LARGEST_FRAME:,}"
            raise InputError(f"{name}:{place}: {rule}; count frames from the start of the recording")
        if frame != int(frame):
            rule = f"frame {shorten(cells[0], SHOWN)} must be a whole number"
            raise InputError(f"{name}:{place}: {rule}; write the number of the frame, not its time")
        agent = cells[1].strip("\"'")
        if not agent:
            raise InputError(f"{name}:{place}: the agent has no name; give each agent a number or a name")
        for column, number in ((2, x), (3, y)):
            if abs(number) > FARTHEST:
                rule = f"{COLUMNS[column]} {shorten(cells[column], SHOWN)} is more than {FARTHEST:,.0f} metres away"
                raise InputError(f"{name}:{place}: {rule}; write metres from a point near the scene")
        yield place, int(frame), re.sub(r"^(\d+)\.0*$", r"\1", agent), x, y


def _cells(line: str) -> list[str]:
    return re.split(r"\s*,\s*" if "," in line else r"\s+", line.strip())


def _is_header(cells: Sequence[str], place: str) -> bool:
    """Return whether a row has the names of the columns; raise an error if they are in another order."""
    names = [cell.strip("\"'").lower() for cell in cells]
    if sorted(names) != sorted(COLUMNS):
        return False
    if names != list(COLUMNS):
        raise InputError(f"{place}: the columns are {' '.join(names)}; reorder them, since {REMEDY}")
    return True


def _number(cell: str, column: str, place: str) -> float:
    """Return the number that a cell holds; infinity, if it has more digits than a number can have."""
    try:
        number = float(cell.replace("_", "?"))  # Python reads 1_0 as 10
    except ValueError:
        raise InputError(f"{place}: {column} {shorten(cell, SHOWN)!r} must be a number; {REMEDY}") from None
    if isnan(number) or (isinf(number) and not any(map(str.isdigit, cell))):
        raise InputError(f"{place}: {column} {cell} must be a finite number; remove the row")
    return number


# --- windows ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class TrackWindows:
    """Windows of consecutive steps: rows begins[w] to begins[w + 1] are the agents of window w.

    The agents are those that are present at the last observed step; those present at all steps come first.
    """

    positions: Float[np.ndarray, "rows T 2"]  # NaN where an agent is absent
    whole: Bool[np.ndarray, "rows"]  # whether the agent is present at all steps
    begins: Indices
    starts: Indices  # the first time of each window

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def counts(self) -> Indices:
        """The number of agents in each window."""
        return np.diff(self.begins)

    def select(self, windows: Int[np.ndarray, "_"]) -> TrackWindows:
        """Return some of the windows."""
        rows = np.concatenate([np.arange(self.begins[w], self.begins[w + 1]) for w in windows] or [np.empty(0, int)])
        begins = np.concatenate(([0], np.cumsum(self.counts[windows])))
        return TrackWindows(self.positions[rows], self.whole[rows], begins, self.starts[windows])


def find_windows(tracks: Tracks, observed: int, predicted: int) -> TrackWindows:
    """Return all windows, one for each step at which some agent is present for `observed` + `predicted` steps."""
    length = observed + predicted
    together = (np.diff(tracks.agents) == 0) & (np.diff(tracks.times) == 1)
    run = np.concatenate(([0], np.cumsum(~together)))  # rows of one agent without a gap have the same number
    rows = len(tracks.times)
    last = np.minimum(np.arange(rows) + length - 1, rows - 1)
    complete = (run == run[last]) & (last - np.arange(rows) == length - 1)
    starts = np.unique(tracks.times[complete])
    current = np.flatnonzero(np.isin(tracks.times - (observed - 1), starts))
    begin, agents = tracks.times[current] - (observed - 1), tracks.agents[current]
    positions = tracks.at(agents, begin[:, None] + np.arange(length))
    whole = ~np.isnan(positions).any((1, 2))
    order = np.lexsort((agents, ~whole, begin))
    begins = np.searchsorted(begin[order], np.append(starts, np.iinfo(np.int64).max))
    return TrackWindows(positions[order], whole[order], begins, starts)


def join_windows(parts: Sequence[TrackWindows], length: int) -> TrackWindows:
    """Join the windows of several recordings, with `length` steps each."""
    if not parts:
        return TrackWindows(
            np.empty((0, length, 2), np.float32), np.empty(0, bool), np.zeros(1, np.int64), np.empty(0, int)
        )
    counts = np.concatenate([part.counts for part in parts])
    return TrackWindows(
        np.concatenate([part.positions for part in parts]),
        np.concatenate([part.whole for part in parts]),
        np.concatenate(([0], np.cumsum(counts))),
        np.concatenate([part.starts for part in parts]),
    )


def hold_out_end(windows: TrackWindows, length: int, share: float) -> tuple[TrackWindows, TrackWindows]:
    """Split the windows of a recording: the last ones by time to validate on, and those that end before the first."""
    held_out = max(int(len(windows) * share), 1) if len(windows) > 1 else 0
    begin = windows.starts[len(windows) - held_out] if held_out else np.iinfo(np.int64).max
    before = np.flatnonzero(windows.starts <= begin - length)
    return windows.select(before), windows.select(np.flatnonzero(windows.starts >= begin))


# --- one scene -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class ObservedScene:
    """What is seen at one time: the agents that are present, and their last positions."""

    frame: int
    step: int  # frames from one step to the next
    agents: tuple[str, ...]
    positions: Float[np.ndarray, "A S 2"]  # NaN where an agent is absent
    truth: Float[np.ndarray, "A F 2"]  # the positions after that, as far as they are known

    @property
    def present(self) -> Bool[np.ndarray, "A S"]:
        """At which steps each agent is present."""
        return ~np.isnan(self.positions).any(-1)

    def text(self) -> str:
        """Return the observed positions as rows, separated by semicolons: `parse_scene` reads the same scene."""
        steps = self.positions.shape[1]
        between = ", " if any(len(agent.split()) > 1 for agent in self.agents) else " "
        return "; ".join(
            between.join((str(self.frame - (steps - 1 - time) * self.step), agent, _digits(x), _digits(y)))
            for time in range(steps)
            for agent, (x, y) in zip(self.agents, self.positions[:, time], strict=True)
            if not np.isnan(x)
        )


def _digits(number: np.float32) -> str:
    """Return a position with the fewest digits that tell it from all others."""
    return np.format_float_positional(number, trim="-")


def observe_scene(tracks: Tracks, frame: int | None, observed: int, predicted: int) -> ObservedScene:
    """Return what is seen at a frame, by default the last one: all agents that are present then."""
    last = int(tracks.times.max())
    if frame is None:
        time = last
    else:
        time, between = divmod(frame - tracks.first, tracks.step) if isinstance(frame, Real) else (0, True)
        if between or not np.any(tracks.times == time):
            known = f"frames {tracks.first} to {tracks.frame(last)}, every {tracks.step}"
            raise InputError(f"{tracks.name}: no agent is in frame {frame}; choose one of {known} (some are empty)")
    agents = tracks.agents[tracks.times == time]
    times = np.arange(time - observed + 1, time + predicted + 1)
    positions = tracks.at(agents, np.broadcast_to(times, (len(agents), len(times))))
    names = tuple(tracks.labels[agent] for agent in agents)
    return ObservedScene(tracks.frame(time), tracks.step, names, positions[:, :observed], positions[:, observed:])


def holds_rows(text: str) -> bool:
    """Return whether a text holds rows of tracks, not the name of a file."""
    return ";" in text or "\n" in text or len(_cells(text)) == len(COLUMNS)


def parse_scene(text: str, observed: int, predicted: int) -> ObservedScene:
    """Read a scene from rows separated by semicolons or line breaks, or from FILE or FILE@FRAME."""
    skipped = Skipped()
    if holds_rows(text):
        rows = [row for row in re.split(r"[;\n]", text) if row.strip()]
        return observe_scene(parse_tracks(rows, "the text", skipped), None, observed, predicted)
    path, number = Path(text.strip()), None
    name, at, frame = text.strip().rpartition("@")
    if at and re.fullmatch(r"-?\d{1,12}", frame) and not _exists(path):
        path, number = Path(name), int(frame)
    if not _exists(path):
        remedy = "give FILE, FILE@FRAME, or rows such as 0 a 1.5 2; 10 a 1.6 2"
        raise InputError(f"{shorten(str(path), LONGEST_NAME)}: no such file; {remedy}")
    return observe_scene(read_tracks(path, skipped), number, observed, predicted)


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):  # a name that is too long, or holds a NUL
        return False
