"""Fake recordings, models and pages, for tests of the code that shows them."""

from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import pytest

from regard.errors import InputError
from regard.viewer import html, sample
from regard.viewer.blobs import PATTERNS, all_blobs, blob_name
from regard.viewer.manifest import THUMBNAIL, Manifest
from regard.viewer.model_handle import ModelHandle
from regard.viewer.query import Query
from regard.viewer.recording import Recording, StoredRecording, pack_recordings

EVIL = "</script><img src=x onerror=alert(1)>"
INDEX = """<!doctype html>
<html lang="en">
  <head>
    <meta charset="utf-8">
    <link rel="icon" href="data:,">
    <link rel="stylesheet" href="./page.css">
  </head>
  <body>
    <div id="regard"></div>
    <script type="module" src="./page.js"></script>
  </body>
</html>
"""
SCRIPT = 'const text = "</script><head></body>", back = "\\\\1"; export default { render() {} };\n'
STYLE = '.regard::after { content: "</style>"; }\n'


def attention(id: str, queries: str, keys: str, rows: int, columns: int, **changes: Any) -> Manifest:
    """Describe one attention with two heads."""
    kind, layer = id.split(".")
    return {
        "id": id,
        "kind": kind,
        "layer": int(layer),
        "name": f"layers.{id}",
        "heads": 2,
        "groups": 1,
        "queries": queries,
        "keys": keys,
        "rows": rows,
        "columns": columns,
        "mask": None,
        "score": {"kind": "dot", "scale": 0.5, "cap": None},
        "position": None,
        "bias": False,
        "width": 4,
        "value": 4,
        "input": 8,
        "arithmetic": False,
        "pooled": None,
        "statistics": {},
        **changes,
    }


def manifest(text: str = "ein Hund", title: str = "a run", attentions: list[Manifest] | None = None) -> Manifest:
    """Return the manifest of a translator with three layers of cross-attention."""
    source, target = text.split(), ["<s>", "a", EVIL]
    if attentions is None:
        attentions = [attention(f"cross.{n}", "target", "source", 3, len(source)) for n in (1, 2, 3)]
    return {
        "format": 1,
        "title": title,
        "model": "a translator",
        "text": text,
        "written": None,
        "notes": [],
        "sequences": {
            name: [{"text": word, "id": id, "special": False, "word": id} for id, word in enumerate(words)]
            for name, words in (("source", source), ("target", target))
        },
        "noun": "word",
        "attentions": attentions,
        "whole": True,
        "steps": [],
        "begin": {"attention": "cross.2", "head": 1, "query": 1, "key": 0} if attentions else None,
        "hidden": [],
        "next": None,
        "lens": False,
        "answers": [],
        "contacts": [],
        "positions": [],
        "image": None,
        "rollout": False,
        "recurrences": [],
        "thumbnail": THUMBNAIL,
        "places": [],
        "blobs": PATTERNS,
    }


def recording(said: Manifest | None = None, seed: int = 0) -> StoredRecording:
    """Make a recording for a manifest: random weights, whose rows sum to one, and random bytes for everything else."""
    said = manifest() if said is None else said
    chance = np.random.default_rng(seed)
    blobs = {blob.name: chance.bytes(blob.size or 8) for blob in all_blobs(said)}
    for step in range(max(len(said["steps"]), 1)):
        if said["whole"] and said["attentions"]:
            blobs[blob_name("all_weights", step=step)] = b"".join(
                weights(one, chance).tobytes() for one in said["attentions"]
            )
    return StoredRecording(said, blobs)


def weights(one: Manifest, chance: np.random.Generator) -> np.ndarray:
    """Draw the weights of all heads of an attention."""
    found = chance.random((one["heads"], one["rows"], one["columns"]))
    return (found / found.sum(-1, keepdims=True)).astype("<f2")


class Model(ModelHandle):
    """A model that is loaded at once, and makes random recordings."""

    def __init__(self, folder: Path, name: str, error: Exception | None = None, trained: bool = False) -> None:
        super().__init__(folder, name)
        self.trouble, self.trained, self.queries = error, trained, list[Query]()

    def load(self) -> None:
        if self.trouble is not None:
            raise self.trouble
        self.what, self.verbs, self.loaded = "a translator", ("translate", "embed"), object()

    def record(self, question: Query) -> Recording:
        assert self.lock.locked()
        self.queries.append(question)
        if not question.text and question.image is None:
            raise InputError("there is nothing to read; give a text")
        return recording(manifest(question.text or "an image", self.name))

    def training(self) -> Recording | None:
        return recording(manifest("im Training", self.name) | {"steps": [0, 10]}) if self.trained else None


class Slow(Recording):
    """A recording whose blobs signal when they begin, and wait until they may end."""

    def __init__(self, begun: Lock, may_end: Lock) -> None:
        self.begun, self.may_end = begun, may_end

    def manifest(self) -> Manifest:
        return manifest()

    def blob(self, name: str) -> bytes:
        self.begun.release()
        self.may_end.acquire()
        return b"slow"


def put_page(folder: Path, patch: pytest.MonkeyPatch) -> Path:
    """Replace the page by one whose script and style contain tags, which could break a single file."""
    folder.mkdir()
    for name, text in ((html.INDEX, INDEX), (html.SCRIPT, SCRIPT), (html.STYLE, STYLE)):
        (folder / name).write_text(text, encoding="utf-8")
    patch.setattr(html, "FOLDER", folder)
    return folder


def put_sample(folder: Path, patch: pytest.MonkeyPatch) -> dict[str, Recording]:
    """Replace the bundled sample by two recordings in two files."""
    folder.mkdir()
    first, second = recording(manifest("ein Hund", "first")), recording(manifest("die Katze schläft", "second"), 1)
    (folder / "1.regard").write_bytes(pack_recordings({"one": first}))
    (folder / "2.regard").write_bytes(pack_recordings({"two": second}))
    patch.setattr(sample, "FOLDER", folder)
    patch.setattr(sample, "bundled_recordings", sample.bundled_recordings.__wrapped__)  # without its cache
    return {"one": first, "two": second}
