"""Recording: everything that the page needs of one model run: a manifest and named blobs.

A live recording computes a blob when it is requested, a stored one reads it; the page sees no difference. Which blobs
exist, and how large each is, follows from the manifest alone (`blobs.py`).
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping
from typing import Any, cast

from regard.errors import NOT_FINITE, InputError
from regard.untrusted import JsonError, parse_json
from regard.viewer.archive import pack_archive, unpack_archive
from regard.viewer.blobs import all_blobs, find_blob, thumbnails_size, weights_size
from regard.viewer.manifest import (
    AttentionInfo,
    Cell,
    ChangeResult,
    HeadScoresResult,
    Manifest,
    RecordingInfo,
    WrittenResult,
)

LIST = "recordings.json"
LISTED_TEXT = 200  # characters of a text in the list
NO_MODEL = "this recording has no model that could be changed; open the model itself: regard look TEXT -m RUN"
OMISSIBLE = ("arithmetic", "hidden", "next", "recurrences")  # what a stored recording may lack


class Recording(ABC):
    """One model run on one input."""

    @abstractmethod
    def manifest(self) -> Manifest:
        """Return what was recorded: tokens, attentions, shapes."""

    @abstractmethod
    def blob(self, name: str) -> bytes:
        """Return the bytes of a blob; raise a KeyError if it does not exist."""

    def change(self, given: Any) -> "tuple[Recording, ChangeResult]":
        """Run the changed model on the same tokens; a recording without its model cannot."""
        raise InputError(NO_MODEL)

    def write(self, given: Any) -> WrittenResult:
        """Return what the model writes by itself, unchanged and changed; a recording without its model cannot."""
        raise InputError(NO_MODEL)

    def head_scores(self) -> HeadScoresResult:
        """Measure known behaviours and importance of all heads; a recording without its model cannot."""
        raise InputError(NO_MODEL)

    def names(self) -> Iterator[str]:
        """Yield the names of all blobs."""
        return (blob.name for blob in all_blobs(self.manifest()))


class ComputedRecording(Recording):
    """A recording with a method `make_<kind>` for every kind of blob that its manifest can have."""

    def blob(self, name: str) -> bytes:
        """Compute a blob."""
        found = find_blob(self.manifest(), name)
        data: bytes = getattr(self, f"make_{found.kind}")(**found.fields)
        return data


class StoredRecording(Recording):
    """A recording that was made before; it has no model that could be changed."""

    def __init__(self, manifest: Manifest, blobs: Mapping[str, bytes]) -> None:
        self._manifest: Manifest = {**manifest, "places": []}
        self._blobs = blobs

    def manifest(self) -> Manifest:
        """Return what was recorded."""
        return self._manifest

    def blob(self, name: str) -> bytes:
        """Return the bytes of a blob."""
        return self._blobs[name]


class PartialRecording(Recording):
    """A recording without some of its layers of attention, or without some of its largest blobs."""

    def __init__(self, whole: Recording, layers: Collection[int] | None = None, without: Collection[str] = ()) -> None:
        unknown = sorted(set(without) - set(OMISSIBLE))
        if unknown:
            raise ValueError(f"cannot leave out {', '.join(unknown)}; only {', '.join(OMISSIBLE)}")
        self.whole = whole
        manifest = whole.manifest()
        every = manifest["attentions"]
        self.kept = [layers is None or attention["layer"] in layers for attention in every]
        attentions = [attention for attention, keep in zip(every, self.kept, strict=True) if keep]
        if every and not attentions:
            present = sorted({attention["layer"] for attention in every})
            raise InputError(f"no layer is left; this recording has the layers {', '.join(map(str, present))}")
        if "arithmetic" in without:  # a pooled attention keeps its rows, which are all that the page can show of it
            attentions = [{**attention, "arithmetic": attention["pooled"] is not None} for attention in attentions]
        self._manifest: Manifest = {
            **manifest,
            "attentions": attentions,
            "begin": _first_cell(manifest, attentions),
            "hidden": [] if "hidden" in without else manifest["hidden"],
            "next": None if "next" in without else manifest["next"],
            "recurrences": [] if "recurrences" in without else manifest["recurrences"],
        }

    def manifest(self) -> Manifest:
        """Return what is left."""
        return self._manifest

    def blob(self, name: str) -> bytes:
        """Return the bytes of a blob, without the layers that were left out."""
        kind = find_blob(self._manifest, name).kind
        data = self.whole.blob(name)
        if all(self.kept) or kind not in ("all_weights", "overview"):
            return data
        pieces, offset = [], 0
        for attention, keep in zip(self.whole.manifest()["attentions"], self.kept, strict=True):
            thumbnails = thumbnails_size(attention, self._manifest["thumbnail"])
            size = weights_size(attention) if kind == "all_weights" else thumbnails
            if keep:
                pieces.append(data[offset : offset + size])
            offset += size
        return b"".join(pieces)


def _first_cell(manifest: Manifest, attentions: list[AttentionInfo]) -> Cell | None:
    """Begin where the whole recording does, or at the first head if that layer was left out."""
    begin = manifest["begin"]
    if begin is None or any(attention["id"] == begin["attention"] for attention in attentions):
        return begin
    return {"attention": attentions[0]["id"], "head": 0, "query": 0, "key": 0}


# --- several in one file ---------------------------------------------------------------------------------------------


def list_recordings(recordings: Mapping[str, Recording]) -> list[RecordingInfo]:
    """Return the content of `recordings.json`: the id, title, model and text of every recording, cut if it is long."""
    manifests = {id: recording.manifest() for id, recording in recordings.items()}
    return [
        {"id": id, "title": manifest["title"], "model": manifest["model"], "text": manifest["text"][:LISTED_TEXT]}
        for id, manifest in manifests.items()
    ]


def encode_json(value: Any) -> bytes:
    """Encode a value as JSON for a browser.

    Numbers must be finite, since JSON has no others. Half of a surrogate pair cannot be encoded, and is shown as a
    question mark.
    """
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except ValueError:
        raise InputError(NOT_FINITE) from None
    return text.encode("utf-8", "replace")


def pack_recordings(
    recordings: Mapping[str, Recording], layers: Collection[int] | None = None, without: Collection[str] = ()
) -> bytes:
    """Pack recordings by their ids into an archive, with all layers of attention or only these `layers`.

    Large parts can be left out by `without`: the numbers of "arithmetic", "hidden" states, scores of "next" tokens,
    states of "recurrences".
    """
    parts = {id: PartialRecording(recording, layers, without) for id, recording in recordings.items()}

    def entries() -> Iterator[tuple[str, bytes]]:
        yield LIST, encode_json(list_recordings(parts))
        for id, part in parts.items():
            yield f"recordings/{id}/manifest.json", encode_json(part.manifest())
            yield from ((f"recordings/{id}/{name}", part.blob(name)) for name in part.names())

    return pack_archive(entries())


def unpack_recordings(archive: bytes) -> dict[str, StoredRecording]:
    """Return the recordings of an archive, by their ids."""
    entries = unpack_archive(archive)
    try:
        ids = [one["id"] for one in parse_json(entries[LIST], LIST)]
        found = {}
        for id in ids:
            prefix = f"recordings/{id}/"
            blobs = {path.removeprefix(prefix): data for path, data in entries.items() if path.startswith(prefix)}
            manifest = cast(Manifest, parse_json(blobs.pop("manifest.json"), "manifest.json"))
            found[id] = StoredRecording(manifest, blobs)
    except (JsonError, KeyError, TypeError):
        raise InputError("this archive holds no recordings; write it again with `regard look --export`") from None
    return found
