"""Text as it arrives is the text, for all kinds of tokenizers, however the ids are handed out."""

import pytest
import tokenizers
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import decoders, models

from regard.data.tokenizer import Tokenizer
from regard.use.stream import CONTEXT, Stops, TextStream

from .made import tokenizer_of


def with_byte_fallback(strip: int = 1) -> Tokenizer:
    """Pieces as sentencepiece has them, and bytes for all other characters."""
    pieces = ["<unk>", "▁", "▁a", "b", "▁cat", "é", *(f"<0x{byte:02X}>" for byte in range(256))]
    backend = tokenizers.Tokenizer(models.Unigram([(piece, -1.0) for piece in pieces], 0, byte_fallback=True))
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", strip, 0)]
    backend.decoder = decoders.Sequence(steps)
    return Tokenizer(backend)


KINDS = {kind: tokenizer_of(kind) for kind in ("byte", "char", "word", "bpe", "unigram")}
KINDS |= {"fallback": with_byte_fallback(), "fallback without blanks": with_byte_fallback(100)}


def ids_of(words: Tokenizer, text: str) -> list[int]:
    return words.encode([text])[0].tolist()


def cut(ids: list[int], lengths: list[int]) -> list[list[int]]:
    """Cut ids into pieces of these lengths, and the rest."""
    pieces, begin = [], 0
    for length in lengths:
        pieces.append(ids[begin : begin + length])
        begin += length
    return [*pieces, ids[begin:]]


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=150)
@given(data=st.data())
def test_the_pieces_are_the_text(kind, data):
    words = KINDS[kind]
    spoken = [id for id in range(words.size) if id not in (words.pad, words.unk, words.start, words.end, words.mask)]
    ids = data.draw(st.lists(st.sampled_from(spoken), max_size=60))
    before = data.draw(st.sampled_from([[words.end], ids_of(words, "a cat"), ids_of(words, "red é")]))
    stream = TextStream(words, before)
    shown = [stream.push(piece) for piece in cut(ids, data.draw(st.lists(st.integers(0, 4), max_size=40)))]
    whole = words.decode([[*before, *ids]])[0]
    assert "".join(shown) + stream.end() == whole[len(words.decode([before])[0]) :]


@given(st.text("aé日😀 .", min_size=1, max_size=40))
def test_no_character_is_shown_in_part(text):
    words = KINDS["byte"]
    stream = TextStream(words)
    pieces = [stream.push([id]) for id in ids_of(words, text)]
    assert "".join(pieces) == text
    assert not any("\ufffd" in piece for piece in pieces)
    assert stream.end() == ""


def test_what_never_becomes_a_character_is_shown_at_the_end():
    words = KINDS["byte"]
    stream = TextStream(words)
    first, second = ids_of(words, "é")
    assert stream.push([first]) == ""
    assert stream.end() == "\ufffd"
    assert stream.end() == ""
    stream = TextStream(words)
    assert [stream.push([first]), stream.push([first]), stream.push([second])] == ["", "\ufffd", "é"]


def test_old_tokens_are_forgotten():
    words = KINDS["bpe"]
    stream = TextStream(words)
    for _ in range(50):
        stream.push(ids_of(words, " red dog"))
        assert len(stream.ids) < 3 * CONTEXT + 8


def test_a_blank_belongs_to_the_word_after_it():
    words = KINDS["unigram"]
    prompt, more = (ids_of(words, text) for text in ("red", "dog runs"))
    stream = TextStream(words, prompt)
    assert stream.push(more) + stream.end() == " dog runs"


@example(["ac", "b"], ["c", "acb"])
@example(["acb"], ["c", "acb"])
@given(st.lists(st.text("abc", max_size=4), max_size=8), st.lists(st.text("abc", min_size=1, max_size=3), max_size=3))
def test_stops(pieces, strings):
    stops = Stops(strings)
    shown = ""
    for piece in pieces:
        shown += stops.push(piece)
        assert not any(string in shown for string in strings)
    text = "".join(pieces)
    places = [(text.find(string) + len(string), text.find(string)) for string in strings if string in text]
    assert stops.found == bool(places)
    assert shown + stops.end() == text[: min(places, default=(0, len(text)))[1]]
