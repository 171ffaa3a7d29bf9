"""Models of the sentencepiece package, read without it: the same ids for the same texts."""

import io
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.data import sentencepiece as sentencepiece_reader
from regard.data.sentencepiece import read_sentencepiece
from regard.data.tokenizer import Tokenizer, load_tokenizer
from regard.errors import RegardError

sentencepiece = pytest.importorskip("sentencepiece")

WORDS = ["the", "cat", "sat", "on", "a", "mat", "then", "another", "came", "to", "sit", "there", "as", "well", "über"]
TEXT = [" ".join(np.random.default_rng(seed).choice(WORDS, 10)) + ", ﬁne!" for seed in range(100)]
LETTERS = "thecatsonmwlü \t\n.,!ﬁＡ▁日ж<>/😀"
texts = st.text(st.sampled_from(LETTERS), max_size=25) | st.lists(st.sampled_from([*WORDS, " ", "</s>", "<s>"])).map(
    "".join
)

CASES: dict[str, dict[str, Any]] = {
    "unigram": {"model_type": "unigram"},
    "unigram-bytes": {"model_type": "unigram", "byte_fallback": True, "vocab_size": 340},
    "unigram-plain": {"model_type": "unigram", "normalization_rule_name": "identity", "add_dummy_prefix": False},
    "unigram-blanks": {"model_type": "unigram", "remove_extra_whitespaces": False, "split_by_whitespace": False},
    "unigram-t5": {"model_type": "unigram", "pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1},
    "unigram-user": {"model_type": "unigram", "user_defined_symbols": ["<sep>", "cat"], "control_symbols": ["<ctl>"]},
    "bpe": {"model_type": "bpe"},
    "bpe-bytes": {"model_type": "bpe", "byte_fallback": True, "vocab_size": 340, "remove_extra_whitespaces": False},
    "bpe-plain": {"model_type": "bpe", "normalization_rule_name": "identity", "add_dummy_prefix": False},
    "bpe-user": {"model_type": "bpe", "add_dummy_prefix": False, "user_defined_symbols": ["<sep>", "cat"]},
    "bpe-names": {"model_type": "bpe", "bos_piece": "<BEGIN>", "eos_piece": "<STOP>", "unk_piece": "<WHAT>"},
    "char": {"model_type": "char"},
}


@cache
def model(name: str) -> bytes:
    """Train with the package."""
    return trained(**CASES[name])


def trained(**options: Any) -> bytes:
    written = io.BytesIO()
    settings = {"vocab_size": 70, "hard_vocab_limit": False, "minloglevel": 2, "num_threads": 1} | options
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(TEXT), model_writer=written, **settings)
    return written.getvalue()


@cache
def both(name: str) -> tuple[Tokenizer, Any]:
    return ours(model(name)), sentencepiece.SentencePieceProcessor(model_proto=model(name))


def ours(data: bytes) -> Tokenizer:
    with TemporaryDirectory() as folder:
        (Path(folder) / "spiece.model").write_bytes(data)
        return load_tokenizer(Path(folder))


@pytest.mark.parametrize("name", CASES)
@given(text=texts)
def test_ids_are_those_of_the_package(name: str, text: str) -> None:
    read, theirs = both(name)
    [ids] = read.encode([text])
    assert ids.tolist() == theirs.encode(text)


@pytest.mark.parametrize("name", ["unigram-user", "bpe-user"])
@given(parts=st.lists(st.sampled_from(["<sep>", "cat", "<ctl>", "c", "at", " ", "the", "<se"]), max_size=8))
def test_user_defined_pieces_are_found_in_a_text(name: str, parts: list[str]) -> None:
    read, theirs = both(name)
    assert read.encode(["".join(parts)])[0].tolist() == theirs.encode("".join(parts))


@pytest.mark.parametrize("name", CASES)
@given(words=st.lists(st.sampled_from([*WORDS, "é", "日", "<0x41>"]), max_size=6))
def test_texts_are_those_of_the_package(name: str, words: list[str]) -> None:
    read, theirs = both(name)
    ids = [id for id in theirs.encode(" ".join(words)) if id != theirs.unk_id()]
    assert read.decode([ids]) == [theirs.decode(ids)]


