"""Vocabularies: what is sampled, what is learned, and that learning twice gives the same."""

import numpy as np
import pytest
from tokenizers import pre_tokenizers

from regard.data.vocabulary import (
    SPECIAL,
    byte_characters,
    characters_of,
    code_points,
    learn_bpe,
    learn_unigram,
    learn_words,
    sample_texts,
)
from regard.errors import ConfigError, InputError, RegardError

WORDS = ["the", "cat", "sat", "on", "a", "mat", "and", "then", "other", "came", "to", "sit", "there", "as", "well"]
TEXTS = [" ".join(np.random.default_rng(seed).choice(WORDS, 12)) + "." for seed in range(60)]


def test_byte_characters_are_those_of_the_library() -> None:
    assert sorted(byte_characters()) == sorted(pre_tokenizers.ByteLevel.alphabet())
    [(letters, _)] = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False).pre_tokenize_str("a é\n")
    assert letters == "".join(byte_characters()[byte] for byte in "a é\n".encode())


def test_a_small_text_is_sampled_whole() -> None:
    assert sample_texts(iter(TEXTS)) == TEXTS


@pytest.mark.parametrize("limit", [100, 1000, 3000])
def test_a_sample_is_bounded_and_even(limit: int) -> None:
    texts = [f"{number:05}" for number in range(20_000)]
    kept = sample_texts(texts, limit)
    assert limit / 2 <= 5 * len(kept) <= limit
    places = np.array([int(text) for text in kept])
    assert np.all(np.diff(places) > 0)
    assert np.diff(places).max() <= 3 * 20_000 / len(kept)
    assert abs((places % 2).mean() - 0.5) < 0.2  # both of two alternating languages are in it


def test_a_sample_counts_bytes_and_cuts_long_texts() -> None:
    [long, rest] = sample_texts(["é" * 100_001])
    assert (len(long), len(rest)) == (100_000, 1)
    assert len(sample_texts(["éé", "éé"], limit=7)) == 1


def test_all_characters_in_order() -> None:
    assert characters_of(["b\na", "日a😀"]) == ["\n", "a", "b", "日", "😀"]


@pytest.mark.parametrize("texts", [[], [""]])
def test_an_empty_text_is_refused(texts: list[str]) -> None:
    with pytest.raises(RegardError, match="the text is empty, so no tokenizer can be learned from it; give files"):
        characters_of(texts)
    with pytest.raises(RegardError, match="the text is empty"):
        sample_texts([*texts, " \n"])


def test_half_a_character_is_refused() -> None:
    with pytest.raises(InputError, match=r"half a character \(a lone surrogate such as \\ud800\); remove or replace"):
        code_points("a\ud800")
    with pytest.raises(InputError, match="half a character"):
        sample_texts(["a\ud800"])


@pytest.mark.parametrize(("learn", "size"), [(learn_words, 12), (learn_bpe, 280), (learn_unigram, 30)])
def test_learning_twice_gives_the_same(learn, size: int) -> None:
    first, *others = [learn(TEXTS, size, False).to_str() for _ in range(4)]
    assert others == [first] * 3


@pytest.mark.parametrize(("learn", "size"), [(learn_words, 12), (learn_bpe, 280), (learn_unigram, 40)])
def test_a_vocabulary_has_the_size_asked_for_and_special_tokens_first(learn, size: int) -> None:
    vocabulary = learn(TEXTS, size, False).get_vocab()
    assert len(vocabulary) == size
    assert [vocabulary[name] for name in SPECIAL] == [0, 1, 2, 3, 4]


def test_words_are_the_most_frequent() -> None:
    backend = learn_words(["to be, or not to be", "to do"], 8, False)
    assert sorted(set(backend.get_vocab()) - set(SPECIAL)) == [",", "be", "to"]


def test_bpe_merges_the_most_frequent_pair_first() -> None:
    backend = learn_bpe(["abab abab cd"], 256 + 5 + 2, False)
    assert sorted(backend.get_vocab(), key=backend.get_vocab().__getitem__)[-2:] == ["ab", "abab"]


def test_rare_characters_are_not_in_a_unigram_vocabulary() -> None:
    common = [text for text in TEXTS for _ in range(10)]
    vocabulary = learn_unigram([*common, "日 本"], 40, False).get_vocab()
    assert not {"日", "本"} & set("".join(vocabulary))
    assert set("".join(TEXTS).replace(" ", "▁")) <= set(vocabulary)


@pytest.mark.parametrize("size", range(6, 9))
def test_a_unigram_vocabulary_below_its_alphabet_is_refused(size: int) -> None:
    wanted = f"vocabulary: {size} is too small: the text has 4 characters, and there are 5 special tokens; raise it"
    with pytest.raises(ConfigError, match=wanted):
        learn_unigram(["abc abc"], size, False)
    assert learn_unigram(["abc abc"], 9, False).get_vocab_size() == 9
