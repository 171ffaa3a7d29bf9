"""Tokens as the page shows them, and the words that they are pieces of."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.viewer.tokens import added_texts, describe_tokens, number_words, token_text

from ..use.made import tokenizer_of

KINDS = ["byte", "char", "bpe", "word", "unigram"]


def grouped(texts: list[str], words: list[int]) -> list[str]:
    """Join the texts of each word."""
    found: dict[int, str] = {}
    for text, word in zip(texts, words, strict=True):
        found[word] = found.get(word, "") + text
    return [text.strip() for _, text in sorted(found.items()) if text.strip()]


@pytest.mark.parametrize("kind", KINDS)
def test_pieces_of_one_word_are_grouped_for_every_tokenizer(kind):
    words = tokenizer_of(kind)
    ids = words.encode(["one red dog, two cats."])[0].tolist()
    shown = describe_tokens(words, ids)
    assert [token["id"] for token in shown] == ids
    assert not any(token["special"] for token in shown if token["id"] != words.unk)
    found = grouped([token["text"] for token in shown], [token["word"] for token in shown])
    known = ["one", "red", "dog", ",", "two", "cats", "."]
    if kind == "word":  # unknown words
        known = [word if words.encode([word])[0][0] != words.unk else "<unk>" for word in known]
    assert found == known


def test_special_tokens_are_not_words():
    words = tokenizer_of("bpe")
    text = words.encode(["red dog"])[0].tolist()
    shown = describe_tokens(words, [words.start, *text, words.end, *text, words.pad])
    ends = [place for place, token in enumerate(shown) if token["word"] == -1]
    assert (
        ends == [place for place, token in enumerate(shown) if token["special"]] == [0, len(text) + 1, len(shown) - 1]
    )
    assert shown[0]["text"] == "<s>"
    first, second = shown[1 : len(text) + 1], shown[len(text) + 2 : -1]
    assert {token["word"] for token in first}.isdisjoint(token["word"] for token in second)


def test_masked_and_unknown_tokens_are_words_of_their_own():
    words = tokenizer_of("bpe")
    text = words.encode(["red"])[0].tolist()
    shown = describe_tokens(words, [*text, words.mask, words.unk, words.mask, *text])
    middle = shown[len(text) : len(text) + 3]
    assert [token["special"] for token in middle] == [False] * 3
    assert len({token["word"] for token in middle} | {token["word"] for token in shown}) == 5
    assert [token["text"] for token in middle] == ["<mask>", "<unk>", "<mask>"]


@pytest.mark.parametrize("text", ["grüne Bäume", "日本語 😀", "</script><img onerror=x>", "a\n\tb", "naïve café"])
@pytest.mark.parametrize("kind", ["byte", "bpe"])
def test_odd_texts(kind, text):
    words = tokenizer_of(kind)
    ids = words.encode([text])[0].tolist()
    assert words.decode([ids])[0] == text
    shown = describe_tokens(words, ids)
    assert [token["word"] for token in shown] == sorted(token["word"] for token in shown)
    blanks = len(text.split()) - 1
    assert max(token["word"] for token in shown) >= blanks
    for token in shown:
        token["text"].encode()  # is Unicode: other bytes are written as \xNN
    assert "".join(added_texts(words, ids)).count(" ") == text.count(" ")


def test_a_character_in_several_tokens_is_not_cut_off_its_word():
    words = tokenizer_of("byte")
    shown = describe_tokens(words, words.encode(["über Äpfel"])[0].tolist())
    numbers = [token["word"] for token in shown]
    assert numbers == [0] * 5 + [1] + [2] * 6
    assert [token["text"] for token in shown][:2] == ["\\xc3", "\\xbc"]


@pytest.mark.parametrize(
    ("texts", "wanted"),
    [
        ([], []),
        (["the", " river", "."], [0, 1, 2]),
        (["don", "'", "t"], [0, 0, 0]),
        ([" (", "a", "b", ")", "."], [0, 1, 1, 2, 2]),
        (["a", " ", "b", "\n", "\n"], [0, 1, 2, 3, 4]),
        (["..", ".", " -"], [0, 0, 1]),
        (["", "a"], [0, 1]),
        (["a", "", "", " b"], [0, 0, 0, 1]),
    ],
)
def test_words_by_hand(texts, wanted):
    assert number_words(texts) == wanted


@given(st.lists(st.text("ab. ,", max_size=3), max_size=20))
def test_words_are_counted_without_a_gap(texts):
    numbers = number_words(texts)
    assert len(numbers) == len(texts)
    assert numbers == sorted(numbers)
    assert sorted(set(numbers)) == list(range(len(set(numbers))))


def test_without_a_tokenizer_tokens_are_numbers():
    assert describe_tokens(None, [7, 7]) == [
        {"text": "7", "id": 7, "special": False, "word": 0},
        {"text": "7", "id": 7, "special": False, "word": 1},
    ]


def test_residues_are_words_of_their_own():
    residues = tokenizer_of("residues")
    ids = residues.encode("MKTAY").tolist()
    assert [token["word"] for token in describe_tokens(residues, ids)] == [0] * 5
    assert [token["word"] for token in describe_tokens(residues, ids, has_words=False)] == [0, 1, 2, 3, 4]


def test_a_model_may_have_more_tokens_than_its_tokenizer():
    words = tokenizer_of("bpe")
    assert token_text(words, words.size + 3) == f"<unused {words.size + 3}>"
    shown = describe_tokens(words, [*words.encode(["red"])[0].tolist(), words.size + 3])
    assert shown[-1]["text"] == f"<unused {words.size + 3}>"