@pytest.mark.parametrize("name", CASES)
def test_special_ids_are_those_of_the_package(name: str) -> None:
    read, theirs = both(name)
    added = iter(range(theirs.get_piece_size(), read.size))
    wanted = {
        "pad": theirs.pad_id(),
        "unk": theirs.unk_id(),
        "start": theirs.bos_id(),
        "end": theirs.eos_id(),
        "mask": -1,
    }
    for role, id in wanted.items():
        assert getattr(read, role) == (next(added) if id < 0 else id), role
    assert list(added) == []


@pytest.mark.parametrize("name", ["unigram", "bpe", "unigram-blanks"])
def test_a_saved_model_is_complete(name: str, tmp_path: Path) -> None:
    both(name)[0].save(tmp_path)
    again = load_tokenizer(tmp_path)
    assert again.fingerprint() == both(name)[0].fingerprint()
    assert [row.tolist() for row in again.encode(TEXT)] == both(name)[1].encode(TEXT)


def test_unused_pieces_do_not_occur() -> None:
    from sentencepiece import sentencepiece_model_pb2

    message = sentencepiece_model_pb2.ModelProto.FromString(model("unigram"))
    cat = next(piece for piece in message.pieces if piece.piece == "▁cat")
    cat.type = 5
    theirs = sentencepiece.SentencePieceProcessor(model_proto=message.SerializeToString())
    read = ours(message.SerializeToString())
    assert theirs.encode("the cat") != both("unigram")[1].encode("the cat")
    assert read.encode(["the cat"])[0].tolist() == theirs.encode("the cat")


# --- files that are none -------------------------------------------------------------------------------------------


def refused(data: bytes, message: str, folder: Path) -> None:
    (folder / "x.model").write_bytes(data)
    with pytest.raises(RegardError, match=f"x.model: {message}"):
        load_tokenizer(folder / "x.model")


def damaged() -> Iterator[bytes]:
    yield from (b"", b"\x00", b"\x0b", b"hello world", b"\x0a\xff", model("bpe")[:-3], model("bpe")[:50])
    yield b"\x0a\x02\x0a\x00" + b"\x12\x02\x18\x09"  # an unknown segmentation
    yield b"\x08\x01"  # a number where a piece should be


@pytest.mark.parametrize("data", list(damaged()))
def test_a_file_that_is_not_a_model_is_refused(data: bytes, tmp_path: Path) -> None:
    refused(data, "not a sentencepiece model, or damaged", tmp_path)


def test_an_integer_without_an_end_is_refused_after_ten_bytes() -> None:
    read = []

    class Recorded(bytes):
        def __getitem__(self, index):
            read.append(index)
            return super().__getitem__(index)

    with pytest.raises(ValueError, match="more than ten bytes"):
        sentencepiece_reader._fields(Recorded(b"\xff" * 1000))
    assert read == list(range(10))


@given(cut=st.integers(0, 2000), noise=st.binary(max_size=8))
def test_damage_never_ends_in_a_traceback(cut: int, noise: bytes) -> None:
    data = model("unigram")[:cut] + noise + model("unigram")[cut + len(noise) :]
    with suppress(RegardError):
        assert ours(data).size > 0


def test_unsupported_features_are_refused(tmp_path: Path) -> None:
    refused(trained(model_type="word"), "a sentencepiece model with whole words cannot be read; convert it", tmp_path)
    suffix = trained(model_type="bpe", treat_whitespace_as_suffix=True)
    refused(suffix, "a sentencepiece model with a space after each word instead of before it cannot be read", tmp_path)
    user = trained(model_type="bpe", user_defined_symbols=["<sep>"])
    refused(user, "a sentencepiece model with user-defined pieces and a dummy prefix cannot be read", tmp_path)


def test_a_model_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(RegardError, match="x.model: cannot be read: No such file or directory"):
        read_sentencepiece(tmp_path / "x.model")
