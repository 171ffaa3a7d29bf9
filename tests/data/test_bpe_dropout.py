"""BPE-dropout against the library without dropout, against the probabilities of the paper, and from its seed."""

from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import models, pre_tokenizers

from regard.data import bpe_dropout
from regard.data.bpe_dropout import BPEDropout
from regard.data.tokenizer import Tokenizer, TokenizerConfig, train_tokenizer
from regard.data.word_splits import WordSplits
from regard.errors import ConfigError

MERGES = [("a", "b"), ("b", "c"), ("ab", "c"), ("c", "d"), ("abc", "d"), ("a", "a")]


def by_hand(**options) -> tokenizers.Tokenizer:
    """Make a tokenizer of the letters a to d, with a few merges."""
    names = ["?", "a", "b", "c", "d", *("".join(pair) for pair in MERGES)]
    model = models.BPE({name: id for id, name in enumerate(names)}, MERGES, unk_token="?", **options)
    backend = tokenizers.Tokenizer(model)
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    return backend


def learned() -> Tokenizer:
    texts = ["the cat sat on the mat", "the dog and the cat", "grüße, Grüße!", "日本 日本語"] * 3
    return train_tokenizer(texts, TokenizerConfig("bpe", 300))


LEARNED = learned()


def lists(rows: list[np.ndarray]) -> list[list[int]]:
    return [row.tolist() for row in rows]


@given(st.lists(st.text(alphabet="abcd x", max_size=12), max_size=5))
def test_without_dropout_all_merges_are_made(texts: list[str]) -> None:
    backend = by_hand()
    wanted = [encoding.ids for encoding in backend.encode_batch(texts)]
    assert lists(BPEDropout(backend, 0.0).encode(texts, [0])) == wanted


@given(st.lists(st.text(max_size=12) | st.text(alphabet="the catdogrüß日本語", max_size=30), max_size=5))
def test_without_dropout_bytes_are_merged_as_the_library_merges_them(texts: list[str]) -> None:
    assert lists(BPEDropout(LEARNED._plain, 0.0).encode(texts, [0])) == lists(LEARNED.encode(texts))


def test_without_dropout_prefixes_inside_words_are_understood() -> None:
    names = ["a", "##a", "##b", "aa", "##bb", "aabb"]
    merges = [("a", "##a"), ("##b", "##b"), ("aa", "##bb")]
    model = models.BPE({name: id for id, name in enumerate(names)}, merges, continuing_subword_prefix="##")
    backend = tokenizers.Tokenizer(model)
    texts = ["aabb", "aab", "aaabbb", "a"]
    wanted = [encoding.ids for encoding in backend.encode_batch(texts)]
    assert wanted[0] == [5]
    assert lists(BPEDropout(backend, 0.0).encode(texts, [0])) == wanted


@given(st.lists(st.text(max_size=12), max_size=5), st.floats(0, 1), st.integers(0, 2**40))
def test_dropout_never_changes_the_text(texts: list[str], dropout: float, seed: int) -> None:
    assert LEARNED.decode(BPEDropout(LEARNED._plain, dropout).encode(texts, [seed])) == texts


def test_no_texts_and_empty_texts() -> None:
    varied = BPEDropout(by_hand(), 0.5)
    assert varied.encode([], [0]) == []
    assert lists(varied.encode(["", "a", ""], [0])) == [[], [1], []]


def probabilities(word: tuple[str, ...], dropout: float) -> Counter[tuple[str, ...]]:
    """Compute the probability of every way to split a word: all ways to drop merges, step by step."""
    possible = sorted((MERGES.index(pair), place) for place, pair in enumerate(pairwise(word)) if pair in MERGES)
    found: Counter[tuple[str, ...]] = Counter({word: dropout ** len(possible)})  # type: ignore[dict-item]
    for number, (rank, place) in enumerate(possible):
        merged = (*word[:place], "".join(MERGES[rank]), *word[place + 2 :])
        for ending, chance in probabilities(merged, dropout).items():
            found[ending] += dropout**number * (1 - dropout) * chance  # type: ignore[assignment]
    return found


