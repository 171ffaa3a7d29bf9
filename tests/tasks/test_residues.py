"""Secondary structure: folds, examples, batches, and what is measured."""

from pathlib import Path

import numpy as np
import pytest
import torch

from regard.data.batches import Draw
from regard.data.tokenizer import TokenizerConfig
from regard.errors import ConfigError, InputError, RegardError
from regard.models.residues import STATES
from regard.tasks.loss import IGNORE
from regard.tasks.proteins import in_fold, related_groups, split_chains
from regard.tasks.residues import Residues, ResiduesConfig, in_three, state_scores

from .corpora import model_for, nll, prepare, write, write_chains

CHAR = TokenizerConfig("char")


def task(folder: Path, count: int = 12, **settings) -> Residues:
    found = prepare("residues", CHAR, train=(write_chains(folder / "chains.tsv", count),), **settings)
    assert isinstance(found, Residues)
    return found


# --- folds -----------------------------------------------------------------------------------------------------------


def test_related_sequences_are_grouped():
    one, other = "ACDEFGHIKLMNPQRSTVWY", "YWVTSRQPNMLKIHGFEDCA"
    changed = one[:10] + "A" + one[11:]
    assert related_groups([one, other, changed]).tolist() == [0, 1, 0]
    assert related_groups(["AC", "AC", "DE"]).tolist() == [0, 0, 2]


def test_relatives_of_relatives_are_in_the_same_group():
    one, other = "ACDEFGHIKL", "YWVTSRQPNM"
    assert related_groups([one, other, "GGGGGGGG", one + other]).tolist() == [0, 0, 2, 0]
    assert related_groups(["GGGGGGGG", one + other, one, other]).tolist() == [0, 1, 1, 1]


def test_every_chain_is_in_one_fold_and_relatives_are_together(tmp_path: Path):
    chance = np.random.default_rng(0)
    sequences = ["".join(chance.choice(list("ACDEFGHIKLMNPQRSTVWY"), 40)) for _ in range(60)]
    sequences += [text[:30] for text in sequences[:20]]
    folds = np.array([in_fold(sequences, 5, fold) for fold in range(1, 6)])
    assert (folds.sum(0) == 1).all()
    assert (folds[:, :20] == folds[:, 60:]).all()
    rows, held_out = split_chains(sequences, "here")
    assert sorted([*rows, *held_out]) == list(range(80))
    assert len({*held_out} & set(range(20))) == len({*held_out} & set(range(60, 80)))


def test_a_fold_is_left_out_of_training_and_measured(tmp_path: Path):
    path = write_chains(tmp_path / "chains.tsv", 30)
    config = ResiduesConfig(train=(path,), fold=2, folds=3)
    trained = config.prepare(CHAR, 0, lambda text: None)
    measured = config.evaluation(trained.learned, [path])
    inside = {chain.sequence for chain in measured.valid_chains}
    used = {chain.sequence for chain in (*trained.chains, *trained.valid_chains)}
    assert inside
    assert not inside & used
    assert len(inside) + len(used) == 30
    assert measured.skipped.counts == {"chain of another fold than 2": len(used)}


@pytest.mark.parametrize(
    ("settings", "rule"),
    [
        ({"fold": 8}, "8 must be from 1 to 7"),
        ({"fold": 1, "folds": 1}, "1 must be at least 2"),
        ({"alignment_as": "examples"}, "needs a column of alignments"),
        ({"alignment_as": "both"}, "needs a column of alignments"),
        ({"train": ()}, "train must name at least one file"),
    ],
)
def test_wrong_settings(settings: dict, rule: str):
    with pytest.raises(ConfigError, match=rule):
        ResiduesConfig(**{"train": ("a.tsv",), **settings})


def test_too_few_chains(tmp_path: Path):
    path = write(tmp_path / "one.tsv", ["sequence\tstructure", "ACDEFGH\tHHHHHHH"])
    with pytest.raises(InputError, match="only one chain is left, so none can be held out"):
        prepare("residues", CHAR, train=(path,))
    with pytest.raises(
        InputError, match=r"(none|all) of the 1 chains are in fold 1 of 7; give more chains, or change task\.fold or"
    ):
        prepare("residues", CHAR, train=(path,), fold=1)
    unknown = write(tmp_path / "unknown.tsv", ["sequence\tstructure", "ACDEFGH\t???????", "WWYYWWY\t???????"])
    known = write(tmp_path / "known.tsv", ["sequence\tstructure", "ACDEFGH\tHHHHHHH", "WWYYWWY\tEEEEEEE"])
    rule = r"unknown\.tsv: no chain with known states is left to {}; give more chains, with states other than \?$"
    with pytest.raises(InputError, match=rule.format("train on")):
        prepare("residues", CHAR, train=(unknown,), valid=(known,))
    with pytest.raises(InputError, match=rule.format("validate on")):
        prepare("residues", CHAR, train=(known,), valid=(unknown,))
    task = prepare("residues", CHAR, train=(known,))
    with pytest.raises(InputError, match=rule.format("measure")):
        task.config.evaluation(task.learned, [unknown])
    with pytest.raises(RegardError, match="is not for proteins, whose tokens are residues"):
        prepare("residues", TokenizerConfig("word", 50), train=(path,))


