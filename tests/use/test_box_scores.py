"""The models that come with the package: their scores are those of their weights, and their sizes are small."""

import zlib

import pytest
import torch

import regard
from bench.models import PAGE, models_page, readme
from regard.cli.models import format_score
from regard.use.box import IMAGE_DEFAULTS, README, TEXT_DEFAULTS, box_model, box_models, box_names
from regard.use.loaded_model import LoadedModel

LARGEST = 35_000_000  # bytes of all models in the wheel, which is compressed
LIMITS = {"en-fr": 15_000_000, "fashion": 6_000_000}
# what rounding on another processor may change in a score of a few hundred rows
TOLERANCE = {"bleu": 1.0, "accuracy": 0.02, "loss": 0.005, "ade": 0.01, "bracket_f1": 1.0, "q3": 0.02}


def test_every_verb_has_a_model() -> None:
    assert {*TEXT_DEFAULTS.values(), *IMAGE_DEFAULTS.values()} <= set(box_names())


def test_they_are_small() -> None:
    sizes = {model.name: model.size for model in box_models()}
    assert all(sizes[name] <= most for name, most in LIMITS.items())
    files = [path for model in box_models() for path in model.folder.iterdir()]
    assert sum(len(zlib.compress(path.read_bytes(), 6)) for path in files) <= LARGEST


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


def bank_vector(model: LoadedModel, text: str, layer: int) -> torch.Tensor:
    """Return the vector of 'bank' in a sentence, above a layer."""
    tokenizer = model.tokenizer
    assert tokenizer is not None
    ids = tokenizer.encode(text).tolist()
    place = [piece.strip() for piece in tokenizer.pieces(ids)].index("bank")
    tokens = torch.tensor([[tokenizer.end, *ids, tokenizer.end]])
    return regard.read_vectors(model.model, f"tokens.{layer}", tokens)[0, 1 + place]


def test_bank_moves_with_its_context() -> None:
    """The embedding of 'bank' is the same everywhere; above the last layer it depends on what the sentence is about."""
    model = regard.load("english", "cpu")
    money, loan, water = (
        "I put my money in the bank.",
        "She got a loan from the bank.",
        "They sat on the bank of the lake.",
    )
    embedded, *_, last = (
        [bank_vector(model, text, layer) for text in (money, loan, water)]
        for layer in range(model.model.config.depth + 1)
    )
    assert torch.equal(embedded[0], embedded[2])
    similar, different = (float(torch.cosine_similarity(last[0], other, 0)) for other in last[1:])
    assert similar > different + 0.1
