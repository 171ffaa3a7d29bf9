"""The data that the models in the box are trained on: simulated pedestrians, labelled sentences, chains of proteins."""

import json

import numpy as np

from bench.box_data import OTHER, PARTS, label_by_keywords, write_chains
from bench.crossing import FRAMES, REACH, WIDTH, simulate
from bench.distil import write_distilled
from regard.use.box import FOLDER


def test_pedestrians_stay_in_the_streets_and_walk():
    rows = np.array(list(simulate(5, 60)))
    assert np.array_equal(rows, list(simulate(5, 60)))
    assert not np.array_equal(rows[:10], list(simulate(6, 60))[:10])
    frames, agents, places = rows[:, 0], rows[:, 1], np.abs(rows[:, 2:])
    assert set(frames % FRAMES) == {0}
    assert frames.max() == 59 * FRAMES
    assert places.max() < REACH + 1
    assert places.min(1).max() < WIDTH  # never inside of a block
    steps = np.concatenate([np.linalg.norm(np.diff(rows[agents == one, 2:], axis=0), axis=1) for one in set(agents)])
    assert 0.6 < np.median(steps / 0.4) < 2.0  # metres a second


def test_pedestrians_turn_and_keep_apart():
    rows = np.array(list(simulate(5, 200)))
    tracks = [rows[rows[:, 1] == one, 2:] for one in set(rows[:, 1])]
    moved = [np.abs(track[-1] - track[0]) for track in tracks if len(track) > 40]
    turned = [bool(move.min() > REACH / 2) for move in moved]
    assert any(turned)
    assert not all(turned)
    for frame in set(rows[:, 0]):
        here = rows[rows[:, 0] == frame, 2:]
        apart = np.linalg.norm(here[:, None] - here[None], axis=2) + 9 * np.eye(len(here))
        assert apart.min() > 0.1


def test_a_sentence_with_keywords_of_one_topic_is_labelled_and_some_without_are_other():
    texts = ["My mother smiled.", "Her father ate an apple.", *(f"This is number {number}." for number in range(10))]
    found = list(label_by_keywords(texts))
    assert found[0] == ("My mother smiled.", "family")
    assert "Her father ate an apple." not in dict(found)  # of two topics
    assert [label for _, label in found[1:]] == [OTHER, OTHER]


def test_chains_of_proteins_with_relatives_are_trained_on(tmp_path):
    random = np.random.default_rng(0)
    alone = ["".join(random.choice(list("ACDEFGHIKLMNPQRSTVWY"), 60)) for _ in range(30)]
    sequences = [*alone, *(f"{sequence[:30]}W{sequence[31:]}" for sequence in alone[:8])]  # another residue: related
    rows = [{"id": f"{n}", "chain": "A", "seq": one, "sse_psea": "abc" * 20} for n, one in enumerate(sequences)]
    (tmp_path / "structures.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    write_chains(tmp_path / "structures.jsonl", tmp_path)
    parts = {part: (tmp_path / f"proteins.{part}.tsv").read_text().splitlines()[1:] for part in PARTS}
    place = {line.split("\t")[0]: part for part, lines in parts.items() for line in lines}
    assert len(place) == 38
    assert all(parts.values())
    assert {place[f"{number}A"] for number in (*range(8), *range(30, 38))} == {"train"}
    assert parts["train"][0] == f"0A\t{sequences[0]}\t{'HE_' * 20}"


def test_the_sentences_of_a_distilled_set_have_their_translations(tmp_path):
    """Also where a translation is longer or a sentence is repeated: line by line."""
    sentences = ["I am tired.", "Where is the old station?", "I am tired."]
    (tmp_path / "sentences.txt").write_text("".join(f"{one}\n" for one in sentences))
    write_distilled(FOLDER / "en-fr-rnn-attention", tmp_path / "sentences.txt", tmp_path / "distilled")
    english, french = ((tmp_path / f"distilled.{side}").read_text().splitlines() for side in ("en", "fr"))
    assert english == sentences
    assert len(french) == 3
    assert french[0] == french[2] == "Je suis fatigué."
    assert "gare" in french[1]
