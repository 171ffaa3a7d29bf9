"""The blobs of a recording: the only table of their names, of when they exist and of their sizes.

A blob's name is a pattern whose fields come from the manifest: `row/{attention}/{head}/{query}.f32`. The patterns are
part of every manifest, so the page has no table of its own. A recording that computes blobs has a method `make_<kind>`
for each kind, which takes the fields as arguments. The suffix is the type of the numbers, little-endian: f16, f32, u8,
or bits, the lowest of a byte first.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import ceil
from typing import Any, NamedTuple

from regard.viewer.manifest import AttentionShape, BlobKind, Manifest


class Blob(NamedTuple):
    """One blob: its kind, the values of its pattern's fields, and its size in bytes, or None if that is unknown."""

    kind: BlobKind
    fields: dict[str, str | int]
    size: int | None

    @property
    def name(self) -> str:
        """The pattern with its fields filled in."""
        return blob_name(self.kind, **self.fields)


class BlobSpec(NamedTuple):
    """One row of the table: a pattern, the size in bytes, and whether a recording has such blobs at all.

    `size` takes the manifest, and as keywords what the fields select in it. `exists` takes the manifest and the
    attention, if the pattern has one; other fields do not matter to it.
    """

    pattern: str
    size: Callable[..., int | None]
    exists: Callable[[Manifest, Any], bool] = lambda manifest, attention: True


# What each field may be: numbers, or names with what they select.
FIELDS: dict[str, Callable[[Manifest, Mapping[str, Any]], Mapping[str, Any] | Sequence[int]]] = {
    "step": lambda manifest, chosen: range(max(len(manifest["steps"]), 1) if manifest["attentions"] else 0),
    "attention": lambda manifest, chosen: {one["id"]: one for one in manifest["attentions"]},
    "head": lambda manifest, chosen: range(chosen["attention"]["heads"]),
    "query": lambda manifest, chosen: range(chosen["attention"]["rows"]),
    "mask": lambda manifest, chosen: {one["mask"]: one for one in manifest["attentions"] if one["mask"] is not None},
    "sequence": lambda manifest, chosen: {one["sequence"]: one for one in manifest["hidden"]},
    "layer": lambda manifest, chosen: range(chosen["sequence"]["layers"]),
    "token": lambda manifest, chosen: range(_next_tokens(manifest)),
    "table": lambda manifest, chosen: range(len(manifest["positions"])),
    "recurrence": lambda manifest, chosen: {one["id"]: one for one in manifest["recurrences"]},
    "signal": lambda manifest, chosen: range(len(chosen["recurrence"]["signals"])),
}


def _next_tokens(manifest: Manifest) -> int:
    return 0 if manifest["next"] is None else len(manifest["sequences"][manifest["next"]["sequence"]])


def weights_size(attention: AttentionShape) -> int:
    """Return the bytes of the weights of all heads of one attention."""
    return 2 * attention["heads"] * attention["rows"] * attention["columns"]


def thumbnails_size(attention: AttentionShape, thumbnail: int) -> int:
    """Return the bytes of the thumbnails of all heads of one attention."""
    return attention["heads"] * min(attention["rows"], thumbnail) * min(attention["columns"], thumbnail)


def _overview(manifest: Manifest, step: int) -> int:
    return sum(thumbnails_size(one, manifest["thumbnail"]) for one in manifest["attentions"])


def _input(manifest: Manifest, attention: AttentionShape) -> int:
    """Return the bytes of one vector per query, and of one per key if keys come from another sequence."""
    same = attention["queries"] == attention["keys"]
    return 4 * attention["input"] * (attention["rows"] if same else attention["rows"] + attention["columns"])


def _vectors(manifest: Manifest, attention: AttentionShape, head: int) -> int:
    """Return the bytes of a head's queries, keys, values and outputs; an additive score adds its energy vector."""
    energy = attention["width"] if attention["score"]["kind"] == "additive" else 0
    return 4 * ((attention["rows"] + attention["columns"]) * (attention["width"] + attention["value"]) + energy)


def _row(manifest: Manifest, attention: AttentionShape, head: int, query: int) -> int:
    """Return the bytes of scores, bias if there is one, and weights of one query."""
    return 4 * attention["columns"] * (3 if attention["bias"] else 2)


def _hidden(manifest: Manifest, sequence: Any, layer: int) -> int:
    return 4 * len(manifest["sequences"][sequence["sequence"]]) * int(sequence["width"])


def _next(manifest: Manifest, token: int) -> int:
    return 0 if manifest["next"] is None else 4 * manifest["next"]["vocabulary"]


def _position(manifest: Manifest, table: int) -> int:
    return 4 * manifest["positions"][table]["rows"] * manifest["positions"][table]["columns"]


def _similarity(manifest: Manifest, table: int) -> int:
    return 4 * manifest["positions"][table]["similarities"] * manifest["positions"][table]["size"] ** 2


def _has_arithmetic(manifest: Manifest, attention: AttentionShape) -> bool:
    return attention["arithmetic"]


