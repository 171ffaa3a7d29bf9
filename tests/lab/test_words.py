"""The experiment `words`."""

import numpy as np
import pytest

from regard.errors import RegardError
from regard.lab import run_experiment
from regard.lab.experiments.words import (
    CONTEXT,
    COUNTS,
    NEAR,
    ONE_HOT,
    RANK,
    SKIP_GRAM,
    _count_vectors,
    _solved,
    _spearman,
)


@pytest.mark.usefixtures("no_reports")
def test_one_hot_vectors_say_nothing_about_similarity(tmp_path):
    rows = run_experiment("words", scale="tiny", seeds=1, out=tmp_path).rows
    found = {row["vectors"]: row for row in rows}
    assert list(found) == [ONE_HOT, COUNTS, SKIP_GRAM, CONTEXT]
    assert found[ONE_HOT][RANK] == 0
    assert found[COUNTS][NEAR] > found[ONE_HOT][NEAR]


def test_a_list_of_similar_words_without_scores_is_one_line(tmp_path):
    path = tmp_path / "pairs.txt"
    path.write_text("bread meat\n")
    with pytest.raises(RegardError, match="pairs.txt: each line must be word, word and score, separated by tabs"):
        run_experiment("words", f"similarity={path}", scale="tiny", seeds=1, out=tmp_path / "out")


def test_ranks_of_equal_values_are_shared():
    assert _spearman(np.array([1.0, 2.0, 3.0]), np.array([10.0, 20.0, 30.0])) == pytest.approx(1)
    assert _spearman(np.array([1.0, 1.0, 2.0, 3.0]), np.array([1.0, 2.0, 3.0, 4.0])) == pytest.approx(3 / np.sqrt(10))
    assert _spearman(np.array([1.0, 1.0]), np.array([1.0, 2.0])) == 0


def test_an_analogy_is_solved_by_differences():
    place = {word: number for number, word in enumerate(("man", "woman", "boy", "girl", "cup"))}
    vectors = np.array([[1.0, 0, 0], [1, 1, 0], [0, 0, 1], [0, 1, 1], [-1, -1, 0]])
    assert _solved(vectors, place, [[("man", "woman"), ("boy", "girl")]]) == 1


def test_words_of_the_same_sentences_get_the_same_counts():
    sentences = [["a", "b"], ["c", "b"], ["d", "e"]]
    vectors = _count_vectors(sentences, {word: place for place, word in enumerate("abcde")}, 5)
    assert np.allclose(vectors[0], vectors[2], atol=1e-5)
    assert not np.allclose(vectors[0], vectors[3], atol=1e-2)
