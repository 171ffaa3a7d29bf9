"""Baselines against counts by hand, and where they are shown."""

from itertools import permutations
from math import exp, log

import numpy as np
import pytest

from regard.data.tokenizer import TokenizerConfig
from regard.tasks import baselines
from regard.tasks.baselines import (
    Baseline,
    bigram_loss,
    describe_baseline,
    find_better_baselines,
    learn_dictionary,
    linear_pixels,
    majority_class,
    naive_bayes,
    unigram_loss,
)
from regard.tasks.metric import bleu

from .corpora import prepare, write


def flat(*rows: list[int]) -> tuple[np.ndarray, np.ndarray]:
    return np.array([token for row in rows for token in row], np.int64), np.array([len(row) for row in rows])


def test_the_majority_class_is_that_of_the_training_data() -> None:
    found = majority_class(np.array([0, 1, 1, 2]), np.array([0, 0, 0, 1]), 3)
    assert (found.name, found.score) == ("majority class", 0.25)


def test_naive_bayes_chooses_by_tokens_and_by_pairs_of_tokens() -> None:
    good, bad, note = 5, 6, 7  # "not good" is bad, "not bad" is good: tokens alone cannot tell
    train = flat([good], [note, bad], [bad], [note, good])
    labels = np.array([1, 1, 0, 0])
    found = naive_bayes(train, labels, flat([note, good], [note, bad]), np.array([0, 1]), 2)
    assert found.score == 1.0


def test_naive_bayes_weighs_tokens_and_classes() -> None:
    """For texts of one token, which have no pairs: 5 is in class 0 twice as often, and class 1 has more texts."""
    train, labels = flat([5], [5], [6], [5], [6], [6], [6]), np.array([0, 0, 0, 1, 1, 1, 1])
    texts = flat([5], [6], [9])  # of the unknown token, the more frequent class
    for wanted in ([0, 1, 1], [1, 0, 0]):
        assert naive_bayes(train, labels, texts, np.array(wanted), 2).score == (wanted == [0, 1, 1])


def test_a_linear_model_separates_what_a_line_separates() -> None:
    random = np.random.default_rng(0)
    labels = random.integers(0, 2, 400)
    images = random.integers(0, 100, (400, 4, 4, 1)).astype(np.uint8)
    images[labels == 1, 1, 2] += 100
    found = linear_pixels(images[:300], labels[:300], images[300:], labels[300:], 2)
    assert found.score > 0.95
    assert found == linear_pixels(images[:300], labels[:300], images[300:], labels[300:], 2)


def test_large_images_are_thinned_out() -> None:
    assert baselines._reduced(np.zeros((2, 200, 100, 3), np.uint8)).shape[1] <= baselines.MOST_NUMBERS
    assert baselines._reduced(np.zeros((2, 28, 28, 1), np.uint8)).shape[1] == 784


def test_unigrams_by_hand() -> None:
    found = unigram_loss(np.array([0, 0, 1]), np.array([0, 1, 2]), 3)
    assert found.score == pytest.approx(-(log(3 / 6) + log(2 / 6) + log(1 / 6)) / 3)


def test_bigrams_are_a_distribution_and_follow_the_formula() -> None:
    train = np.array([0, 1, 0, 1, 0, 2, 1, 1])  # 01 twice, 10 twice, 02, 21, 11: five different pairs
    d, vocabulary = 0.75, 4
    alone = {0: (1 - d) / 5, 1: (3 - d) / 5, 2: (1 - d) / 5, 3: 0.0}
    alone = {w: p + d * 3 / 5 / vocabulary for w, p in alone.items()}
    assert sum(alone.values()) == pytest.approx(1)
    after_zero = {w: max(c - d, 0) / 3 + d * 2 / 3 * alone[w] for w, c in {0: 0, 1: 2, 2: 1, 3: 0}.items()}
    assert sum(after_zero.values()) == pytest.approx(1)
    for word in range(vocabulary):
        assert bigram_loss(train, np.array([0, word]), vocabulary).score == pytest.approx(-log(after_zero[word]))
        unseen = bigram_loss(train, np.array([3, word]), vocabulary)  # after a token that never occurred
        assert unseen.score == pytest.approx(-log(alone[word]))


def test_a_dictionary_is_learned_from_pairs() -> None:
    """das Haus - the house, das Buch - the book, ein Buch - a book (Brown et al. 1993, Koehn's example)."""
    das, haus, buch, ein, the, house, book, a = range(10, 18)
    found = learn_dictionary(
        flat([das, haus], [das, buch], [ein, buch]), flat([the, house], [the, book], [a, book]), 10
    )
    assert found == {das: the, haus: house, buch: book, ein: a}
    assert learn_dictionary(flat([]), flat([])) == {}


