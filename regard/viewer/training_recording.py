"""The training snapshots of a run as a recording: how attention to one row of validation data developed.

The weights are those of the snapshots. Everything else (masks, which sequence is the query) follows from the run's
recipe, so no trained weights are needed, and a run can be viewed while it is still training.
"""

from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from regard.data.tokenizer import Tokenizer
from regard.errors import RegardError
from regard.models.init import allocate
from regard.models.model import Model
from regard.models.recipe import build_empty
from regard.runs.layout import PROBE
from regard.training.probe import Probe, read_probe
from regard.training.run import open_run
from regard.viewer.attentions import describe_attentions, mask_bits
from regard.viewer.blobs import PATTERNS
from regard.viewer.capture import Capture, capture
from regard.viewer.head_statistics import (
    HeadStatistics,
    choose_first_cell,
    choose_first_head,
    measure_heads,
    with_statistics,
)
from regard.viewer.live_recording import f16
from regard.viewer.manifest import FORMAT, THUMBNAIL, AttentionShape, Cell, Manifest, Token
from regard.viewer.patched_image import PatchedImage, cut_into_patches
from regard.viewer.recording import ComputedRecording
from regard.viewer.tokens import describe_tokens, step_tokens


class TrainingRecording(ComputedRecording):
    """The snapshots of a run as one recording with several steps."""

    def __init__(self, folder: Path) -> None:
        run = open_run(folder)
        self.folder, self.probe = folder, read_probe(folder)
        self.model: Model = allocate(build_empty(run.model_config), "cpu")
        self.description = run.config.task.description or self.model.description
        self.tokenizer: Tokenizer | None = run.tokenizer()
        self.picture = _picture(self.model, self.probe, run.config.task)
        self.sequences = self._sequences()
        self.captured: Capture = capture(self.model, self.probe.inputs)
        self.attentions = self._attentions()

    def _sequences(self) -> dict[str, list[Token]]:
        if self.picture is not None:
            return {"patches": self.picture.tokens()}
        if self.model.reads == "tracks":
            present = self.probe.inputs["present"].reshape(-1, self.model.config.observed).tolist()
            return {"steps": step_tokens([str(number) for number in range(1, len(present) + 1)], present)}
        ids = {name: tensor[0].tolist() for name, tensor in self.probe.inputs.items()}
        if "target" in ids and self.tokenizer is not None:
            ids["written"] = [*ids["target"][1:], self.tokenizer.end]
        return {name: describe_tokens(self.tokenizer, row, self.model.noun == "word") for name, row in ids.items()}

    def _attentions(self) -> list[AttentionShape]:
        """Describe the attentions in the snapshots, which hold only some layers or heads of a large model."""
        kept = self.probe.weights(self.probe.steps[-1])
        every = describe_attentions(self.model, self.captured)
        shapes = {one["name"]: (one["rows"], one["columns"]) for one in every}
        for name, weights in kept.items():
            if weights.ndim != 3 or tuple(weights.shape[1:]) != shapes.get(name):
                trouble = f"the snapshot of {name} ({' x '.join(map(str, weights.shape))}) does not belong to this run"
                raise RegardError(f"{self.folder / PROBE}: {trouble}; remove the folder {PROBE}")
        return [
            {**one, "arithmetic": False, "pooled": None, "heads": len(kept[one["name"]])}
            for one in every
            if one["name"] in kept
        ]

    def manifest(self) -> Manifest:
        """Return what was recorded."""
        return self._manifest

    @cached_property
    def _manifest(self) -> Manifest:
        return {
            "format": FORMAT,
            "title": f"{self.folder.resolve().name}, training",
            "model": self.description,
            "text": self._text(),
            "written": None,
            "notes": ["One row of the validation data, recorded at several steps of training."],
            "sequences": self.sequences,
            "noun": self.model.noun,
            "attentions": with_statistics(self.attentions, self._statistics),
            "whole": True,
            "steps": list(self.probe.steps),
            "begin": self._begin(),
            "hidden": [],
            "next": None,
            "lens": False,
            "answers": [],
            "contacts": [],
            "positions": [],
            "image": None if self.picture is None else self.picture.info(),
            "rollout": False,
            "recurrences": [],
            "thumbnail": THUMBNAIL,
            "places": [],
            "blobs": PATTERNS,
        }

    def _text(self) -> str:
        row = next(iter(self.probe.inputs.values()))[0]
        if self.picture is not None:
            return "an image"
        if self.model.reads == "tracks":
            return "a scene"
        return " ".join(map(str, row.tolist())) if self.tokenizer is None else self.tokenizer.decode([row.tolist()])[0]

    @cached_property
    def _statistics(self) -> list[list[HeadStatistics]]:
        """Compute the statistics of all heads at every step."""
        found = []
        for step in range(len(self.probe.steps)):
            weights = self._weights(step)
            found.append([measure_heads(weights[one["name"]], *self._tokens(one)) for one in self.attentions])
        return found

    def _weights(self, step: int) -> dict[str, Tensor]:
        kept = self.probe.weights(self.probe.steps[step])
        return {one["name"]: kept[one["name"]].to(torch.float32) for one in self.attentions}

    def _tokens(self, one: AttentionShape) -> tuple[list[Token], list[Token]]:
        return self.sequences[one["queries"]], self.sequences[one["keys"]]

    def _begin(self) -> Cell | None:
        chosen = choose_first_head(self.attentions, self._statistics[-1])
        if chosen is None:
            return None
        one, head = self.attentions[chosen[0]], chosen[1]
        weights = self._weights(-1)[one["name"]][head]
        query, key = choose_first_cell(weights, *self._tokens(one), same=one["queries"] == one["keys"])
        return {"attention": one["id"], "head": head, "query": query, "key": key}

    # --- blobs -------------------------------------------------------------------------------------------------------

    def make_all_weights(self, step: int) -> bytes:
        """Encode the weights of every head of every attention at one step."""
        weights = self._weights(step)
        return b"".join(f16(weights[one["name"]]) for one in self.attentions)

    def make_overview(self, step: int) -> bytes:
        """Encode every head at one step as a thumbnail."""
        return b"".join(one.thumbnails.tobytes() for one in self._statistics[step])

    def make_mask(self, mask: str) -> bytes:
        """Encode which keys each query may look at."""
        return mask_bits(self.captured.traces[next(one["name"] for one in self.attentions if one["mask"] == mask)])

    def make_image(self) -> bytes:
        """Encode the image as the model sees it."""
        assert self.picture is not None
        return self.picture.png()


def record_training(folder: str | Path) -> TrainingRecording | None:
    """Return the training snapshots of a run as a recording; None if it has none."""
    folder = Path(folder)
    has_snapshots = (folder / PROBE).is_dir() and any((folder / PROBE).glob("step-*.safetensors"))
    return TrainingRecording(folder) if has_snapshots else None


def _picture(model: Model, probe: Probe, task: Any) -> PatchedImage | None:
    """Restore the image from its normalised pixels."""
    if model.image is None:
        return None
    image = next(iter(probe.inputs.values()))[0].float().permute(1, 2, 0).numpy()
    pixels = np.rint((image * np.array(task.std) + np.array(task.mean)) * 255).clip(0, 255).astype(np.uint8)
    return cut_into_patches(model.image, pixels)
