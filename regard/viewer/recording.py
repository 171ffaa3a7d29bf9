"""Recording: everything that the page needs of one model over one input; a manifest and named blobs.

A live recording (`record.py`) works a blob out when it is asked for, a stored one reads it; who shows them sees no
difference. Which blobs there are, and how large each is, follows from the manifest alone.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping
from math import ceil
from typing import Any

from regard.errors import InputError
from regard.viewer.archive import pack_archive, unpack_archive

Manifest = dict[str, Any]

LIST = "recordings.json"
WHOLE = 2_000_000  # as many weights of a step are one blob
PICTURE = 1 << 20  # a head with more weights is shown smaller
THUMBNAIL = 32  # rows and columns of a head in the overview, at most
OMISSIBLE = ("arithmetic", "hidden", "next")  # what a stored recording can do without


class Recording(ABC):
    """One model over one input."""

    @abstractmethod
    def manifest(self) -> Manifest:
        """Say what was recorded: tokens, attentions, shapes."""

    @abstractmethod
    def blob(self, name: str) -> bytes:
        """Give the bytes of a name; a KeyError if there is no such blob."""

    def names(self) -> Iterator[str]:
        """Give the names of all blobs."""
        return (name for name, _ in sizes(self.manifest()))


class StoredRecording(Recording):
    """A recording that was made before."""

    def __init__(self, manifest: Manifest, blobs: Mapping[str, bytes]) -> None:
        self._manifest, self._blobs = manifest, blobs

    def manifest(self) -> Manifest:
        """Say what was recorded."""
        return self._manifest

    def blob(self, name: str) -> bytes:
        """Give the bytes of a name."""
        return self._blobs[name]


class PartialRecording(Recording):
    """A recording without some of its layers of attention, or without what makes it large."""

    def __init__(self, whole: Recording, layers: Collection[int] | None = None, without: Collection[str] = ()) -> None:
        unknown = sorted(set(without) - set(OMISSIBLE))
        if unknown:
            raise ValueError(f"cannot leave out {', '.join(unknown)}; only {', '.join(OMISSIBLE)}")
        self.whole = whole
        manifest = whole.manifest()
        every: list[Manifest] = manifest["attentions"]
        self.kept = [layers is None or attention["layer"] in layers for attention in every]
        attentions = [attention for attention, keep in zip(every, self.kept, strict=True) if keep]
        if every and not attentions:
            there = sorted({attention["layer"] for attention in every})
            raise InputError(f"no layer is left; there are the layers {', '.join(map(str, there))}")
        if "arithmetic" in without:  # but of what is pooled there is nothing else
            attentions = [attention | {"arithmetic": attention["pooled"] is not None} for attention in attentions]
        self._manifest = manifest | {"attentions": attentions, "begin": self._begin(manifest, attentions)}
        self._manifest |= {"hidden": []} if "hidden" in without else {}
        self._manifest |= {"next": None} if "next" in without else {}
        self.there = {name for name, _ in sizes(self._manifest)}

    def manifest(self) -> Manifest:
        """Say what is left."""
        return self._manifest

    def blob(self, name: str) -> bytes:
        """Give the bytes of a name, without the layers that were left out."""
        if name not in self.there:
            raise KeyError(name)
        data = self.whole.blob(name)
        kind, _, step = name.partition("/")
        if all(self.kept) or kind not in ("attention", "overview") or "/" in step:
            return data
        size = _weights if kind == "attention" else _thumbnails
        pieces, offset = [], 0
        for attention, keep in zip(self.whole.manifest()["attentions"], self.kept, strict=True):
            if keep:
                pieces.append(data[offset : offset + size(attention)])
            offset += size(attention)
        return b"".join(pieces)

    @staticmethod
    def _begin(manifest: Manifest, attentions: list[Manifest]) -> Manifest | None:
        """Begin where the whole does, or if that is gone at the first head."""
        begin: Manifest | None = manifest["begin"]
        if begin is None or any(attention["id"] == begin["attention"] for attention in attentions):
            return begin
        return {"attention": attentions[0]["id"], "head": 0, "query": 0, "key": 0}


# --- what follows from a manifest ------------------------------------------------------------------------------------


def sizes(manifest: Manifest) -> Iterator[tuple[str, int | None]]:
    """Give the name of every blob, and how many bytes it has; None where the manifest does not tell."""
    attentions: list[Manifest] = manifest["attentions"]
    for step in range(max(len(manifest["steps"]), 1)) if attentions else ():
        yield f"overview/{step}.u8", sum(map(_thumbnails, attentions))
        if manifest["whole"]:
            yield f"attention/{step}.f16", sum(map(_weights, attentions))
        else:
            yield from (blob for attention in attentions for blob in _pictures(step, attention))
    masks = {attention["mask"]: attention for attention in attentions if attention["mask"] is not None}
    for mask, attention in masks.items():
        yield f"mask/{mask}.bits", ceil(attention["rows"] * attention["columns"] / 8)
    for attention in attentions:
        yield from _arithmetic(attention)
    lengths = {name: len(tokens) for name, tokens in manifest["sequences"].items()}
    for hidden in manifest["hidden"]:
        for layer in range(hidden["layers"]):
            yield f"hidden/{hidden['sequence']}/{layer}.f32", 4 * lengths[hidden["sequence"]] * hidden["width"]
    if manifest["next"] is not None:
        yield "vocabulary.json", None
        for row in range(lengths[manifest["next"]["sequence"]]):
            yield f"next/{row}.f32", 4 * manifest["next"]["vocabulary"]
    for number, position in enumerate(manifest["positions"]):
        yield f"position/{number}.f32", 4 * position["rows"] * position["columns"]
        yield f"similarity/{number}.f32", 4 * position["similarities"] * position["size"] ** 2
    if manifest["image"] is not None:
        yield "image.png", None
    if manifest["rollout"]:
        yield "rollout.f16", 2 * attentions[0]["rows"] * attentions[0]["columns"]


def _weights(attention: Manifest) -> int:
    return 2 * int(attention["heads"]) * int(attention["rows"]) * int(attention["columns"])


def _thumbnails(attention: Manifest) -> int:
    return int(attention["heads"]) * min(attention["rows"], THUMBNAIL) * min(attention["columns"], THUMBNAIL)


def _pictures(step: int, attention: Manifest) -> Iterator[tuple[str, int]]:
    for head in range(attention["heads"]):
        if attention["pooled"] is None:
            yield f"attention/{step}/{attention['id']}/{head}.f16", 2 * attention["rows"] * attention["columns"]
        else:
            yield f"pooled/{step}/{attention['id']}/{head}.u8", attention["pooled"][0] * attention["pooled"][1]


def _arithmetic(attention: Manifest) -> Iterator[tuple[str, int]]:
    if not attention["arithmetic"]:
        return
    name, rows, columns = attention["id"], attention["rows"], attention["columns"]
    inputs = rows if attention["queries"] == attention["keys"] else rows + columns
    yield f"input/{name}.f32", 4 * inputs * attention["input"]
    energy = attention["width"] if attention["score"]["kind"] == "additive" else 0
    for head in range(attention["heads"]):
        numbers = (rows + columns) * (attention["width"] + attention["value"]) + energy
        yield f"vectors/{name}/{head}.f32", 4 * numbers
        for query in range(rows):
            yield f"row/{name}/{head}/{query}.f32", 4 * columns * (3 if attention["bias"] else 2)


# --- several, as one file --------------------------------------------------------------------------------------------


def list_recordings(recordings: Mapping[str, Recording]) -> list[Manifest]:
    """Say for each recording what it is: the content of `recordings.json`."""
    manifests = {id: recording.manifest() for id, recording in recordings.items()}
    return [
        {"id": id, **{key: manifest[key] for key in ("title", "model", "text")}} for id, manifest in manifests.items()
    ]


def encode_json(value: Any) -> bytes:
    """Write JSON as a browser reads it; a NaN is refused, since it is none."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