@pytest.mark.parametrize(("metric", "wanted"), [("accuracy", ["same", "high"]), ("loss", ["low", "same"])])
def test_a_model_that_is_no_better_is_found(metric: str, wanted: list[str]) -> None:
    known = [Baseline("low", 0.4), Baseline("same", 0.5), Baseline("high", 0.6)]
    assert [one.name for one in find_better_baselines(metric, 0.5, known)] == wanted


@pytest.mark.parametrize(
    ("metric", "perfect"),
    [("accuracy", 1.0), ("bleu", 100.0), ("bracket_f1", 100.0), ("ade", 0.0), ("loss", 0.0), ("perplexity", 1.0)],
)
def test_a_model_without_a_mistake_is_not_told_to_train_longer(metric: str, perfect: float) -> None:
    assert find_better_baselines(metric, perfect, [Baseline("simple", perfect)]) == []


def test_a_parser_with_an_f1_of_one_percent_is_told_that_a_simple_one_is_better() -> None:
    known = [Baseline("right-branching", 12.3)]
    assert find_better_baselines("bracket_f1", 1.0, known) == known


def test_a_baseline_in_words() -> None:
    assert describe_baseline("loss", Baseline("bigram", log(200.0))) == "bigram: loss 5.3, perplexity 200"
    assert describe_baseline("accuracy", Baseline("linear", 0.834, "pixels")) == "linear: accuracy 0.834 (pixels)"


def test_a_single_row_is_counted_in_words(tmp_path) -> None:
    table, text = write(tmp_path / "a.tsv", ["a dog\t1", "a cat\t0"]), write(tmp_path / "a.txt", ["a dog"])
    sides = {"source": (text,), "target": (text,), "valid_source": (text,), "valid_target": (text,)}
    tasks = (prepare("classification", train=(table,), header=False), prepare("translation", **sides))
    found = [baseline.how for task in tasks for baseline in task.baselines if baseline.how]
    assert found == ["tokens and pairs of tokens of 1 text", "token by token, IBM model 1 of 1 pair"]


# --- of the tasks ----------------------------------------------------------------------------------------------------


def test_translations_are_compared_with_copies_and_a_dictionary(tmp_path) -> None:
    words = {"das": "the", "ein": "a", "haus": "house", "buch": "book", "und": "and"}
    source = [" ".join(four) for four in permutations(words, 4)]
    target = [" ".join(words[word] for word in line.split()) for line in source]
    files = {"source": (write(tmp_path / "a", source),), "target": (write(tmp_path / "b", target),)}
    valid = {"valid_source": (write(tmp_path / "c", source[:4]),), "valid_target": (write(tmp_path / "d", target[:4]),)}
    copy, dictionary = prepare("translation", TokenizerConfig("word", 40), **files, **valid).baselines
    assert copy.score == pytest.approx(bleu(source[:4], target[:4]))
    assert (copy.score, dictionary.score) == (0, pytest.approx(100))


def test_language_models_are_compared_on_the_tokens_that_are_measured(tmp_path) -> None:
    path = write(tmp_path / "a.txt", ["the cat sat on the mat"] * 50)
    task = prepare("language", train=(path,), window=8)
    unigram, bigram = task.baselines
    assert unigram.score > bigram.score > 0
    train, valid = task.counted_tokens()
    assert len(valid) == task.valid.tokens
    counts = np.bincount(train, minlength=task.tokenizer.size) + 1.0
    assert exp(-unigram.score) == pytest.approx(np.exp(np.log(counts / counts.sum())[valid[1:]].mean()))
    (masked,) = prepare("masked", train=(path,), window=8).baselines
    assert masked.name == "unigram"


def test_classifiers_are_compared_on_a_sample_of_bounded_size(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [f"{'good' if number % 3 else 'bad'} film\t{int(number % 3 > 0)}" for number in range(90)]
    task = prepare(
        "classification", train=(write(tmp_path / "a.tsv", rows),), valid=(write(tmp_path / "b.tsv", rows[:9]),)
    )
    majority, bayes = task.baselines
    assert (majority.score, bayes.score) == (6 / 9, 1.0)
    assert "90 texts" in bayes.how
    assert task.baselines is task.baselines  # measured once
    monkeypatch.setattr("regard.tasks.classification.MOST_TOKENS", 100)
    *_, fewer = task.measure_baselines()
    assert int(fewer.how.split()[-2]) < 30
