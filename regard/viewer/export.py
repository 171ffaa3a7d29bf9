"""Recordings as files: a page to send, which needs nothing but itself, and of one head a table or a picture."""

import csv
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from io import StringIO
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.errors import InputError, RegardError, choices
from regard.viewer.html import page_with_recordings
from regard.viewer.recording import Manifest, PartialRecording, Recording, pack_recordings, sizes

if TYPE_CHECKING:
    import numpy as np

MEGABYTE = 1_000_000
CAP = 20 * MEGABYTE  # of a page, which a browser has to unpack as a whole
LARGEST = 14 * MEGABYTE  # of the container in it: base64 adds a third, and the page itself a little
HOPELESS = 5 * CAP  # bytes that are never packed into so little
SPARED = {  # what a page can do without, the first first, and what is said of it
    "next": "the scores of Next",
    "hidden": "the vectors of Words",
    "arithmetic": "the numbers of Arithmetic",
}


# --- a page ----------------------------------------------------------------------------------------------------------


class NotedRecording(Recording):
    """A recording with one more note."""

    def __init__(self, recording: Recording, note: str) -> None:
        self.recording, self.note = recording, note

    def manifest(self) -> Manifest:
        """Say what was recorded, and the note."""
        manifest = self.recording.manifest()
        return manifest | {"notes": [*manifest["notes"], self.note]}

    def blob(self, name: str) -> bytes:
        """Give the bytes of a name."""
        return self.recording.blob(name)


def export_page(recordings: Mapping[str, Recording], layers: Collection[int] | None = None) -> tuple[str, str]:
    """Make one page of recordings, with these layers of attention or all; give it, and the note of what it lacks."""
    container, note = pack_to_fit(recordings, layers)
    return page_with_recordings(container), note


