"""Recordings as files: a self-contained HTML page, or one head as a table (CSV) or a picture (PNG, SVG)."""

import csv
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from io import StringIO
from math import ceil
from numbers import Integral
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.errors import InputError, RegardError, choices
from regard.viewer.blobs import all_blobs, blob_name, weights_size
from regard.viewer.html import page_with_recordings
from regard.viewer.manifest import AttentionInfo, Cell, ChangeResult, HeadScoresResult, Manifest, WrittenResult
from regard.viewer.recording import PartialRecording, Recording, pack_recordings

if TYPE_CHECKING:
    import numpy as np

MEGABYTE = 1_000_000
CAP = 20 * MEGABYTE  # of a page, which a browser unpacks as a whole
LARGEST = 14 * MEGABYTE  # of the archive in it: base64 adds a third, and the page itself a little
AROUND = CAP - LARGEST * 4 / 3  # bytes of that little, at most
HOPELESS = 5 * CAP  # more bytes than this never compress enough, so they are not packed at all
OPTIONAL = {  # what is left out if the page is too large, in this order, and what it is called
    "next": "the scores of the Next view",
    "hidden": "the vectors of the Words view",
    "recurrences": "the numbers of the States view",
    "arithmetic": "the numbers of the Arithmetic view",
}
FORMULA = re.compile(r"\s*[=+\-@＝＋－＠]|[\t\r]")  # what a cell begins with that a spreadsheet evaluates


# --- a page ----------------------------------------------------------------------------------------------------------


class RestatedRecording(Recording):
    """A recording with another manifest, which has the same blobs."""

    def __init__(self, recording: Recording, manifest: Manifest) -> None:
        self.recording, self._manifest = recording, manifest

    def manifest(self) -> Manifest:
        """Return the other manifest."""
        return self._manifest

    def blob(self, name: str) -> bytes:
        """Return the bytes of a blob."""
        return self.recording.blob(name)

    def change(self, given: Any) -> tuple[Recording, ChangeResult]:
        """Run the changed model on the same tokens."""
        return self.recording.change(given)

    def write(self, given: Any) -> WrittenResult:
        """Return what the model writes by itself, unchanged and changed."""
        return self.recording.write(given)

    def head_scores(self) -> HeadScoresResult:
        """Measure known behaviours and importance of all heads."""
        return self.recording.head_scores()


def with_note(recording: Recording, note: str) -> Recording:
    """Return the recording with one more note."""
    manifest = recording.manifest()
    return RestatedRecording(recording, {**manifest, "notes": [*manifest["notes"], note]})


def begun_at(recording: Recording, attention: str | None, head: int | None) -> Recording:
    """Return the recording with another head to begin with, counted from 1; one without attention stays as it is."""
    manifest = recording.manifest()
    if (attention is None and head is None) or not manifest["attentions"]:
        return recording
    chosen, number = choose_head(manifest, attention, head)
    begin = manifest["begin"]
    if begin is not None and (begin["attention"], begin["head"]) == (chosen["id"], number):
        return recording
    query, key = 0, 0
    if chosen["pooled"] is None:
        import torch

        from regard.viewer.head_statistics import choose_first_cell

        weights = torch.from_numpy(_head_weights(recording, chosen, number).copy()).float()
        tokens = manifest["sequences"][chosen["queries"]], manifest["sequences"][chosen["keys"]]
        query, key = choose_first_cell(weights, *tokens, same=chosen["queries"] == chosen["keys"])
    cell: Cell = {"attention": chosen["id"], "head": number, "query": query, "key": key}
    return RestatedRecording(recording, {**manifest, "begin": cell})


def export_page(recordings: Mapping[str, Recording], layers: Collection[int] | None = None) -> tuple[str, str]:
    """Return recordings as one HTML page, with these layers or all, and a note on what was left out."""
    archive, note = pack_to_fit(recordings, layers)
    return page_with_recordings(archive), note


