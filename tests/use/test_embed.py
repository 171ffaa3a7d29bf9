"""One vector for each text or image."""

import numpy as np
import pytest
import torch

from regard.parts.mask import Causal
from regard.parts.state import Step

from ..tasks.corpora import sentences
from .made import image, loaded

LINES = sentences(9, seed=2)


def ids_of(ready, line: str) -> torch.Tensor:
    ids = ready.tokenizer.encode([line])[0].tolist()
    return torch.tensor([[*ready.bundle.template.before, *ids, *ready.bundle.template.after]])


WAYS = {
    "language": lambda model, ids: model.decode(ids, Step(Causal())).mean(1),
    "translation": lambda model, ids: model.encode(ids).mean(1),
    "masked": lambda model, ids: model.encode(ids).mean(1),
    "classification": lambda model, ids: model.head.pooled(model.encode(ids)),
}


@pytest.mark.parametrize("kind", WAYS)
def test_vectors_are_those_of_each_text_alone(kind):
    ready = loaded(kind)
    found = ready.embed(LINES)
    assert found.dtype == np.float32
    with torch.no_grad():
        wanted = np.concatenate([WAYS[kind](ready.model, ids_of(ready, line)).numpy() for line in LINES])
    np.testing.assert_allclose(found, wanted, atol=1e-5)
    assert len(np.unique(found.round(4), axis=0)) > 5


def test_a_model_with_a_vector_for_a_head_gives_it():
    ready = loaded(
        "masked", "word", None, "model.head.kind=vector", "model.head.pool.kind=mean", "model.head.transform=tanh"
    )
    with torch.no_grad():
        wanted = ready.model(ids_of(ready, "red dog")).numpy()
    np.testing.assert_allclose(ready.embed(["red dog"]), wanted, atol=1e-5)


def test_images(tmp_path):
    ready = loaded("vision")
    found = ready.embed([image(tmp_path / "a.png", 1), image(tmp_path / "b.png", 2)])
    assert found.shape == (2, 16)
    assert not np.allclose(found[0], found[1])
    with torch.no_grad():
        scores = ready.model.head.classify(torch.tensor(found, dtype=torch.float64)).softmax(-1)
    guesses = ready.classify([tmp_path / "a.png", tmp_path / "b.png"])
    assert [guess.probability for (guess,) in guesses] == pytest.approx(scores.max(-1).values.tolist(), abs=1e-4)


def test_a_blank_line_has_no_vector():
    found = loaded("language").embed(["", "red dog", " "])
    assert np.isnan(found[[0, 2]]).all()
    assert np.isfinite(found[1]).all()
    assert loaded("language").embed([]).shape == (0, 0)
    for pool in (None, "max"):
        alone = loaded("language").embed(["", " "], pool=pool)
        assert alone.shape == (2, found.shape[1])  # so that it can be joined to the vectors of other texts
        assert np.isnan(alone).all()
