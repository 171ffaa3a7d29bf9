"""The architecture of a run: what is asked for by its kind alone gets sizes that fit, and rows fit the model."""

import pytest

from regard.config import to_table
from regard.errors import ConfigError
from regard.models.recipe import build
from regard.training.decide import Planned, plan
from regard.training.optimizer import AdamWConfig

from ..tasks.corpora import sentences, write
from .tiny import ALONE, data, make_trainer, training

BLOCK = "model.layers.block"


@pytest.fixture(autouse=True)
def _cache(tmp_path, monkeypatch):
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))


def planned(kind: str, folder, *changes: str, **options) -> Planned:
    words = [] if kind == "vision" else ["tokenizer.kind=word"]
    return plan(data(kind, folder), *words, *changes, ranks=ALONE, **options)


# --- parts by their kind alone ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "place", "name", "sizes"),
    [
        ("language", f"{BLOCK}.feedforward", "glu", {"hidden": 352}),
        ("language", f"{BLOCK}.feedforward", "moe", {"experts": 8, "chosen": 2, "hidden": 176}),
        ("classification", f"{BLOCK}.feedforward", "mlp", {"hidden": 512}),  # and not the one layer that none means
        ("translation", "model.encoder.layers.block.feedforward", "glu", {"hidden": 352}),
        (
            "language",
            f"{BLOCK}.mixer.heads",
            "latent",
            {"heads": 4, "rank": 128, "plain": 32, "turned": 16, "value": 32},
        ),
        ("language", "model.embed.position", "learned", {"length": 8}),
        ("translation", "model.embed.position", "learned", {"length": 128}),
    ],
)
def test_a_part_gets_the_sizes_that_it_needs(tmp_path, kind: str, place: str, name: str, sizes: dict):
    model = planned(kind, tmp_path, f"{place}.kind={name}").config.model
    build(model)
    table = {"model": to_table(model)}
    for key in place.split("."):
        table = table[key]
    assert {key: table[key] for key in sizes} == sizes


def test_sizes_that_are_said_stay_and_others_follow_the_width(tmp_path):
    changes = [f"{BLOCK}.feedforward.kind=moe", f"{BLOCK}.feedforward.experts=3", "model.dim=48"]
    found = planned("language", tmp_path, *changes).config.model.layers["block"].feedforward
    assert (found.experts, found.chosen, found.hidden) == (3, 2, 64)


def test_the_width_of_the_task_s_own_model_reaches_its_layers(tmp_path):
    for dim in (64, 512):
        found = planned("language", tmp_path, f"model.dim={dim}").config.model
        assert (found.dim, found.layers["block"].feedforward.hidden) == (dim, 4 * dim)
    with pytest.raises(ConfigError, match='model.dim: "wide" must be a whole number'):
        planned("language", tmp_path, "model.dim=wide")


def test_another_model_is_chosen_by_a_recipe(tmp_path):
    rule = "model.kind: 'recurrent-seq2seq' is another architecture than 'seq2seq', .* --recipe: rnn-attention, rnn-seq"
    with pytest.raises(ConfigError, match=rule):
        planned("translation", tmp_path, "model.kind=recurrent-seq2seq")


# --- tables of positions ---------------------------------------------------------------------------------------------


def pairs(folder) -> dict[str, object]:
    """Pairs of 2 to 7 words, and two of 30."""
    lines = [*sentences(100), *sentences(2, shortest=30, longest=30)]
    return {"kind": "translation", "source": [write(folder / "a.de", lines)], "target": [write(folder / "a.en", lines)]}


SHORT = ["model.embed.position.kind=learned", "model.embed.position.length=9", "tokenizer.kind=word"]
SMALL = ["model.dim=16", "model.encoder.depth=1", "model.decoder.depth=1"]


def test_pairs_that_are_longer_than_the_table_of_positions_are_left_out_and_counted(tmp_path):
    found = plan(pairs(tmp_path), *SHORT, *SMALL, *training(4), ranks=ALONE)
    assert found.config.task.longest == 9
    assert found.task.facts()["pairs"] + found.task.facts()["validation pairs"] == 100
    (report,) = found.task.skipped.report()
    assert report.startswith("2 pairs of more than 9 tokens")
    trainer, _ = make_trainer(found, tmp_path / "run")
    trainer.train()
    assert trainer.step == 4


def test_rows_that_the_model_cannot_take_are_refused_before_anything_is_read(tmp_path):
    rule = "task.longest: 10 tokens are more than the 9 positions of the model; lower it, or raise model.embed.position"
    with pytest.raises(ConfigError, match=rule):
        plan(pairs(tmp_path) | {"source": ["missing"]}, *SHORT, "task.longest=10", ranks=ALONE)


def test_a_table_that_is_asked_for_is_as_long_as_the_longest_pair_may_be(tmp_path):
    found = planned("translation", tmp_path, "model.embed.position.kind=learned", "task.longest=12").config
    assert found.model.embed.position.length == found.task.longest == 12


@pytest.mark.parametrize("kind", ["language", "masked", "classification"])
def test_windows_and_texts_are_no_longer_than_the_table(tmp_path, kind: str):
    table = data(kind, tmp_path)
    table.pop("window", None)
    found = plan(table, *SHORT, *SMALL[:1], "model.depth=1", ranks=ALONE).config
    assert getattr(found.task, "longest" if kind == "classification" else "window") == 9
    assert isinstance(found.train.optimizer, AdamWConfig) is (kind != "language")