def pack_to_fit(recordings: Mapping[str, Recording], layers: Collection[int] | None = None) -> tuple[bytes, str]:
    """Pack recordings so that they fit into a page; give the note of what they then lack.

    What is large and not attention is left out before the page becomes too large, and the page says so.
    """
    size = 0
    for spared in range(len(SPARED) + 1):
        without, note = list(SPARED)[:spared], _note(list(SPARED.values())[:spared])
        shown = {id: NotedRecording(one, note) if note else one for id, one in recordings.items()}
        size = sum(
            bytes or 0
            for one in shown.values()
            for _, bytes in sizes(PartialRecording(one, layers, without).manifest())
        )
        if size > HOPELESS:
            continue
        container = pack_recordings(shown, layers, without)
        size = len(container)
        if size <= LARGEST:
            return container, note
    there = sorted({attention["layer"] for one in recordings.values() for attention in one.manifest()["attentions"]})
    trouble = f"the page would have {ceil(size * 4 / 3 / MEGABYTE)} MB, and {CAP // MEGABYTE} MB is the most"
    some = format_layers(there[: max(len(there) // 4, 1)])
    raise RegardError(
        f"{trouble}; choose some of the layers {format_layers(there)}, as in --layers {some}, or a shorter text"
    )


def _note(spared: list[str]) -> str:
    if not spared:
        return ""
    left = " and ".join([", ".join(spared[:-1]), spared[-1]] if spared[1:] else spared)
    remedy = "a shorter text or fewer layers need less"
    return f"To keep this file below {CAP // MEGABYTE} MB, {left} are not in it; {remedy}."


def parse_layers(text: str) -> frozenset[int]:
    """Read layers as people write them: `1,3-4`."""
    found: set[int] = set()
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d{1,6})\s*(?:-\s*(\d{1,6})\s*)?", part, re.ASCII)
        begin, end = (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
        if not 1 <= begin <= end:
            raise InputError(f"--layers {text}: {part.strip()!r} is no layer; write them as 1,3-4, counted from 1")
        found.update(range(begin, end + 1))
    return frozenset(found)


def format_layers(layers: list[int]) -> str:
    """Write layers, in order, as `layers_of` reads them."""
    begins = [layer for layer in layers if layer - 1 not in layers]
    ends = [layer for layer in layers if layer + 1 not in layers]
    return ",".join(str(begin) if begin == end else f"{begin}-{end}" for begin, end in zip(begins, ends, strict=True))


# --- one head --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class HeadWeights:
    """The weights of one head, with the words of its rows and columns, and its name."""

    weights: "np.ndarray"
    allowed: "np.ndarray | None"  # where a query may look; None: everywhere
    queries: list[str]
    keys: list[str]
    title: str


def read_head_weights(recording: Recording, attention: str | None = None, head: int | None = None) -> HeadWeights:
    """Read one head (counted from 1) of a recording, after the last step if it has several.

    Where none is chosen it is the one that the page would begin with.
    """
    import numpy as np

    manifest = recording.manifest()
    chosen, number = choose_head(manifest, attention, head)
    rows, columns = chosen["rows"], chosen["columns"]
    weights = _weights(recording, chosen, number)
    allowed = None
    if chosen["mask"] is not None:
        bits = np.frombuffer(recording.blob(f"mask/{chosen['mask']}.bits"), np.uint8)
        allowed = np.unpackbits(bits, count=rows * columns, bitorder="little").reshape(rows, columns).astype(bool)
    queries, keys = ([token["text"] for token in manifest["sequences"][chosen[side]]] for side in ("queries", "keys"))
    name = f"L{chosen['layer']}.H{number + 1}" + ("" if chosen["kind"] == "self" else f" · {chosen['kind']}")
    step = f" · step {manifest['steps'][-1]}" if manifest["steps"] else ""
    return HeadWeights(weights, allowed, queries, keys, f"{manifest['title']} · {name}{step}")


def choose_head(manifest: Manifest, attention: str | None, head: int | None) -> tuple[dict[str, Any], int]:
    """Find an attention by its id, and in it a head, counted from 1; give it counted from 0."""
    there = {one["id"]: one for one in manifest["attentions"]}
    begin = manifest["begin"] or {"attention": next(iter(there), None), "head": 0}
    if not there:
        raise InputError(f"{manifest['title']}: has no attention, so there is none to draw")
    chosen = there.get(begin["attention"] if attention is None else attention)
    if chosen is None:
        raise InputError(f"--attention {attention}: there is no such attention; {choices(attention, there)}")
    if head is None:
        return chosen, begin["head"] if chosen["id"] == begin["attention"] else 0
    if not 1 <= head <= chosen["heads"]:
        raise InputError(f"--head {head}: {chosen['id']} has the heads 1 to {chosen['heads']}")
    return chosen, head - 1


def _weights(recording: Recording, attention: dict[str, Any], head: int) -> "np.ndarray":
    """Read the weights of a head: as exact as they are there, which is float32 or float16."""
    import numpy as np

    manifest = recording.manifest()
    step, rows, columns = max(len(manifest["steps"]) - 1, 0), attention["rows"], attention["columns"]
    if attention["arithmetic"]:
        names = (f"row/{attention['id']}/{head}/{query}.f32" for query in range(rows))
        return np.stack([np.frombuffer(recording.blob(name), "<f4")[-columns:] for name in names])
    if attention["pooled"] is not None:
        raise InputError(f"{manifest['title']}: {rows} x {columns} weights are not stored; give a shorter text")
    if not manifest["whole"]:
        name = f"attention/{step}/{attention['id']}/{head}.f16"
        return np.frombuffer(recording.blob(name), "<f2").reshape(rows, columns)
    before = 0
    for one in manifest["attentions"]:
        if one["id"] == attention["id"]:
            break
        before += one["heads"] * one["rows"] * one["columns"]
    data, begin = recording.blob(f"attention/{step}.f16"), before + head * rows * columns
    return np.frombuffer(data, "<f2", rows * columns, 2 * begin).reshape(rows, columns)


def head_to_csv(head: HeadWeights) -> str:
    """Write the weights of one head as CSV: a row for each query, a column for each key, and the words of both.

    Numbers have as many digits as tell them from their neighbours; where a query may not look there is none.
    """
    import numpy as np

    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["", *head.keys])
    allowed = np.ones(head.weights.shape, bool) if head.allowed is None else head.allowed
    for query, row, may in zip(head.queries, head.weights, allowed, strict=True):
        writer.writerow([query, *(str(weight) if there else "" for weight, there in zip(row, may, strict=True))])
    return text.getvalue()


def draw_head(head: HeadWeights, kind: str) -> bytes:
    """Draw one head as a heat map: "png" or "svg"."""
    import numpy as np

    from regard import draw

    figure = draw.heatmap(head.weights.astype(np.float32), head.queries, head.keys, title=head.title, mask=head.allowed)
    return draw.encode(figure, kind)


# --- files -----------------------------------------------------------------------------------------------------------


def check_output_file(path: Path, suffix: str) -> None:
    """Refuse a file that cannot be written, before any work is done for it."""
    if path.suffix.lower() != suffix:
        raise InputError(f"{path}: the name of this file must end in {suffix}")
    if path.is_dir():
        raise InputError(f"{path}: is a folder; name a file")
    if not path.parent.is_dir():
        raise InputError(f"{path}: there is no folder {path.parent}; make it first")