# --- batches ---------------------------------------------------------------------------------------------------------


def test_a_batch_has_sequences_states_and_alignments(tmp_path: Path):
    lines = ["sequence\tstructure\talignment", "ACDE\tHE?_\tACDF A-DE", "VVV\tEEE\t", "WYWYWY\tHHHHHH\t"]
    found = prepare("residues", CHAR, train=(write(tmp_path / "a.tsv", lines),), alignment="alignment")
    every = {chain.sequence: each for chain, each in zip(found.chains, found.train, strict=True)}
    every |= {chain.sequence: each for chain, each in zip(found.valid_chains, found.valid, strict=True)}
    model = model_for(found, "annotator")
    batch = found.batch(model, [every["ACDE"], None, every["VVV"]], Draw((5,), np.arange(3)))
    ids = found.learned.encode("ACDEF-")
    assert batch["tokens"][0, :4].tolist() == ids[:4].tolist()
    assert batch["lengths"].tolist() == [4, 1, 3]
    assert batch["labels"][0].tolist() == [STATES.index("H"), STATES.index("E"), IGNORE, STATES.index("_"), IGNORE]
    assert (batch["labels"][1] == IGNORE).all()
    assert batch["depths"].tolist() == [2, 0, 0]
    assert batch["alignment"][0, 1, :4].tolist() == ids[[0, 5, 2, 3]].tolist()
    torch.testing.assert_close(batch["profile"][0, 1, ids[1]], torch.tensor(2 / 3))
    torch.testing.assert_close(batch["profile"][0, 1, ids[5]], torch.tensor(1 / 3))
    torch.testing.assert_close(batch["profile"].sum(-1)[0, :4], torch.ones(4))


def test_rows_of_alignments_are_examples_without_gaps(tmp_path: Path):
    lines = ["sequence\tstructure\talignment", "ACDE\tHEG_\tAC-F", "VVV\tEEE\t", "WYWYWY\tHHHHHH\t"]
    path = write(tmp_path / "a.tsv", lines)
    found = prepare("residues", CHAR, train=(path,), alignment="alignment", alignment_as="examples")
    chain = next(each for each in (*found.train, *found.valid) if len(each.rows))
    assert chain.homolog(0).ids.tolist() == found.learned.encode("ACF").tolist()
    assert chain.homolog(0).labels.tolist() == [STATES.index(state) for state in "HE_"]
    model = model_for(found, "annotator", "model.alignment=none")
    batches = [found.feed(model, 64, 0).batch(draw, 3) for draw in found.feed(model, 64, 0).order.epoch(3)]
    assert all("alignment" not in batch for batch in batches)


def test_a_row_of_an_alignment_may_take_the_place_of_the_sequence(tmp_path: Path):
    lines = ["sequence\tstructure\talignment", "ACDE\tHEG_\tAC-F MMMM", "VVV\tEEE\t", "WYWYWY\tHHHHHH\t"]
    path = write(tmp_path / "a.tsv", lines)
    found = prepare("residues", CHAR, train=(path,), alignment="alignment", alignment_as="both")
    chain = next(each for each in (*found.train, *found.valid) if len(each.rows))
    encode = found.learned.encode
    homolog = chain.homolog(0, aligned=True)
    assert homolog.ids.tolist() == encode("ACF").tolist()
    assert homolog.rows.tolist() == [encode("ACE").tolist(), encode("MMM").tolist()]
    assert homolog.labels.tolist() == [STATES.index(state) for state in "HE_"]
    first = int(encode("M")[0])
    assert chain.homolog(1, aligned=True).profile[0, first] == chain.profile[0, first] == np.float32(1 / 3)
    assert found.aligned


def test_r_drop_adds_the_distance_of_two_passes(tmp_path: Path):
    found, plain = task(tmp_path, r_drop=2.0), task(tmp_path)
    assert (found.passes(), plain.passes()) == (2, 1)
    model = model_for(found, "annotator", "model.dropout=0.2").train()
    feed = found.feed(model, 64, 0)
    batch = feed.batch(next(iter(feed.order.epoch(0))), 0)
    torch.manual_seed(0)
    losses, _ = found.loss(model, batch)
    torch.manual_seed(0)
    with torch.no_grad():
        one, other = (found.scores(model, batch).log_softmax(-1) for _ in range(2))
    real = batch["labels"] != IGNORE
    divergence = float(((one.exp() - other.exp()) * (one - other)).sum(-1)[real].sum())
    both = sum(nll(each[real], batch["labels"][real]) for each in (one, other)) / 2
    assert divergence > 0
    assert losses.objective.item() == pytest.approx(both + 2.0 / 4 * divergence, rel=1e-6)
    assert losses.loss.item() == pytest.approx(both, rel=1e-6)
    assert found.loss(model.eval(), batch)[0].objective == plain.loss(model, batch)[0].objective


