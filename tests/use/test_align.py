"""Words that belong together, from weights between tokens."""

import pytest
import torch

from regard.use.align import align_words, pharaoh, words_of
from regard.use.fit import Part

from .made import tokenizer_of


def test_words_of_spans():
    text = " red  dog runs"
    assert words_of(text, [(0, 4), (4, 6), (5, 9), (7, 8), (9, 14), (3, 3)]) == [0, None, 1, 1, 2, None]


@pytest.mark.parametrize("kind", ["byte", "char", "bpe", "word", "unigram"])
def test_a_word_for_each_word(kind):
    """Whatever the tokens, each looks at the first token of the word of the same place from the end."""
    words = tokenizer_of(kind)
    source, target = "one red dog", "cat blue two"
    part = Part(words.encode([source])[0], source, words=4)
    ids = words.encode([target])[0].tolist()
    text = words.decode([ids])[0]
    assert text == target
    spans = words.spans([source])[0]
    begins = [source.index(word) for word in source.split()]
    first_of = [next(place for place, (_, end) in enumerate(spans) if end > begin) for begin in begins]
    weights = torch.zeros(len(ids), len(spans) + 1, dtype=torch.float64)
    weights[:, -1] = 9.0  # the end token gets most of the attention, but belongs to no word
    shown = [words.decode([ids[: count + 1]])[0] for count in range(len(ids))]
    for row, so_far in enumerate(shown):
        weights[row, first_of[2 - max(len(so_far.split()) - 1, 0)]] = 0.5
    assert align_words(words, part, ids, text, weights) == ((4, 2), (5, 1), (6, 0))


def test_several_words_of_one():
    words = tokenizer_of("word")
    part = Part(words.encode(["red dog"])[0], "red dog")
    ids = words.encode(["cat runs blue"])[0].tolist()
    weights = torch.tensor([[0.1, 0.9], [0.2, 0.8], [0.7, 0.3]], dtype=torch.float64)
    assert align_words(words, part, ids, "cat runs blue", weights) == ((0, 2), (1, 0), (1, 1))


def test_pharaoh():
    assert pharaoh(((0, 0), (1, 2))) == "0-0 1-2"
    assert pharaoh(()) == ""
