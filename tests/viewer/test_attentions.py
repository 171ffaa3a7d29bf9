"""Attentions in the manifest, also with a score that the user registered."""

import torch

from regard.parts.score import Score
from regard.viewer.query import Query
from regard.viewer.record import record

from ..laws.cases import cases
from . import read_blobs as blobs


class Distance(Score):
    """e = -|q - k|^2, which the page has no formula for."""

    is_dot = False

    def __init__(self) -> None:
        super().__init__(scale=1.0)

    def forward(self, query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
        return -(torch.cdist(query, key) ** 2)


def test_a_score_of_the_user_is_shown_without_arithmetic():
    model = next(case for case in cases() if case.name == "gpt2").build(torch.float32)
    for layer in model.stack.layers:
        layer.mixer.score = Distance()
    recording = record(model, Query([3, 4, 5], tokens=0))
    assert {(one["score"]["kind"], one["arithmetic"]) for one in recording.manifest()["attentions"]} == {
        ("other", False)
    }
    weights = blobs.weights(recording)["self.1"]
    assert abs(weights.sum(-1) - 1).max() < 1e-2