def test_batches_are_a_function_of_seed_and_epoch(tmp_path: Path):
    found = task(tmp_path, alignment="alignment", crop=12)
    model = model_for(found, "annotator")

    def batches(epoch: int) -> list[torch.Tensor]:
        feed = found.feed(model, 48, 5)
        drawn = [feed.batch(draw, epoch) for draw in feed.order.epoch(epoch)]
        return [value for batch in drawn for value in batch.values()]

    assert all(torch.equal(one, other) for one, other in zip(batches(1), batches(1), strict=True))
    assert max(value.shape[1] for value in batches(1) if value.ndim == 2) <= 12
    assert any(not torch.equal(one, other) for one, other in zip(batches(1), batches(2), strict=False))


def test_some_residues_of_training_are_read_as_unknown(tmp_path: Path):
    found, known = task(tmp_path, unknown=0.5), task(tmp_path)
    model = model_for(found, "annotator")
    feed, plain = found.feed(model, 48, 0), known.feed(model, 48, 0)
    changed = total = 0
    for draw in feed.order.epoch(0):
        tokens, others = feed.batch(draw, 0)["tokens"], plain.batch(draw, 0)["tokens"]
        differs = tokens != others
        assert (tokens[differs] == int(found.learned.encode("X")[0])).all()
        changed, total = changed + int(differs.sum()), total + int((others != found.learned.pad).sum())
    assert 0.3 < changed / total < 0.7


def test_the_model_has_parts_for_alignments_only_if_it_reads_them(tmp_path: Path):
    table = {"kind": "evoformer", "alignment": {"rows": 4}}
    assert "alignment" not in task(tmp_path).adapt(table, {})
    assert "alignment" in task(tmp_path, alignment="alignment").adapt(table, {})
    assert "alignment" not in task(tmp_path, alignment="alignment", alignment_as="examples").adapt(table, {})


# --- what is measured ------------------------------------------------------------------------------------------------


def test_q3_sums_the_probabilities_of_its_states():
    """H 0.3, G 0.25 against E 0.4: of 8 states E is the most likely, of 3 it is helix; strictly, G is coil."""
    chances = np.zeros((2, 8), np.float32)
    chances[0, [STATES.index("H"), STATES.index("G"), STATES.index("E"), STATES.index("_")]] = 0.3, 0.25, 0.4, 0.05
    chances[1, STATES.index("T")] = 1.0
    wanted = np.array([STATES.index("H"), STATES.index("S")])
    assert state_scores(chances, wanted) == {"q3": 1.0, "q3_strict": 0.5, "q8": 0.0}
    assert in_three(np.array([0, 1, 2, 3, 4, 5, 6, 7, IGNORE])).tolist() == [0, 0, 0, 1, 1, 2, 2, 2, -1]


@pytest.mark.parametrize("settings", [{}, {"alignment": "alignment"}])
@torch.no_grad()
def test_measures_are_those_of_each_chain_alone(tmp_path: Path, settings: dict):
    found = task(tmp_path, 40, **settings)
    model = model_for(found, "annotator", *([] if settings else ["model.alignment=none"]))
    loss, right, count = 0.0, 0, 0
    for chain in found.valid:
        batch = found.batch(model, [chain], Draw((len(chain.ids),), np.array([0])))
        logits, known = found.scores(model, batch)[0], chain.labels != IGNORE
        loss += nll(logits[torch.from_numpy(known)], torch.from_numpy(chain.labels[known]))
        right += int((logits.argmax(-1).numpy() == chain.labels)[known].sum())
        count += int(known.sum())
    measured = found.measure(model)
    assert measured["loss"] == pytest.approx(loss / count, rel=1e-6)
    assert measured["q8"] == pytest.approx(right / count)
    found.parts = 4
    assert found.measure(model)["loss"] == pytest.approx(measured["loss"], rel=1e-6)


def test_baselines_see_what_decides_the_state(tmp_path: Path):
    """In these chains the residue itself decides its state, so a linear model of a window finds it."""
    majority, linear = task(tmp_path, 150).baselines
    assert (majority.name, linear.name) == ("majority class", "linear")
    assert linear.score > 0.9 > majority.score


def test_facts_samples_and_the_row_to_watch(tmp_path: Path):
    found = task(tmp_path, 30)
    assert found.facts()["chains"] + found.facts()["validation chains"] == 30
    assert found.fingerprint() == task(tmp_path, 30).fingerprint() != task(tmp_path, 29).fingerprint()
    model = model_for(found, "annotator", "model.alignment=none")
    for sample in found.samples(model):
        assert len(sample.given) == len(sample.wanted) == len(sample.made)
    assert found.probe(8)["tokens"].shape == (1, 8)
    assert found.longest() <= 128
