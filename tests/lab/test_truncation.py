"""The experiment `truncation`."""

import random
import re

import pytest

import regard
from regard.lab import run_experiment
from regard.lab.experiments.recall import recall_text
from regard.lab.experiments.truncation import EXPERIMENT, LONG


def test_a_chunk_is_the_window_of_training_and_every_distance_is_measured(tmp_path):
    result = run_experiment("truncation", scale="tiny", seeds=1, out=tmp_path)
    assert [(row["chunk"], row["distance"]) for row in result.rows] == [(2, 2**power) for power in range(6)]
    (trained,) = (tmp_path / "runs").iterdir()
    assert regard.open_run(trained).config.task.window == 2  # the gradient is cut there
    assert {row["distance"] for row in result.rows if row["trained"]} == {4}
    assert "chunks of 2: " in result.verdict.text


def test_lines_repeat_their_symbol_after_the_question_at_the_distance():
    lines = recall_text(50, [3, 5], random.Random(0)).splitlines()
    assert {line.index("?") for line in lines} == {3, 5}
    assert all(re.fullmatch(r"([a-z])[0-9]+\?\1", line) for line in lines)


def row(chunk: int, accuracy: float) -> dict[str, object]:
    return {"text": LONG, "chunk": chunk, "distance": 8, "trained": True, "accuracy": accuracy, "seed": 0}


@pytest.mark.parametrize(
    ("accuracies", "holds"),
    [({4: 0.1, 32: 1.0}, True), ({4: 1.0, 32: 1.0}, False), ({16: 1.0, 32: 1.0}, None), ({4: 0.1, 8: 0.1}, None)],
)
def test_the_claim_needs_chunks_on_both_sides_of_the_distance(accuracies: dict[int, float], holds: bool | None):
    verdict = EXPERIMENT.judge([row(chunk, accuracy) for chunk, accuracy in accuracies.items()])
    assert verdict.holds is holds
    assert ("only reading it was learned" in verdict.text) == (holds is False)
