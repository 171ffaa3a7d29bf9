"""The table of pieces: the ids are those of the whole text, whatever is in the table."""

import numpy as np
import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import models, normalizers, pre_tokenizers

from regard.data import pieces
from regard.data.pieces import PieceTable, can_cut
from regard.data.ragged import GrowingArray
from regard.data.tokenizer import Tokenizer, TokenizerConfig, train_tokenizer
from regard.errors import InputError

BLANKS = " \t\n\r\x0b\x1c\x85\xa0\u180e\u2003\u200b\u2028\u3000"
TEXTS = ["the cat  sat on\n\nthe mat, don't  's\n", "12 cats\t\tsat   ...\n  \n", "日本 grüße “the” – cat \xa0 12"] * 4
LEARNED = train_tokenizer(TEXTS, TokenizerConfig("bpe", 340))
SPACED = st.text(st.sampled_from("a1'.é_日s“" + " \n" * 4 + BLANKS), max_size=20)


def whole(texts: list[str]) -> list[list[int]]:
    return [encoding.ids for encoding in LEARNED._plain.encode_batch(texts, add_special_tokens=False)]


@given(st.lists(SPACED | st.text(st.characters(exclude_categories=["Cs"]), max_size=20), max_size=4))
def test_pieces_have_the_ids_of_the_text(texts: list[str]) -> None:
    assert [row.tolist() for row in LEARNED.encode(texts)] == whole(texts)


def test_runs_of_blanks_are_merged_as_in_the_text() -> None:
    texts = [
        f"{left}{run}{right}"
        for left in ("", "a", "'")
        for run in (a + b + c for a in BLANKS for b in BLANKS for c in ("", *BLANKS))
        for right in ("", "b", "'s", "1", "“")
    ]
    assert [row.tolist() for row in LEARNED.encode(texts)] == whole(texts)


def test_a_full_table_is_emptied(monkeypatch) -> None:
    calls: list[list[str]] = []

    def encode(texts: list[str]) -> list[np.ndarray]:
        calls.append(texts)
        return [np.frombuffer(text.encode(), np.uint8).astype(np.int32) for text in texts]

    table = PieceTable(encode)
    for _ in range(2):
        values, lengths = table.look_up(["a b", "", "b b"])
        assert bytes(values.astype(np.uint8)) == b"a bb b"
        assert lengths.tolist() == [3, 0, 3]
    assert calls == [["a", " b", "", "b"]]
    monkeypatch.setattr(pieces, "KEPT", 1)
    table.look_up(["a c"])
    assert calls[1:] == [["a", " c"]]


def test_a_piece_that_cannot_be_encoded_is_not_kept() -> None:
    for _ in range(2):
        with pytest.raises(InputError, match="a lone surrogate"):
            LEARNED.encode(["the \ud800"])
    assert LEARNED.decode(LEARNED.encode(["the cat"])) == ["the cat"]


def test_after_an_interrupt_the_table_begins_again(monkeypatch) -> None:
    learned = Tokenizer(LEARNED._backend)
    extend = GrowingArray.extend

    def interrupted(self: GrowingArray, values: np.ndarray) -> None:
        if self is learned._pieces._values:
            raise KeyboardInterrupt
        extend(self, values)

    with monkeypatch.context() as patch:
        patch.setattr(GrowingArray, "extend", interrupted)
        with pytest.raises(KeyboardInterrupt):
            learned.encode(["sat on"])
    assert learned.decode(learned.encode(["the cat", "sat on"])) == ["the cat", "sat on"]


def test_only_tokenizers_that_can_be_cut_have_a_table() -> None:
    assert can_cut(LEARNED._plain)
    assert not can_cut(LEARNED.adding(["a b"])._plain)
    other = tokenizers.Tokenizer(models.BPE())
    assert not can_cut(other)
    other.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    assert not can_cut(other)
    other.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    assert can_cut(other)
    other.normalizer = normalizers.NFKC()
    assert not can_cut(other)


def test_a_row_does_not_keep_the_others() -> None:
    rows = Tokenizer(LEARNED._backend).encode(["the cat", "the mat"])
    assert all(row.base is None for row in rows)
