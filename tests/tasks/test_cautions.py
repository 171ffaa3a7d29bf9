"""What the plan warns of: validation rows that are training rows too, too few of them, labels that occur once."""

from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.data.tokenizer import TokenizerConfig
from regard.tasks.cautions import PASSAGE, caution_passages, hash_pairs, hash_passages, hash_rows

from .corpora import prepare, sentences, walks, write, write_chains, write_structures

LETTERS = TokenizerConfig("char")  # every text has tokens of its own


def unique(count: int) -> list[str]:
    return [f"{text} {number}" for number, text in enumerate(sentences(count))]


def pairs(path, rows: list[str]) -> str:
    return write(path, [f"{row}\t{row[::-1]}" for row in rows])


def test_duplicates_across_the_split_are_counted_exactly(tmp_path):
    texts = unique(100)
    train = pairs(tmp_path / "train.tsv", texts[:80])
    valid = pairs(tmp_path / "valid.tsv", [*texts[75:100], *texts[:5]])
    (caution,) = prepare("translation", LETTERS, source=(train,), valid_source=(valid,)).cautions()
    assert caution.startswith("10 of 30 validation pairs are in the training data, too")


def test_a_pair_with_another_target_is_another_pair(tmp_path):
    texts = unique(60)
    train = pairs(tmp_path / "train.tsv", texts[:30])
    valid = write(
        tmp_path / "valid.tsv", [f"{text}\t{other}" for text, other in zip(texts[:30], texts[30:], strict=True)]
    )
    assert list(prepare("translation", LETTERS, source=(train,), valid_source=(valid,)).cautions()) == []


def test_rows_that_are_held_out_of_repeated_ones(tmp_path):
    rows = [f"{text}\t{number % 2}" for number, text in enumerate(unique(40))] * 20
    (caution,) = prepare("classification", LETTERS, train=(write(tmp_path / "a.tsv", rows),)).cautions()
    assert caution.startswith("40 of 40 validation texts are in the training data, too")


def test_rows_that_differ_in_unknown_words_are_not_duplicates(tmp_path):
    """Where rare words are unknown, "what is a <unk> ?" stands for many questions, and there is nothing to remove."""
    words = TokenizerConfig("word", vocabulary=20)

    def texts(first: int, rest: str = "") -> list[str]:
        return [f"what is a word{number} ?{rest}" for number in range(first, first + 100)]

    def cautions(train: list[str], valid: list[str]) -> list[str]:
        found = []
        for name, rows in (("train.tsv", train), ("valid.tsv", valid)):
            write(tmp_path / name, [f"{text}\t{number % 2}" for number, text in enumerate(rows)])
            write(tmp_path / f"pairs-{name}", [f"{text}\tword" for text in rows])
        files = [(str(tmp_path / f"{kind}{name}"),) for kind in ("", "pairs-") for name in ("train.tsv", "valid.tsv")]
        found += prepare("classification", words, train=files[0], valid=files[1]).cautions()
        return [*found, *prepare("translation", words, source=files[2], valid_source=files[3]).cautions()]

    assert cautions(texts(0), texts(100)) == []
    long = texts(0, " a long question of many words that is the same in all of them")
    known = ["what is a question ?"] * 10
    for name, caution in zip(
        ("text", "pair"), cautions([*long, *known], [*texts(100), *known, *long[:5]]), strict=True
    ):
        assert caution.startswith(f"at least 15 of 115 validation {name}s are in the training data, too")


def test_few_validation_rows(tmp_path):
    rows = [f"{text}\t{number % 2}" for number, text in enumerate(unique(40))]
    (caution,) = prepare("classification", train=(write(tmp_path / "a.tsv", rows),)).cautions()
    assert caution.startswith("2 validation texts: the score is mostly chance")


def test_labels_that_occur_once(tmp_path):
    rows = ["text\tlabel", *(f"{text}\tid{number}" for number, text in enumerate(unique(500)))]
    found = list(prepare("classification", train=(write(tmp_path / "a.tsv", rows),)).cautions())
    assert any("of 500 classes have one text" in caution and "task.label" in caution for caution in found)


def test_labels_that_no_validation_row_has(tmp_path):
    """Then a model that never predicts them may have an accuracy and an F1 of 1."""
    texts = unique(500)
    rows = [f"{text}\t{'rare' if number < 3 else 'usual'}" for number, text in enumerate(texts)]
    train = write(tmp_path / "train.tsv", rows)
    valid = write(tmp_path / "valid.tsv", [f"other {text}\tusual" for text in texts[:30]])
    (caution,) = prepare("classification", train=(train,), valid=(valid,)).cautions()
    rule = "so the score does not count it; give more data, or --valid FILE"
    assert caution == f"no validation text has the label 'rare', {rule}"
    write(tmp_path / "train.tsv", [*rows, *(f"more {text}\tother" for text in texts)])
    (caution,) = prepare("classification", train=(train,), valid=(valid,)).cautions()
    assert caution == f"2 of 3 classes have no validation text, such as 'other', {rule}"


