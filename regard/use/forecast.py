"""Forecast a scene: the possible paths of every agent, with their probabilities."""

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from io import StringIO

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from regard.data.device import to_device
from regard.data.tracks import ObservedScene
from regard.decode.engine import in_use
from regard.models.trajectory import TrajectoryModel
from regard.use.bundle import Bundle

COLUMNS = ("frame", "agent", "future", "probability", "x", "y")


@dataclass(frozen=True, eq=False)
class SceneForecast:
    """The futures of all agents of a scene, the most likely first."""

    scene: ObservedScene
    paths: Float[np.ndarray, "A futures F 2"]
    probabilities: Float[np.ndarray, "A futures"]

    def rows(self) -> Iterator[tuple[int, str, int, float, float, float]]:
        """Yield frame, agent, number of the future (from 1), its probability, x and y."""
        for agent, paths, chances in zip(self.scene.agents, self.paths, self.probabilities, strict=True):
            for number, (path, chance) in enumerate(zip(paths, chances, strict=True), 1):
                for step, (x, y) in enumerate(path.tolist(), 1):
                    yield self.scene.frame + step * self.scene.step, agent, number, float(chance), x, y

    def to_csv(self) -> str:
        """Return the rows as a table with a header."""
        file = StringIO()
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        for frame, agent, number, chance, x, y in self.rows():
            writer.writerow((frame, agent, number, f"{chance:.4f}", f"{x:.4f}", f"{y:.4f}"))
        return file.getvalue()


def forecast_scene(bundle: Bundle, scene: ObservedScene) -> SceneForecast:
    """Forecast all agents of a scene."""
    bundle.check("forecast")
    with in_use(bundle.model):
        paths, logits = bundle.model(**scene_inputs(bundle, scene))
    bundle.check_finite(paths, logits)
    chances, order = logits[0].float().softmax(-1).sort(dim=-1, descending=True, stable=True)
    ordered = paths[0].float().take_along_dim(order[..., None, None], 1)
    return SceneForecast(scene, ordered.cpu().numpy(), chances.cpu().numpy())


def scene_inputs(bundle: Bundle, scene: ObservedScene) -> dict[str, Tensor]:
    """Return a scene as the inputs of a model."""
    dtype = next(bundle.model.parameters()).dtype
    tracks = to_device(np.nan_to_num(scene.positions, nan=0.0).reshape(1, -1, 2), bundle.device)
    present = to_device(scene.present.reshape(1, -1), bundle.device)
    precise = torch.promote_types(dtype, torch.float32)  # metres in half precision would be centimetres apart
    return {"tracks": tracks.to(precise), "present": present}


def scene_steps(bundle: Bundle) -> tuple[int, int]:
    """Return how many steps a model observes and predicts."""
    bundle.check("forecast")
    model = bundle.model
    assert isinstance(model, TrajectoryModel)
    return model.observed, model.head.predicted
