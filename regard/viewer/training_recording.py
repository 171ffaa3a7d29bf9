"""Training: how a model came to look at one row of its validation data, from the snapshots that its run has left.

The weights are those of the snapshots. All else that is said of them (who may look at whom, what is a query) follows
from the run's recipe, so it needs no trained model, and can be looked at while the run goes on.
"""

import re
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from regard.data.tokenizer import Tokenizer
from regard.errors import RegardError
from regard.models.model import Model
from regard.models.recipe import build_empty
from regard.models.vision import VisionTransformer
from regard.runs.layout import PROBE
from regard.training.probe import Probe, read_probe
from regard.training.run import open_run
from regard.use.ready import abilities
from regard.viewer.attentions import describe_attentions, mask_bits
from regard.viewer.capture import Capture, capture
from regard.viewer.head_statistics import HeadStatistics, choose_first_cell, choose_first_head, measure_heads
from regard.viewer.live_recording import NUMBER, f16
from regard.viewer.patched_image import PatchedImage, cut_into_patches
from regard.viewer.recording import Manifest, Recording
from regard.viewer.tokens import Token, describe_tokens


class TrainingRecording(Recording):
    """The snapshots of a run as one recording of several steps."""

    def __init__(self, folder: Path) -> None:
        run = open_run(folder)
        self.folder, self.probe = folder, read_probe(folder)
        self.model: Model = build_empty(run.config.model).to_empty(device="cpu")
        self.tokenizer: Tokenizer | None = run.tokenizer()
        self.picture = _picture(self.model, self.probe, run.config.task)
        self.sequences = self._sequences()
        self.captured: Capture = capture(self.model, self.probe.inputs)
        self.attentions = self._attentions()

    def _sequences(self) -> dict[str, list[Token]]:
        if self.picture is not None:
            return {"patches": self.picture.tokens()}
        ids = {name: tensor[0].tolist() for name, tensor in self.probe.inputs.items()}
        if "target" in ids and self.tokenizer is not None:
            ids["written"] = [*ids["target"][1:], self.tokenizer.end]
        return {name: describe_tokens(self.tokenizer, row) for name, row in ids.items()}

    def _attentions(self) -> list[Manifest]:
        """Describe what was kept: of large models some layers, or some heads."""
        kept = self.probe.weights(self.probe.steps[-1])
        every = describe_attentions(self.model, self.captured)
        shapes = {one["name"]: (one["rows"], one["columns"]) for one in every}
        for name, weights in kept.items():
            if weights.ndim != 3 or tuple(weights.shape[1:]) != shapes.get(name):
                trouble = f"the snapshot of {name} ({' x '.join(map(str, weights.shape))}) does not belong to this run"
                raise RegardError(f"{self.folder / PROBE}: {trouble}; remove the folder {PROBE}")
        fewer = {"arithmetic": False, "pooled": None}
        return [one | fewer | {"heads": len(kept[one["name"]])} for one in every if one["name"] in kept]

    def manifest(self) -> Manifest:
        """Say what was recorded."""
        return self._manifest

    @cached_property
    def _manifest(self) -> Manifest:
        surveys = self._surveys
        said = [[one.statistics() for one in step] for step in surveys]
        statistics = [
            {name: [step[place][name] for step in said] for name in said[0][place]}
            for place in range(len(self.attentions))
        ]
        attentions = zip(self.attentions, statistics, strict=True)
        return {
            "format": 1,
            "title": f"{self.folder.resolve().name}, training",
            "model": abilities(self.model)[0],
            "text": self._text(),
            "written": None,
            "notes": ["One row of the validation data, as the model looked at it at some steps of its training."],
            "sequences": self.sequences,
            "attentions": [one | {"statistics": numbers} for one, numbers in attentions],
            "whole": True,
            "steps": list(self.probe.steps),
            "begin": self._begin(surveys[-1]),
            "hidden": [],
            "next": None,
            "answers": [],
            "positions": [],
            "image": None if self.picture is None else self.picture.manifest(),
            "rollout": False,
        }

    def _text(self) -> str:
        row = next(iter(self.probe.inputs.values()))[0]
        if self.picture is not None:
            return "an image"
        return " ".join(map(str, row.tolist())) if self.tokenizer is None else self.tokenizer.decode([row.tolist()])[0]

    @cached_property
    def _surveys(self) -> list[list[HeadStatistics]]:
        """Look at all heads at all steps."""
        found = []
        for step in range(len(self.probe.steps)):
            weights = self._weights(step)
            found.append([measure_heads(weights[one["name"]], *self._tokens(one)) for one in self.attentions])
        return found

    def _weights(self, step: int) -> dict[str, Tensor]:
        kept = self.probe.weights(self.probe.steps[step])
        return {one["name"]: kept[one["name"]].to(torch.float32) for one in self.attentions}

    def _tokens(self, one: Manifest) -> tuple[list[Token], list[Token]]:
        return self.sequences[one["queries"]], self.sequences[one["keys"]]

    def _begin(self, surveys: list[HeadStatistics]) -> Manifest | None:
        chosen = choose_first_head(self.attentions, surveys)
        if chosen is None:
            return None
        one, head = self.attentions[chosen[0]], chosen[1]
        weights = self._weights(-1)[one["name"]][head]
        query, key = choose_first_cell(weights, *self._tokens(one), same=one["queries"] == one["keys"])
        return {"attention": one["id"], "head": head, "query": query, "key": key}

    def blob(self, name: str) -> bytes:
        """Read the weights of a step, or work out what is made of them."""
        if found := re.fullmatch(rf"(attention|overview)/{NUMBER}\.(?:f16|u8)", name):
            kind, step = found[1], int(found[2])
            if step < len(self.probe.steps) and name.endswith("f16" if kind == "attention" else "u8"):
                if kind == "overview":
                    return b"".join(one.thumbnails.tobytes() for one in self._surveys[step])
                weights = self._weights(step)
                return b"".join(f16(weights[one["name"]]) for one in self.attentions)
        masked = {f"mask/{one['mask']}.bits": one["name"] for one in self.attentions if one["mask"] is not None}
        if name in masked:
            return mask_bits(self.captured.looked[masked[name]])
        if name == "image.png" and self.picture is not None:
            return self.picture.png()
        raise KeyError(name)


def record_training(folder: str | Path) -> TrainingRecording | None:
    """Open what a run has recorded of its training; None if there is nothing."""
    folder = Path(folder)
    there = (folder / PROBE).is_dir() and any((folder / PROBE).glob("step-*.safetensors"))
    return TrainingRecording(folder) if there else None


def _picture(model: Model, probe: Probe, task: Any) -> PatchedImage | None:
    """Give back the image that was normalised."""
    if not isinstance(model, VisionTransformer):
        return None
    image = next(iter(probe.inputs.values()))[0].float().permute(1, 2, 0).numpy()
    pixels = np.rint((image * np.array(task.std) + np.array(task.mean)) * 255).clip(0, 255).astype(np.uint8)
    return cut_into_patches(model, pixels)