def test_few_images_and_classes_without_one(tmp_path):
    labels = np.arange(40, dtype=np.int64) // 20
    pixels = np.random.default_rng(0).integers(0, 256, (40, 8, 8), dtype=np.uint8)
    found = []
    for count in (4, 20):
        arrays = {"x_train": pixels, "y_train": labels, "x_valid": pixels[:count], "y_valid": labels[:count]}
        np.savez(tmp_path / f"{count}.npz", **arrays)
        found += prepare("vision", train=str(tmp_path / f"{count}.npz")).cautions()
    few, unmeasured = found
    assert few.startswith("4 validation images: the score is mostly chance")
    assert unmeasured.startswith("no validation image has the label '1', so the score does not count it")


@pytest.mark.parametrize("kind", ["language", "masked", "vectors"])
def test_a_validation_text_that_is_in_the_training_text(tmp_path, kind):
    texts = sentences(2000, longest=20)
    train = write(tmp_path / "train.txt", texts)
    assert list(prepare(kind, train=(train,)).cautions()) == []
    valid = write(tmp_path / "valid.txt", texts[700:1500])
    (caution,) = prepare(kind, train=(train,), valid=(valid,)).cautions()
    share, _, rule = caution.partition("% of the validation text is in the training text, too, so the score ")
    assert int(share) >= 98  # before the first token is the end of a text, here only
    assert rule == "is too good; remove what is there twice, or give other data with --valid"
    half = write(tmp_path / "half.txt", [*texts[700:1100], *sentences(400, seed=1, longest=20)])
    (caution,) = prepare(kind, train=(train,), valid=(half,)).cautions()
    assert 45 <= int(caution.partition("%")[0]) <= 55


@given(st.lists(st.integers(0, 2), max_size=PASSAGE + 3), st.lists(st.integers(0, 2), max_size=5))
def test_passages_have_the_same_hash_wherever_they_begin(tokens, before):
    hashes = hash_passages(np.array(tokens, np.int64))
    assert len(hashes) == max(len(tokens) - PASSAGE + 1, 0)
    later = hash_passages(np.array([*before, *tokens], np.int64))
    assert later[len(later) - len(hashes) :].tolist() == hashes.tolist()
    passages = [tuple(tokens[first : first + PASSAGE]) for first in range(len(hashes))]
    assert len(set(passages)) == len(set(hashes.tolist()))


def test_a_part_of_a_training_text_is_compared():
    tokens = np.random.default_rng(0).integers(0, 9, 500)
    (caution,) = caution_passages(tokens[:300], tokens[100:], whole=False, unknown=9)
    assert caution.startswith("at least 50% of the validation text is in the training text, too")
    assert list(caution_passages(tokens[:300], tokens[300:], whole=True, unknown=9)) == []
    assert list(caution_passages(tokens[:300], tokens[:10], whole=True, unknown=9)) == []


def test_passages_of_unknown_tokens_are_not_compared():
    """A tokenizer of few words reads a text of many different ones as one token, again and again."""
    tokens = np.random.default_rng(0).integers(0, 9, 500)
    unknown = np.where(np.arange(500) % 50 < 30, 3, tokens)
    assert list(caution_passages(unknown, unknown, whole=True, unknown=3)) == []
    (caution,) = caution_passages(unknown, unknown, whole=True, unknown=9)
    assert caution.startswith("100% of the validation text is in the training text, too")


def test_rows_have_the_same_hash_only_if_they_have_the_same_tokens(tmp_path):
    task = prepare("translation", source=(pairs(tmp_path / "a.tsv", sentences(300)),))
    corpus = task.train[0].corpus
    rows = [tuple(corpus.padded(np.array([row]), int(corpus.lengths[row]), 0)[0].tolist()) for row in range(600)]
    hashes = hash_rows(corpus, np.arange(600)).tolist()
    assert len(set(rows)) > 100
    assert len(set(hashes)) == len(set(rows)) == len(set(zip(rows, hashes, strict=True)))
    both = hash_pairs(corpus, np.arange(300)).tolist()
    assert len(set(both)) == len(set(zip(rows[::2], rows[1::2], strict=True)))


@pytest.mark.parametrize(
    ("kind", "name", "write_file"),
    [
        ("residues", "chain", write_chains),
        ("distances", "structure", write_structures),
        ("trajectories", "window", partial(walks, steps=60)),
    ],
)
def test_proteins_and_recordings(tmp_path, kind, name, write_file):
    path = write_file(tmp_path / ("a.jsonl" if kind == "distances" else "a.tsv"))
    tokenizer = TokenizerConfig("char")
    assert "the score is mostly chance" in "".join(prepare(kind, tokenizer, train=(path,)).cautions())
    *_, shared = prepare(kind, tokenizer, train=(path,), valid=(path,)).cautions()
    assert f" validation {name}s are in the training data, too" in shared
