"""The experiment `words`, and Word2Vec as a model and a task."""

import numpy as np
import pytest
import torch

from regard.data.tokenizer import TokenizerConfig
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
from regard.lab.word2vec import SkipGram, SkipGramConfig, Word2Vec, Word2VecConfig


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


def test_skip_gram_contrasts_neighbours_of_one_text_with_random_words(tmp_path):
    (tmp_path / "text.txt").write_text("a b c\nd e\n" * 40)
    config = SkipGramConfig(train=(str(tmp_path / "text.txt"),), documents="line", window=8, reach=1, negatives=2)
    task = config.prepare(TokenizerConfig(kind="word"), 0, lambda text: None)
    assert isinstance(task, SkipGram)
    model = Word2VecConfig(vocabulary=task.learned.size, dim=4).build()
    assert isinstance(model, Word2Vec)
    end, *(a, b, c, d, e) = task.learned.end, *(int(task.learned.encode(word)[0]) for word in "abcde")
    tokens = torch.tensor([[a, b, c, end, d, e]])
    batch = {
        "tokens": tokens,
        "labels": tokens.masked_fill(tokens == end, -100),
        "documents": torch.tensor([[0] * 4 + [1] * 2]),
    }
    drawn = torch.tensor([a, d])
    u, v = model.embed.tokens.table.weight, model.head.unembed.weight
    pairs = [(a, b), (b, a), (b, c), (c, b), (d, e), (e, d)]
    against = {w: 2 * -torch.nn.functional.logsigmoid(-(v[drawn] @ u[w])).mean() for w in (a, b, c, d, e)}
    wanted = sum(-torch.nn.functional.logsigmoid(u[w] @ v[around]) + against[w] for w, around in pairs)
    losses = task.contrast(model, batch, drawn)
    torch.testing.assert_close(losses.objective, wanted)
    assert losses.count == 5
