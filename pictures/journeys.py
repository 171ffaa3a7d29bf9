"""The three journeys of docs/architecture.md as pictures: what calls what, from the command to the result.

A journey is a table of boxes. Lanes are packages, from the command line down, as imports go; time goes to the right.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pictures.svg import document, element, text
from regard.draw import Look

WIDE, HIGH, ACROSS, DOWN = 152, 62, 44, 38  # of a box, and the gaps between boxes
LEFT, TOP, MARGIN = 88, 48, 16  # room for the names of the lanes, for the title, around all
NAME, SAY, TITLE = 12.5, 11, 14  # sizes of letters


@dataclass(frozen=True)
class Box:
    """A file or a thing: its lane and column from 0, its name, two lines that say what it does, and its kind."""

    lane: int
    column: int
    name: str
    lines: Sequence[str]
    thing: bool = False  # something that is read or written, not code


@dataclass(frozen=True)
class Journey:
    """A command, the packages of the lanes, boxes by a short name, and arrows: from, to, what is passed.

    The name of a box contains its package if that is not the one of the lane.
    """

    title: str
    lanes: Sequence[str]
    boxes: Mapping[str, Box]
    arrows: Sequence[tuple[str, str, str]]


TRAIN = Journey(
    title="regard train translation a.de a.en",
    lanes=("cli/", "training/", "tasks/", "models/"),
    boxes={
        "files": Box(0, 0, "a.de, a.en", ("your files",), thing=True),
        "cli": Box(0, 1, "train.py", ("files and options", "become a RunRequest")),
        "run": Box(0, 4, "runs/translation-1", ("weights, recipe,", "metrics, report"), thing=True),
        "plan": Box(1, 1, "start.py, planning.py", ("STAGES over one Draft:", "each value, its source")),
        "loop": Box(1, 2, "loop.py", ("Trainer: updates,", "validations")),
        "update": Box(1, 3, "update.py", ("loss, gradient,", "optimizer")),
        "save": Box(1, 4, "checkpoint.py", ("a temporary name,", "then renamed")),
        "data": Box(2, 0, "data/", ("read, tokenise, keep", "memory-mapped rows")),
        "task": Box(2, 1, "translation.py", ("defaults, tokenizer,", "loss and metric")),
        "feed": Box(2, 2, "task.py  Feed", ("batches, a function", "of seed and epoch")),
        "recipe": Box(3, 1, "recipe.py, scale.py", ("the model in its size,", "checked without memory")),
        "model": Box(3, 3, "seq2seq.py", ("tokens to logits,", "by the parts")),
    },
    arrows=(
        ("files", "cli", ""),
        ("cli", "plan", "RunRequest"),
        ("plan", "task", "Draft"),
        ("task", "data", ""),
        ("task", "recipe", "sizes"),
        ("plan", "loop", "plan"),
        ("feed", "loop", "batches"),
        ("loop", "update", "batch"),
        ("update", "model", "tokens"),
        ("update", "save", ""),
        ("save", "run", ""),
    ),
)

TRANSLATE = Journey(
    title='regard translate "She gave him a book." -m RUN',
    lanes=("cli/", "use/", "decode/", "models/"),
    boxes={
        "text": Box(0, 0, "lines of text", ("arguments, a file", "or a pipe"), thing=True),
        "cli": Box(0, 1, "translate.py", ("options; lines in,", "lines out")),
        "answer": Box(0, 3, "translations", ("in the order", "of the lines"), thing=True),
        "folder": Box(1, 0, "the folder RUN", ("weights, recipe,", "tokenizer"), thing=True),
        "load": Box(1, 1, "load.py", ("a model with a method", "for every verb")),
        "translate": Box(1, 2, "translate.py", ("lines become pairs of", "line and translation")),
        "batches": Box(1, 3, "batches.py", ("similar lengths together,", "answers in order")),
        "engine": Box(2, 1, "engine.py", ("eager, captured", "or compiled steps")),
        "beam": Box(2, 2, "beam.py", ("a search over begin,", "step and reorder")),
        "state": Box(3, 1, "parts/state.py", ("one immutable Step:", "slots, positions, mask")),
        "model": Box(3, 2, "seq2seq.py", ("step: tokens to logits,", "RNN or Transformer")),
        "attention": Box(3, 3, "parts/attention.py", ("project, remember,", "attend, merge")),
    },
    arrows=(
        ("text", "cli", ""),
        ("cli", "load", ""),
        ("folder", "load", ""),
        ("load", "engine", "model"),
        ("load", "translate", "model"),
        ("translate", "batches", "lines"),
        ("translate", "beam", "a batch"),
        ("engine", "beam", "Steps"),
        ("beam", "model", "tokens"),
        ("model", "state", ""),
        ("model", "attention", ""),
        ("batches", "answer", ""),
    ),
)

LOOK = Journey(
    title='regard look "She gave him a book." -m RUN',
    lanes=("cli/", "viewer/", "parts/", "web/src/"),
    boxes={
        "text": Box(0, 0, "a sentence", ("or an image,", "or tracks of agents"), thing=True),
        "cli": Box(0, 1, "look.py", ("starts the server,", "opens the browser")),
        "handle": Box(1, 0, "model_handle.py", ("the model, loaded", "in the background")),
        "record": Box(1, 1, "record.py", ("one input,", "one observed pass")),
        "live": Box(1, 2, "live_recording.py", ("a manifest, and blobs", "computed on request")),
        "server": Box(1, 3, "server.py", ("on this machine only,", "with a token")),
        "watch": Box(2, 1, "watch.py", ("keeps q, k and v", "of every attention")),
        "edit": Box(2, 2, "edit.py", ("heads off, weights set,", "vectors replaced")),
        "you": Box(3, 1, "you", ("point, choose, change", "and ask again"), thing=True),
        "views": Box(3, 2, "views/", ("one file for each view", "of the page")),
        "reads": Box(3, 3, "recording.ts", ("reads manifest", "and blobs")),
    },
    arrows=(
        ("text", "cli", ""),
        ("cli", "record", "Query"),
        ("handle", "record", ""),
        ("record", "watch", "tokens"),
        ("record", "live", "trace"),
        ("live", "edit", "changes"),
        ("live", "server", "blobs"),
        ("server", "reads", "HTTP"),
        ("reads", "views", ""),
        ("views", "you", ""),
    ),
)

JOURNEYS = {"journey-train.svg": TRAIN, "journey-translate.svg": TRANSLATE, "journey-look.svg": LOOK}


def draw_journeys(look: Look) -> Mapping[str, bytes]:
    """Draw the three journeys."""
    return {name: draw_journey(journey, look) for name, journey in JOURNEYS.items()}


def draw_journey(journey: Journey, look: Look) -> bytes:
    """Draw the lanes, the arrows and then the boxes."""
    columns = max(box.column for box in journey.boxes.values()) + 1
    width = LEFT + columns * (WIDE + ACROSS) - ACROSS + MARGIN
    height = TOP + len(journey.lanes) * (HIGH + DOWN) - DOWN + MARGIN
    mono = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace"
    parts = [text(f"$ {journey.title}", MARGIN, 30, font_size=TITLE, font_family=mono, fill=look.ink)]
    for number, name in enumerate(journey.lanes):
        top = TOP + number * (HIGH + DOWN)
        parts.append(text(name, MARGIN, top + HIGH / 2 + 4, font_size=SAY, fill=look.soft))
        if number:
            y = top - DOWN / 2
            parts.append(element("path", d=f"M{MARGIN} {y}H{width - MARGIN}", stroke=look.line, stroke_dasharray="3 4"))
    for begin, end, passed in journey.arrows:
        parts += _arrow(journey.boxes[begin], journey.boxes[end], passed, look)
    for box in journey.boxes.values():
        parts += _box(box, look)
    return document(round(width), height, parts, look)


def _corner(box: Box) -> tuple[float, float]:
    return LEFT + box.column * (WIDE + ACROSS), TOP + box.lane * (HIGH + DOWN)


def _box(box: Box, look: Look) -> list[str]:
    x, y = _corner(box)
    edge, corner = (look.orange, HIGH / 2.6) if box.thing else (look.blue, 6)
    middle = {"text_anchor": "middle"}
    top = y + (HIGH - NAME - len(box.lines) * (SAY + 3)) / 2
    return [
        element("rect", x=x, y=y, width=WIDE, height=HIGH, rx=corner, fill=look.ground, stroke=edge),
        text(box.name, x + WIDE / 2, top + NAME - 1, font_size=NAME, font_weight="bold", fill=look.ink, **middle),
        *(
            text(line, x + WIDE / 2, top + NAME + (number + 1) * (SAY + 3), font_size=SAY, fill=look.soft, **middle)
            for number, line in enumerate(box.lines)
        ),
    ]


def _arrow(begin: Box, end: Box, passed: str, look: Look) -> list[str]:
    """Return an arrow between the nearest sides of two boxes, and what is passed beside it."""
    (x0, y0), (x1, y1) = _corner(begin), _corner(end)
    across, down = _sign(x1 - x0), _sign(y1 - y0)
    if y0 == y1:  # beside each other
        a, b = (x0 + WIDE * (across > 0), y0 + HIGH / 2), (x1 + WIDE * (across < 0), y1 + HIGH / 2)
        path, tip = f"M{a[0]} {a[1]}H{b[0] - 5 * across}", (b, (-across, 0))
        label = text(passed, (a[0] + b[0]) / 2, a[1] - 5, text_anchor="middle", font_size=SAY - 1, fill=look.soft)
    else:  # one above the other
        a, b = (x0 + WIDE / 2, y0 + HIGH * (down > 0)), (x1 + WIDE / 2, y1 + HIGH * (down < 0))
        path, tip = f"M{a[0]} {a[1]}V{b[1] - 5 * down}", (b, (0, -down))
        label = text(passed, a[0] + 6, (a[1] + b[1]) / 2 + 3, font_size=SAY - 1, fill=look.soft)
    (x, y), (dx, dy) = tip
    head = f"M{x} {y}l{dx * 7 - dy * 3.5} {dy * 7 - dx * 3.5}l{dy * 7} {dx * 7}z"
    return [
        element("path", d=path, stroke=look.soft, stroke_width=1.2, fill="none"),
        element("path", d=head, fill=look.soft),
        *([label] if passed else []),
    ]


def _sign(value: float) -> int:
    return (value > 0) - (value < 0)