def pack_to_fit(recordings: Mapping[str, Recording], layers: Collection[int] | None = None) -> tuple[bytes, str]:
    """Pack recordings so that they fit into a page; return a note on what was left out.

    If the page would be too large, optional parts are left out, and the page says so.
    """
    present = sorted({attention["layer"] for one in recordings.values() for attention in one.manifest()["attentions"]})
    if present and layers and (missing := set(layers) - set(present)):
        rule = f"layer {min(missing)} has no attention to show"
        raise InputError(f"{rule}; choose from the layers {format_layers(present)}")
    size = 0
    recurrent = any(one.manifest()["recurrences"] for one in recordings.values())
    optional = {part: name for part, name in OPTIONAL.items() if recurrent or part != "recurrences"}
    for count in range(len(optional) + 1):
        without, note = list(optional)[:count], _note(list(optional.values())[:count])
        shown = {id: with_note(one, note) if note else one for id, one in recordings.items()}
        size = sum(
            bytes or 0
            for one in shown.values()
            for bytes in map(attrgetter("size"), all_blobs(PartialRecording(one, layers, without).manifest()))
        )
        if size > HOPELESS:
            continue
        archive = pack_recordings(shown, layers, without)
        size = len(archive)
        if size <= LARGEST:
            return archive, note
    needed = ceil((size * 4 / 3 + AROUND) / MEGABYTE)
    trouble = f"the page would have {needed} MB, and the limit is {CAP // MEGABYTE} MB"
    some = format_layers(present[: max(len(present) // 4, 1)])
    remedy = f"choose some of the layers {format_layers(present)}, for example {some} (--layers, layers= in Python)"
    raise RegardError(f"{trouble}; {remedy}, or a shorter text")


def _note(omitted: list[str]) -> str:
    if not omitted:
        return ""
    names = " and ".join([", ".join(omitted[:-1]), omitted[-1]] if omitted[1:] else omitted)
    remedy = "use a shorter text or fewer layers to include them"
    return f"To keep this file below {CAP // MEGABYTE} MB, {names} were left out; {remedy}."


def parse_layers(text: str) -> frozenset[int]:
    """Parse a list of layers such as `1,3-4`."""
    found: set[int] = set()
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d{1,6})\s*(?:-\s*(\d{1,6})\s*)?", part, re.ASCII)
        begin, end = (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
        if not 1 <= begin <= end:
            raise InputError(f"--layers {text}: {part.strip()!r} is not a layer; write layers as 1,3-4, counted from 1")
        found.update(range(begin, end + 1))
    return frozenset(found)


def format_layers(layers: list[int]) -> str:
    """Format sorted layers as `parse_layers` reads them."""
    begins = [layer for layer in layers if layer - 1 not in layers]
    ends = [layer for layer in layers if layer + 1 not in layers]
    return ",".join(str(begin) if begin == end else f"{begin}-{end}" for begin, end in zip(begins, ends, strict=True))


# --- one head --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class HeadWeights:
    """The weights of one head, with the tokens of its rows and columns, and its name."""

    weights: "np.ndarray"
    allowed: "np.ndarray | None"  # which keys a query may look at; None: all
    queries: list[str]
    keys: list[str]
    title: str
    beside: str  # what the rows are: "this word looks …"
    contacts: list[list[int]] = field(default_factory=list)  # pairs of tokens to be outlined


def read_head_weights(recording: Recording, attention: str | None = None, head: int | None = None) -> HeadWeights:
    """Read one head (counted from 1) of a recording, at the last step if it has several.

    The default is the head that the page begins with.
    """
    import numpy as np

    manifest = recording.manifest()
    chosen, number = choose_head(manifest, attention, head)
    rows, columns = chosen["rows"], chosen["columns"]
    weights = _head_weights(recording, chosen, number)
    allowed = None
    if chosen["mask"] is not None:
        bits = np.frombuffer(recording.blob(blob_name("mask", mask=chosen["mask"])), np.uint8)
        allowed = np.unpackbits(bits, count=rows * columns, bitorder="little").reshape(rows, columns).astype(bool)
    queries, keys = (
        [token["text"] for token in manifest["sequences"][name]] for name in (chosen["queries"], chosen["keys"])
    )
    writes = chosen["queries"] == "written"  # as `axesOf` in web/src/heatmap.ts
    beside = "to write this, it looks …" if writes else f"this {manifest['noun']} looks …"
    name = f"L{chosen['layer']}.H{number + 1}" + ("" if chosen["kind"] == "self" else f" · {chosen['kind']}")
    step = f" · step {manifest['steps'][-1]}" if manifest["steps"] else ""
    contacts = manifest.get("contacts", []) if chosen["queries"] == chosen["keys"] else []
    return HeadWeights(weights, allowed, queries, keys, f"{manifest['title']} · {name}{step}", beside, contacts)


def choose_head(manifest: Manifest, attention: str | None, head: int | None) -> tuple[AttentionInfo, int]:
    """Find an attention by its id, and a head of it counted from 1; return the head counted from 0."""
    present = {one["id"]: one for one in manifest["attentions"]}
    if not present:
        remedy = "--export NAME.html writes a page with its vectors and states"
        raise InputError(f"{manifest['title']}: has no attention to draw; {remedy}")
    begin = manifest["begin"] or {"attention": next(iter(present)), "head": 0, "query": 0, "key": 0}
    chosen = present.get(begin["attention"] if attention is None else attention)
    if chosen is None:
        raise InputError(f"attention {attention}: no such attention; {choices(attention, present)}")
    if head is None:
        return chosen, begin["head"] if chosen["id"] == begin["attention"] else 0
    if not isinstance(head, Integral) or not 1 <= head <= chosen["heads"]:
        raise InputError(f"head {head}: {chosen['id']} has heads 1 to {chosen['heads']}")
    return chosen, int(head) - 1  # a number of NumPy cannot be written as JSON


def _head_weights(recording: Recording, attention: AttentionInfo, head: int) -> "np.ndarray":
    """Read the weights of a head in the precision in which they are stored: float32 or float16."""
    import numpy as np

    manifest = recording.manifest()
    step, rows, columns = max(len(manifest["steps"]) - 1, 0), attention["rows"], attention["columns"]
    if attention["arithmetic"]:
        names = (blob_name("row", attention=attention["id"], head=head, query=query) for query in range(rows))
        return np.stack([np.frombuffer(recording.blob(name), "<f4")[-columns:] for name in names])
    if attention["pooled"] is not None:
        raise InputError(f"{manifest['title']}: {rows} x {columns} weights are not stored; give a shorter text")
    if not manifest["whole"]:
        name = blob_name("weights", step=step, attention=attention["id"], head=head)
        return np.frombuffer(recording.blob(name), "<f2").reshape(rows, columns)
    before = 0
    for one in manifest["attentions"]:
        if one["id"] == attention["id"]:
            break
        before += weights_size(one)
    data, begin = recording.blob(blob_name("all_weights", step=step)), before + 2 * head * rows * columns
    return np.frombuffer(data, "<f2", rows * columns, begin).reshape(rows, columns)


def head_to_csv(head: HeadWeights) -> str:
    """Return the weights of one head as CSV: a row for each query, a column for each key, with their tokens.

    Numbers have as many digits as their precision needs; masked cells are empty. A token that a spreadsheet would read
    as a formula begins with a quote.
    """
    import numpy as np

    text = StringIO()
    writer = csv.writer(text)  # a lone "\r" or "\n" in a token is quoted only if lines end with both
    writer.writerow(["", *map(_inert, head.keys)])
    allowed = np.ones(head.weights.shape, bool) if head.allowed is None else head.allowed
    for query, row, visible in zip(head.queries, head.weights, allowed, strict=True):
        writer.writerow(
            [_inert(query), *(str(weight) if shown else "" for weight, shown in zip(row, visible, strict=True))]
        )
    return text.getvalue()


def _inert(cell: str) -> str:
    """Return a cell that no spreadsheet evaluates; `pictureCsv` in web/src/export.ts does the same."""
    return f"'{cell}" if FORMULA.match(cell) else cell


def draw_head(head: HeadWeights, kind: str) -> bytes:
    """Draw one head as a heat map, as "png" or "svg"."""
    import numpy as np

    from regard import draw

    outlined = [pair for first, second in head.contacts for pair in ((first, second), (second, first))]
    figure = draw.heatmap(
        head.weights.astype(np.float32),
        head.queries,
        head.keys,
        title=head.title,
        mask=head.allowed,
        outlined=outlined,
        outlines="outlined: likely contacts",
        beside=head.beside,
    )
    return draw.encode_figure(figure, kind)


# --- files -----------------------------------------------------------------------------------------------------------


def check_output_file(path: Path, suffix: str) -> None:
    """Reject a file that cannot be written, before any work is done."""
    if path.suffix.lower() != suffix:
        raise InputError(f"{path}: the name of this file must end in {suffix}")
    if path.is_dir():
        raise InputError(f"{path}: is a folder; name a file")
    if not path.parent.is_dir():
        raise InputError(f"{path}: no folder {path.parent}; create it first")
