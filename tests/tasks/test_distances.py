"""Distance maps: bins, the precision of contacts, and the baseline of sequence separation."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from regard.data.tokenizer import TokenizerConfig
from regard.errors import ConfigError, InputError
from regard.tasks.distances import (
    EDGES,
    NEAR,
    Distances,
    DistancesConfig,
    best_pairs,
    bins_of,
    contact_chances,
    contact_precision,
    distance_map,
    mean_precision,
    separation_chances,
)
from regard.tasks.loss import IGNORE

from .corpora import model_for, prepare, write, write_structures

CHAR = TokenizerConfig("char")
HEAD = ("model.alignment=none", "model.head.kind=distances", f"model.head.classes={len(EDGES) + 1}")


def task(folder: Path, count: int = 10, **settings) -> Distances:
    found = prepare("distances", CHAR, train=(write_structures(folder / "structures.jsonl", count),), **settings)
    assert isinstance(found, Distances)
    return found


def line_of_residues(count: int, step: float) -> np.ndarray:
    places = np.zeros((count, 3), np.float32)
    places[:, 0] = step * np.arange(count)
    return distance_map(places)


def test_distances_and_their_bins():
    places = np.array([[0, 0, 0], [3, 4, 0], [np.nan] * 3, [0, 0, 8]], np.float32)
    distances = distance_map(places)
    assert distances[0, 1] == 5
    assert np.isnan(distances[2]).all()
    bins = bins_of(distances)
    assert (np.diagonal(bins) == IGNORE).all()
    assert (bins[2] == IGNORE).all()
    assert EDGES[bins[0, 1] - 1] <= 5 < EDGES[bins[0, 1]]
    assert bins[0, 3] == NEAR  # 8 angstrom is the first bin that is not a contact
    assert bins[0, 1] < NEAR


def test_the_chance_of_a_contact_is_that_of_the_near_bins():
    scores = torch.zeros(2, 2, len(EDGES) + 1)
    np.testing.assert_allclose(contact_chances(scores), NEAR / (len(EDGES) + 1), rtol=1e-6)
    scores[0, 1, 0] = 100
    assert contact_chances(scores)[0, 1] == 1


def test_precision_by_hand():
    """30 residues: of the pairs at least 24 apart, the model names 6; two of them are contacts."""
    distances, chances = np.full((30, 30), 20, np.float32), np.zeros((30, 30), np.float32)
    for number, (first, second) in enumerate([(0, 24), (0, 29), (1, 25), (2, 27), (3, 28), (4, 28), (5, 29)]):
        chances[first, second] = 1 - number / 10
        distances[first, second] = 5 if number in (1, 4, 6) else 20
    found = contact_precision(chances, distances)
    assert found["precision_l5_24"] == pytest.approx(2 / 6)
    assert found["precision_l2_24"] == pytest.approx(3 / 15)
    assert np.isnan(found["precision_l_24"])  # only 21 pairs are that far apart
    assert best_pairs(chances, 24, 2) == [(0, 24), (0, 29)]
    assert mean_precision([found, found])["precision_l_24"] == 0.0
    distances[0, 29] = np.nan  # an unknown pair does not count
    assert contact_precision(chances, distances)["precision_l5_24"] == pytest.approx(2 / 6)


def test_the_baseline_knows_how_often_residues_are_in_contact():
    """On a line with 3 angstrom between neighbours, residues up to 2 apart are in contact."""
    chances = separation_chances([line_of_residues(30, 3.0)], 40)
    assert chances[2] == pytest.approx(29 / (28 + 80))
    assert chances[3] == pytest.approx(1 / (27 + 80))
    assert chances[39] == pytest.approx(1 / 80)


@torch.no_grad()
def test_measures_are_those_of_each_structure_alone(tmp_path: Path):
    found = task(tmp_path)
    model = model_for(found, "annotator", *HEAD)
    each = []
    for ids, distances in zip(found.valid_ids, found.valid_maps, strict=True):
        each.append(contact_precision(contact_chances(model(torch.from_numpy(ids)[None])[0]), distances))
    measured = found.measure(model)
    assert {name: measured[name] for name in each[0]} == pytest.approx(mean_precision(each))
    assert len(found.samples(model)) == len(found.valid)
    (baseline,) = found.baselines
    assert 0 <= baseline.score <= 1


def test_batches_are_parts_of_chains_with_the_bins_of_their_pairs(tmp_path: Path):
    found = task(tmp_path, crop=16)
    model = model_for(found, "annotator", *HEAD)
    feed = found.feed(model, 64, 0)
    batch = feed.batch(next(iter(feed.order.epoch(0))), 0)
    assert int(found.loss(model, batch)[0].count) == int((batch["labels"] != IGNORE).sum())
    assert found.unit == "pairs"  # what the loss counts, and so what the speed of training is measured in
    assert batch["tokens"].shape == (4, 16)
    assert batch["labels"].shape == (4, 16, 16)
    assert torch.equal(batch["labels"], batch["labels"].transpose(1, 2))
    row = next(row for row, ids in enumerate(found.ids) if _part(batch["tokens"][0].numpy(), ids) is not None)
    begin = _part(batch["tokens"][0].numpy(), found.ids[row])
    here = slice(begin, begin + 16)
    assert torch.equal(batch["labels"][0], torch.from_numpy(bins_of(distance_map(found.train[row].places)[here, here])))


def _part(tokens: np.ndarray, ids: np.ndarray) -> int | None:
    places = range(len(ids) - len(tokens) + 1)
    return next((place for place in places if np.array_equal(ids[place : place + len(tokens)], tokens)), None)


def test_a_fold_is_left_out(tmp_path: Path):
    path = write_structures(tmp_path / "a.jsonl", 14)
    config = DistancesConfig(train=(path,), fold=1, folds=3)
    trained = config.prepare(CHAR, 0, lambda text: None)
    measured = config.evaluation(trained.learned, [path])
    names = [{each.name for each in side} for side in (measured.valid, trained.train, trained.valid)]
    assert sum(map(len, names)) == 14 == len(set.union(*names))


def test_relatives_only(tmp_path: Path):
    line = json.dumps({"seq": "ACDEFGH", "CA": [[number, 0, 0] for number in range(7)]})
    with pytest.raises(InputError, match="all chains are related"):
        prepare("distances", CHAR, train=(write(tmp_path / "a.jsonl", [line, line]),))


def test_a_file_without_usable_structures_says_why(tmp_path: Path):
    row = json.dumps({"seq": "ACD", "CA": [None, [0, 0, 0], None]})
    path = write(tmp_path / "a.jsonl", [row, row])
    rule = r"a\.jsonl: no structure is left; give other files \(2 structures of fewer than 2 known residues skipped"
    with pytest.raises(InputError, match=rule):
        prepare("distances", CHAR, train=(path,))
    blank = write(tmp_path / "b.jsonl", ["", ""])
    with pytest.raises(InputError, match=r"b\.jsonl, \.\.\.: no structure is left; give other files$"):
        prepare("distances", CHAR, train=(blank, blank))


def test_a_part_has_at_least_one_pair():
    with pytest.raises(ConfigError, match="crop: 1 must be at least 2, since distances are those of pairs"):
        DistancesConfig(train=("a.jsonl",), crop=1)


def test_short_chains_cannot_be_measured(tmp_path: Path):
    """A score of 0 would look like that of a bad model."""
    long = write_structures(tmp_path / "long.jsonl")
    lines = [json.dumps({"seq": "ACDEFGH", "CA": [[number, 0, 0] for number in range(7)]})]
    short = write(tmp_path / "short.jsonl", lines)
    rule = r"short\.jsonl: no structure is left to {} with enough pairs of residues at least 6 apart; give longer"
    with pytest.raises(InputError, match=rule.format("validate on")):
        prepare("distances", CHAR, train=(long,), valid=(short,))
    found = prepare("distances", CHAR, train=(short,), valid=(long,))
    with pytest.raises(InputError, match=rule.format("measure")):
        found.config.evaluation(found.learned, [short])