@pytest.mark.parametrize("long", [32, 4], ids=["table", "no table"])
@pytest.mark.parametrize("dropout", [0.1, 0.5])
def test_every_split_has_the_probability_of_the_paper(dropout: float, long: int, monkeypatch) -> None:
    monkeypatch.setattr(bpe_dropout, "LONG", long)
    wanted = probabilities(tuple("aabcd"), dropout)
    assert sum(wanted.values()) == pytest.approx(1)
    backend, count = by_hand(), 20_000
    rows = BPEDropout(backend, dropout).encode(["aabcd"] * count, [1])
    found = Counter(tuple(backend.id_to_token(id) for id in row) for row in lists(rows))
    assert set(found) <= set(wanted)
    for split, chance in wanted.items():
        deviation = (count * chance * (1 - chance)) ** 0.5
        assert abs(found[split] - count * chance) <= 4.5 * deviation + 1, split


def test_the_same_seed_gives_the_same_ids_on_every_machine() -> None:
    varied = BPEDropout(by_hand(), 0.5)
    texts = ["aabcd abcd", "abab abc"]
    first = lists(varied.encode(texts, [7, 1]))
    assert first == lists(BPEDropout(by_hand(), 0.5).encode(texts, [7, 1]))
    assert first == [[10, 2, 8, 7, 4], [5, 5, 1, 6]]
    assert len({str(lists(varied.encode(texts, [7, number]))) for number in range(20)}) > 10


def test_occurrences_of_a_word_are_split_independently() -> None:
    varied, count = BPEDropout(by_hand(), 0.5), 20_000
    (row,) = varied.encode([" ".join(["ab"] * count)], [3])
    split = np.array([len(one) == 2 for one in varied.encode(["ab"] * count, [4])])
    both = np.mean(split[1:] & split[:-1])  # of two neighbours
    assert abs(split.mean() - 0.5) < 4.5 * 0.5 / count**0.5
    assert abs(both - 0.25) < 4.5 * 0.5 / count**0.5
    assert abs(len(row) / count - 1.5) < 4.5 * 0.5 / count**0.5


def test_what_was_encoded_before_changes_nothing(monkeypatch) -> None:
    texts = ["the cat  sat on\nthe mat, don't", "grüße 日本語 the cat", "", " the " + "cat" * 30, "dog\n"]
    varied = BPEDropout(LEARNED._plain, 0.3)
    first = lists(varied.encode(texts, [1]))
    varied.encode(["a dog and another cat", *texts[:2]], [2])
    assert lists(varied.encode(texts, [1])) == first
    assert LEARNED.decode(varied.encode(texts, [1])) == texts
    monkeypatch.setattr(bpe_dropout, "KEPT", 0)  # everything is forgotten before each call
    assert lists(varied.encode(texts, [1])) == first
    monkeypatch.setattr(varied, "_pieces", None)  # words of whole texts instead of those of pieces
    assert lists(varied.encode(texts, [1])) == first


def test_an_interrupt_changes_no_later_ids(monkeypatch) -> None:
    def interrupted(self: WordSplits, ids: np.ndarray, lengths: np.ndarray) -> None:
        raise KeyboardInterrupt

    varied = BPEDropout(LEARNED._plain, 0.3)
    with monkeypatch.context() as patch:
        patch.setattr(WordSplits, "add", interrupted)
        with pytest.raises(KeyboardInterrupt):
            varied.encode(["mat the cat"], [1])
    for text in ("on the mat", "the cat"):
        assert LEARNED.decode(varied.encode([text], [1])) == [text]


def test_dropout_is_for_bpe_only() -> None:
    backend = tokenizers.Tokenizer(models.WordLevel({"a": 0, "?": 1}, unk_token="?"))
    with pytest.raises(ConfigError, match="dropout: 0.1 is for BPE only; this tokenizer is of the kind WordLevel"):
        BPEDropout(backend, 0.1)