def pack_recordings(
    recordings: Mapping[str, Recording], layers: Collection[int] | None = None, without: Collection[str] = ()
) -> bytes:
    """Pack recordings by their ids into a container, all of them or the given `layers` of attention.

    Nor need it have what is large: the numbers of the "arithmetic", the "hidden" states, the scores of "next" tokens.
    """
    parts = {id: PartialRecording(recording, layers, without) for id, recording in recordings.items()}

    def entries() -> Iterator[tuple[str, bytes]]:
        yield LIST, encode_json(list_recordings(parts))
        for id, part in parts.items():
            yield f"recordings/{id}/manifest.json", encode_json(part.manifest())
            yield from ((f"recordings/{id}/{name}", part.blob(name)) for name in part.names())

    return pack_archive(entries())


def unpack_recordings(container: bytes) -> dict[str, StoredRecording]:
    """Open the recordings of a container, by their ids."""
    entries = unpack_archive(container)
    try:
        ids = [one["id"] for one in json.loads(entries[LIST])]
        found = {}
        for id in ids:
            begin = f"recordings/{id}/"
            blobs = {path.removeprefix(begin): data for path, data in entries.items() if path.startswith(begin)}
            found[id] = StoredRecording(json.loads(blobs.pop("manifest.json")), blobs)
    except (KeyError, TypeError, ValueError):
        raise InputError("this container holds no recordings; make it anew with `regard look --export`") from None
    return found
