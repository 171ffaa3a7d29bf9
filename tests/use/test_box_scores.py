"""The models that come with the package: their scores are those of their weights, and their sizes are small."""

import zlib

import pytest

import regard
from bench.models import PAGE, models_page, readme
from regard.cli.models import format_score
from regard.use.box import IMAGE_DEFAULTS, README, TEXT_DEFAULTS, box_model, box_models, box_names

LARGEST = 35_000_000  # bytes of all models in the wheel, which is compressed
LIMITS = {"en-fr": 15_000_000, "fashion": 6_000_000}
GOALS = {"shakespeare": ("loss", 1.45), "fashion": ("accuracy", 0.93)}
# what rounding on another processor may change in a score of a few hundred rows
TOLERANCE = {"bleu": 1.0, "accuracy": 0.02, "loss": 0.005}


def test_every_verb_has_a_model() -> None:
    assert {*TEXT_DEFAULTS.values(), *IMAGE_DEFAULTS.values()} <= set(box_names())


def test_they_are_small() -> None:
    sizes = {model.name: model.size for model in box_models()}
    assert all(sizes[name] <= most for name, most in LIMITS.items())
    files = [path for model in box_models() for path in model.folder.iterdir()]
    assert sum(len(zlib.compress(path.read_bytes(), 6)) for path in files) <= LARGEST


def test_they_reach_their_goals() -> None:
    for name, (metric, goal) in GOALS.items():
        score = box_model(name).card.score
        assert score.metric == metric
        assert score.value <= goal if metric == "loss" else score.value > goal


@pytest.mark.parametrize("name", box_names())
def test_the_score_is_that_of_the_weights(name: str) -> None:
    check = box_model(name).card.check
    found = regard.load(name, "cpu").evaluate()[check.metric]
    assert found == pytest.approx(check.value, abs=TOLERANCE[check.metric])


def test_cards_are_complete() -> None:
    for model in box_models():
        card = model.card
        assert all((card.data, card.licence, card.attribution, card.limits, card.training, card.score.data))
        assert (model.folder / README).read_text(encoding="utf-8") == readme(model.name, card)
        assert format_score(card.score) in models_page()
    assert PAGE.read_text(encoding="utf-8") == models_page()


def test_bank_moves_with_its_context() -> None:
    """The vector of a word depends on its sentence, and more on its meaning than on its place."""
    model = regard.load("english", "cpu")
    assert model.tokenizer is not None
    assert len(model.tokenizer.encode(" bank")) == 1
