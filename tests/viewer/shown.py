"""What the browser shows: tiny models of every kind, recordings of them, and what the models themselves compute."""

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Event

import numpy as np
import torch
from torch import Tensor

import regard
from regard.decode.engine import eager
from regard.errors import RegardError
from regard.models.model import Model
from regard.parts.watch import Tape
from regard.use.bundle import Bundle
from regard.viewer.manifest import Manifest
from regard.viewer.model_handle import ModelHandle, load_in_background
from regard.viewer.query import Query
from regard.viewer.record import record
from regard.viewer.recording import Recording, StoredRecording
from regard.viewer.recording_store import RecordingStore
from regard.viewer.server import make_app

from ..use.made import loaded
from .fake import attention, manifest, recording
from .serving import Gate, serving

IMAGE = np.random.default_rng(0).integers(0, 255, (8, 12, 3), dtype=np.uint8)
ASKED: dict[str, dict[str, object]] = {
    "seer": {"image": IMAGE},
    "reader": {"text": "one red [MASK] runs"},
    "biased": {"text": "one red dog runs two blue cats", "tokens": 2},
    "recurrent": {"text": "one red dog", "tokens": 3},
    "aligner": {"text": "one red dog runs", "target": "runs dog red"},
    "writer": {"text": "one red dog runs one blue dog", "tokens": 5},
    "translator": {"text": "two sleepy dogs, one cat", "target": "one cat sleeps"},
}


def models() -> dict[str, Bundle]:
    """Return small models of every kind, in float32, with random weights."""
    alibi = ("model.embed.position=none", "model.layers.block.mixer.position.kind=alibi")
    made = {
        "seer": loaded("vision"),
        "reader": loaded("masked"),
        "biased": loaded("language", "word", "gpt2", *alibi),
        "recurrent": loaded("language", "word", "lstm"),
        "aligner": loaded("translation", "word", "rnn-attention"),
        "writer": loaded("language", "word", "gpt2"),
        "translator": loaded("translation", "bpe", "transformer-base"),
    }
    return {name: in_float32(name, one.bundle) for name, one in made.items()}


def in_float32(name: str, bundle: Bundle) -> Bundle:
    model = copy.deepcopy(bundle.model).float()
    return replace(bundle, name=name, model=model, engine=None if bundle.engine is None else eager(model))


class Known(ModelHandle):
    """A model in memory, which is "loaded" as soon as the test allows it."""

    def __init__(self, bundle: Bundle) -> None:
        super().__init__(Path("/runs") / bundle.name, bundle.name)
        self.bundle, self.may_load, self.trouble = bundle, Event(), ""
        self.may_load.set()

    def load(self) -> None:
        self.may_load.wait()
        if self.trouble:
            raise RegardError(self.trouble)
        self.what, self.verbs = self.bundle.model.description, self.bundle.model.verbs
        self.reads_images = self.bundle.model.reads == "image"
        self.loaded = self.bundle

    def training(self) -> None:
        return None


@dataclass(frozen=True)
class Shown:
    """A running viewer: its address, and its recordings by name."""

    address: str
    store: RecordingStore
    ids: dict[str, str]
    models: dict[str, Bundle]
    gate: Gate

    def recording(self, name: str) -> Recording:
        return self.store.find(self.ids[name]).recording

    def manifest(self, name: str) -> Manifest:
        return self.recording(name).manifest()

    def attention(self, name: str, id: str) -> Manifest:
        return next(one for one in self.manifest(name)["attentions"] if one["id"] == id)

    def words(self, name: str, sequence: str) -> list[str]:
        """The tokens of a sequence, as the page writes them."""
        return [readable(token["text"]) for token in self.manifest(name)["sequences"][sequence]]

    def names(self, name: str, sequence: str) -> list[str]:
        """The same tokens in sentences and tables; those that occur more than once have their position, from 1."""
        words = self.words(name, sequence)
        return [
            f"{word}{''.join(chr(0x2080 + int(digit)) for digit in str(place))}" if words.count(word) > 1 else word
            for place, word in enumerate(words, 1)
        ]

    def looked(self, name: str) -> dict[str, Tensor]:
        """Return the weights (H T S) of every attention of the model itself, for these tokens."""
        tape, _ = self.watched(name)
        return {one["id"]: tape.weights(one["name"])[0] for one in self.manifest(name)["attentions"]}

    def watched(self, name: str) -> tuple[Tape, Tensor]:
        """Run the model under observation; return the tape and the output."""
        model = self.models[name].model
        with torch.no_grad(), regard.watch(model) as tape:
            output = model(**self.inputs(name))
        return tape, output

    def inputs(self, name: str) -> dict[str, Tensor]:
        if name == "seer":
            pixels = torch.from_numpy(IMAGE).permute(2, 0, 1)[None] / 255
            return {"images": (pixels - 0.5) / 0.2}
        sequences = self.manifest(name)["sequences"].items()
        rows = {key: [token["id"] for token in tokens] for key, tokens in sequences}
        return {key: torch.tensor([row]) for key, row in rows.items() if key != "written"}


def readable(text: str) -> str:
    """A token as the page writes it."""
    return text.strip(" ") or "␣"


@contextmanager
def show() -> Iterator[Shown]:
    """Run the viewer with all models ready, and a recording of each."""
    made, store = models(), RecordingStore({})
    handles = {name: Known(bundle) for name, bundle in reversed(made.items())}
    load_in_background(list(handles.values()), store, None).join()
    recordings = {name: record(bundle, Query(**ASKED[name])) for name, bundle in made.items()}
    ids = {name: store.put(one, handles[name].lock, keep=True) for name, one in recordings.items()}
    gate = Gate(make_app(store, list(handles.values()), None))
    with serving(gate) as port:
        yield Shown(f"http://127.0.0.1:{port}", store, ids, made, gate)


def random_recording(
    text: str = "ein Hund", title: str = "a run", steps: Sequence[int] = (), **changes: object
) -> StoredRecording:
    """Return a random recording with everything that the page needs; the last target word is `fake.EVIL`."""
    numbers = {name: [[1.0, 2.0]] * max(len(steps), 1) for name in ("entropy", "distance", "previous", "first")}
    one = attention("cross.1", "target", "source", 3, len(text.split()), statistics=numbers)
    return recording(manifest(text, title, [one]) | {"steps": list(steps), "begin": None, **changes})


def hidden(model: Model, tokens: Tensor) -> list[Tensor]:
    """Return the hidden states (T D) of a language model after its embedding and after each layer."""
    found: list[Tensor] = []
    parts = (model.embed, *model.stack.layers)
    hooks = [part.register_forward_hook(lambda part, given, gave: found.append(gave[0].double())) for part in parts]
    with torch.no_grad():
        model(tokens)
    for hook in hooks:
        hook.remove()
    return found


def statistics(weights: torch.Tensor) -> dict[str, np.ndarray]:
    """Compute the statistics of each head (H T S), in plain NumPy."""
    w = weights.double().numpy()
    bits = np.where(w > 0, -w * np.log2(np.where(w > 0, w, 1)), 0).sum(-1).mean(-1)
    away = np.abs(np.arange(w.shape[1])[:, None] - np.arange(w.shape[2]))
    before = [head.diagonal(-1).mean() for head in w]
    return {
        "Entropy": bits,
        "Distance": (w * away).sum(-1).mean(-1),
        "Previous": np.array(before),
        "First": w[..., 0].mean(-1),
    }
