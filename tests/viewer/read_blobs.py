"""Blobs read as the page reads them: by the manifest alone, in NumPy and float64."""

from typing import Any

import numpy as np

from regard.viewer.manifest import AttentionInfo, BlobKind
from regard.viewer.recording import Recording


def attention(recording: Recording, id: str) -> AttentionInfo:
    return next(one for one in recording.manifest()["attentions"] if one["id"] == id)


def heads(recording: Recording) -> list[tuple[AttentionInfo, int]]:
    return [(one, head) for one in recording.manifest()["attentions"] for head in range(one["heads"])]


def numbers(recording: Recording, kind: BlobKind, **fields: str | int) -> np.ndarray:
    """The numbers of a blob, in the type that the suffix of its name says."""
    name = recording.manifest()["blobs"][kind].format(**fields)
    types = {"f32": "<f4", "f16": "<f2", "u8": "u1", "bits": "u1"}
    return np.frombuffer(recording.blob(name), types[name.rpartition(".")[2]]).astype(np.float64)


def weights(recording: Recording, step: int = 0) -> dict[str, np.ndarray]:
    """The weights of every attention: H T S."""
    manifest = recording.manifest()
    assert manifest["whole"]
    every, offset, found = numbers(recording, "all_weights", step=step), 0, {}
    for one in manifest["attentions"]:
        shape = one["heads"], one["rows"], one["columns"]
        found[one["id"]] = every[offset : offset + np.prod(shape)].reshape(shape)
        offset += int(np.prod(shape))
    assert offset == len(every)
    return found


def vectors(recording: Recording, one: AttentionInfo, head: int) -> dict[str, np.ndarray]:
    rows, columns, width, value = (one[key] for key in ("rows", "columns", "width", "value"))
    shapes = {"query": (rows, width), "key": (columns, width), "value": (columns, value), "mixed": (rows, value)}
    shapes |= {"energy": (width,)} if one["score"]["kind"] == "additive" else {}
    every, offset, found = numbers(recording, "vectors", attention=one["id"], head=head), 0, {}
    for name, shape in shapes.items():
        found[name] = every[offset : offset + int(np.prod(shape))].reshape(shape)
        offset += int(np.prod(shape))
    assert offset == len(every)
    return found


def rows(recording: Recording, one: AttentionInfo, head: int) -> dict[str, np.ndarray]:
    """Scores, bias and weights of all queries: T S each."""
    names = ("scores", "bias", "weights") if one["bias"] else ("scores", "weights")
    found = [
        numbers(recording, "row", attention=one["id"], head=head, query=query).reshape(len(names), one["columns"])
        for query in range(one["rows"])
    ]
    return dict(zip(names, np.stack(found, 1), strict=True))


def mask(recording: Recording, one: AttentionInfo) -> np.ndarray:
    shape = one["rows"], one["columns"]
    if one["mask"] is None:
        return np.ones(shape, bool)
    bits = np.unpackbits(numbers(recording, "mask", mask=one["mask"]).astype(np.uint8), bitorder="little")
    return bits[: shape[0] * shape[1]].reshape(shape).astype(bool)


def hidden(recording: Recording, sequence: str) -> list[np.ndarray]:
    (said,) = [one for one in recording.manifest()["hidden"] if one["sequence"] == sequence]
    return [
        numbers(recording, "hidden", sequence=sequence, layer=layer).reshape(-1, said["width"])
        for layer in range(said["layers"])
    ]


def inputs(recording: Recording, one: AttentionInfo) -> tuple[np.ndarray, np.ndarray]:
    """What queries and keys are computed from."""
    every = numbers(recording, "input", attention=one["id"]).reshape(-1, one["input"])
    return (every, every) if one["queries"] == one["keys"] else (every[: one["rows"]], every[one["rows"] :])


def following(recording: Recording) -> np.ndarray:
    """The scores of what follows each token: T V."""
    said: Any = recording.manifest()["next"]
    count = len(recording.manifest()["sequences"][said["sequence"]])
    return np.stack([numbers(recording, "next", token=row) for row in range(count)])