BLOBS: dict[BlobKind, BlobSpec] = {
    "all_weights": BlobSpec(
        "attention/{step}.f16",
        lambda manifest, step: sum(map(weights_size, manifest["attentions"])),
        lambda manifest, _: manifest["whole"],
    ),
    "weights": BlobSpec(
        "attention/{step}/{attention}/{head}.f16",
        lambda manifest, step, attention, head: 2 * attention["rows"] * attention["columns"],
        lambda manifest, attention: not manifest["whole"] and attention["pooled"] is None,
    ),
    "pooled": BlobSpec(
        "pooled/{step}/{attention}/{head}.u8",
        lambda manifest, step, attention, head: attention["pooled"][0] * attention["pooled"][1],
        lambda manifest, attention: not manifest["whole"] and attention["pooled"] is not None,
    ),
    "overview": BlobSpec("overview/{step}.u8", _overview),
    "mask": BlobSpec("mask/{mask}.bits", lambda manifest, mask: ceil(mask["rows"] * mask["columns"] / 8)),
    "input": BlobSpec("input/{attention}.f32", _input, _has_arithmetic),
    "vectors": BlobSpec("vectors/{attention}/{head}.f32", _vectors, _has_arithmetic),
    "row": BlobSpec("row/{attention}/{head}/{query}.f32", _row, _has_arithmetic),
    "hidden": BlobSpec("hidden/{sequence}/{layer}.f32", _hidden),
    "next": BlobSpec("next/{token}.f32", _next),
    "lens": BlobSpec(
        "lens/{token}.json",
        lambda manifest, token: None,
        lambda manifest, _: manifest["lens"] and manifest["next"] is not None,
    ),
    "vocabulary": BlobSpec("vocabulary.json", lambda manifest: None, lambda manifest, _: manifest["next"] is not None),
    "position": BlobSpec("position/{table}.f32", _position),
    "similarity": BlobSpec("similarity/{table}.f32", _similarity),
    "image": BlobSpec("image.png", lambda manifest: None, lambda manifest, _: manifest["image"] is not None),
    "rollout": BlobSpec(
        "rollout.f16",
        lambda manifest: 2 * manifest["attentions"][0]["rows"] * manifest["attentions"][0]["columns"],
        lambda manifest, _: manifest["rollout"],
    ),
    "signal": BlobSpec(
        "signal/{recurrence}/{signal}.f16",
        lambda manifest, recurrence, signal: 2 * recurrence["rows"] * recurrence["width"],
    ),
}
PATTERNS: dict[BlobKind, str] = {kind: spec.pattern for kind, spec in BLOBS.items()}
_NAMES = {"attention": r"[a-z]+\.[1-9][0-9]*", "mask": "[a-z0-9-]+", "sequence": "[a-z]+"}
_NAMES["recurrence"] = _NAMES["mask"]
_NUMBER = "0|[1-9][0-9]{0,8}"
_REGEXES = {
    kind: re.compile(re.sub(r"\{(\w+)\}", lambda field: f"(?P<{field[1]}>{_NAMES.get(field[1], _NUMBER)})", pattern))
    for kind, pattern in PATTERNS.items()
}


def blob_name(kind: BlobKind, **fields: str | int) -> str:
    """Return the name of a blob."""
    return PATTERNS[kind].format(**fields)


def all_blobs(manifest: Manifest) -> Iterator[Blob]:
    """Yield every blob that a recording with this manifest has."""
    for kind in BLOBS:
        yield from _matching(manifest, kind, {})


def find_blob(manifest: Manifest, name: str) -> Blob:
    """Return the blob with this name; raise a KeyError if the recording does not have it."""
    for kind, regex in _REGEXES.items():
        if match := regex.fullmatch(name):
            for blob in _matching(manifest, kind, match.groupdict()):
                return blob
    raise KeyError(name)


def _matching(manifest: Manifest, kind: BlobKind, wanted: Mapping[str, str]) -> Iterator[Blob]:
    """Yield the blobs of one kind whose fields are as `wanted`; a field that is not wanted takes every value."""
    spec, fields = BLOBS[kind], list(_REGEXES[kind].groupindex)
    if "attention" not in fields and not spec.exists(manifest, None):
        return

    def choose(chosen: dict[str, str | int], selected: dict[str, Any]) -> Iterator[Blob]:
        if len(chosen) == len(fields):
            yield Blob(kind, chosen, spec.size(manifest, **selected))
            return
        field = fields[len(chosen)]
        choices = FIELDS[field](manifest, selected)
        values: Any = choices
        if field in wanted:
            value = wanted[field] if isinstance(choices, Mapping) else int(wanted[field])
            values = [value] if value in choices else []
        for value in values:
            what = choices[value] if isinstance(choices, Mapping) else value
            if field != "attention" or spec.exists(manifest, what):
                yield from choose({**chosen, field: value}, {**selected, field: what})

    yield from choose({}, {})
