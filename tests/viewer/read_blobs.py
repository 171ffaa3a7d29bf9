"""Blobs read back as the page reads them: by the manifest alone, in NumPy and float64."""

from typing import Any

import numpy as np

from regard.viewer.recording import Manifest, Recording


def attention(recording: Recording, id: str) -> Manifest:
    return next(one for one in recording.manifest()["attentions"] if one["id"] == id)


def heads(recording: Recording) -> list[tuple[Manifest, int]]:
    return [(one, head) for one in recording.manifest()["attentions"] for head in range(one["heads"])]


def numbers(recording: Recording, name: str, kind: str = "<f4") -> np.ndarray:
    return np.frombuffer(recording.blob(name), kind).astype(np.float64)


def weights(recording: Recording, step: int = 0) -> dict[str, np.ndarray]:
    """The weights of every attention: H T S."""
    manifest = recording.manifest()
    assert manifest["whole"]
    every, offset, found = numbers(recording, f"attention/{step}.f16", "<f2"), 0, {}
    for one in manifest["attentions"]:
        shape = one["heads"], one["rows"], one["columns"]
        found[one["id"]] = every[offset : offset + np.prod(shape)].reshape(shape)
        offset += int(np.prod(shape))
    assert offset == len(every)
    return found


def vectors(recording: Recording, one: Manifest, head: int) -> dict[str, np.ndarray]:
    rows, columns, width, value = (one[key] for key in ("rows", "columns", "width", "value"))
    shapes = {"query": (rows, width), "key": (columns, width), "value": (columns, value), "mixed": (rows, value)}
    shapes |= {"energy": (width,)} if one["score"]["kind"] == "additive" else {}
    every, offset, found = numbers(recording, f"vectors/{one['id']}/{head}.f32"), 0, {}
    for name, shape in shapes.items():
        found[name] = every[offset : offset + int(np.prod(shape))].reshape(shape)
        offset += int(np.prod(shape))
    assert offset == len(every)
    return found


def rows(recording: Recording, one: Manifest, head: int) -> dict[str, np.ndarray]:
    """Scores, bias and weights of all queries: T S each."""
    names = ("scores", "bias", "weights") if one["bias"] else ("scores", "weights")
    found = [
        numbers(recording, f"row/{one['id']}/{head}/{query}.f32").reshape(len(names), one["columns"])
        for query in range(one["rows"])
    ]
    return dict(zip(names, np.stack(found, 1), strict=True))


def mask(recording: Recording, one: Manifest) -> np.ndarray:
    shape = one["rows"], one["columns"]
    if one["mask"] is None:
        return np.ones(shape, bool)
    bits = np.unpackbits(np.frombuffer(recording.blob(f"mask/{one['mask']}.bits"), np.uint8), bitorder="little")
    return bits[: shape[0] * shape[1]].reshape(shape).astype(bool)


def hidden(recording: Recording, sequence: str) -> list[np.ndarray]:
    (said,) = [one for one in recording.manifest()["hidden"] if one["sequence"] == sequence]
    return [
        numbers(recording, f"hidden/{sequence}/{layer}.f32").reshape(-1, said["width"])
        for layer in range(said["layers"])
    ]


def inputs(recording: Recording, one: Manifest) -> tuple[np.ndarray, np.ndarray]:
    """What queries and keys were made of."""
    every = numbers(recording, f"input/{one['id']}.f32").reshape(-1, one["input"])
    return (every, every) if one["queries"] == one["keys"] else (every[: one["rows"]], every[one["rows"] :])


def following(recording: Recording) -> np.ndarray:
    """The scores of what follows each token: T V."""
    said: Any = recording.manifest()["next"]
    count = len(recording.manifest()["sequences"][said["sequence"]])
    return np.stack([numbers(recording, f"next/{row}.f32") for row in range(count)])
