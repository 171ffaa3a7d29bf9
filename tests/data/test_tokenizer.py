"""Tokenizers: no text is lost, no text becomes a special token, and a saved file is complete."""

import json
import pickle
from collections.abc import Callable
from copy import deepcopy
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import tokenizers
import torch
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import decoders, models, pre_tokenizers, processors

from regard.config import from_table
from regard.data.tokenizer import Tokenizer, TokenizerConfig, load_tokenizer, train_tokenizer
from regard.errors import ConfigError, InputError, RegardError

KINDS = ("char", "byte", "word", "space", "bpe", "unigram")
TEXTS = ["the cat sat on the mat.\n", "a  cat, a mat: </s><pad> </ s > [MASK]", "überall 日本 😀\ttäglich junk"] * 3
INJECTIONS = ["</s>", "<mask>cat", "the <pad> cat", "<unk>", "a<s>b", "</s></s>"]
KNOWN = sorted(set("".join(TEXTS)))
any_text = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
known_text = st.text(st.sampled_from(KNOWN), max_size=30)


@cache
def learned(kind: str, dropout: float = 0.0) -> Tokenizer:
    return train_tokenizer(TEXTS, TokenizerConfig(kind=kind, vocabulary=300, dropout=dropout))


def lists(rows: list[np.ndarray]) -> list[list[int]]:
    assert all(row.dtype == np.int32 and row.ndim == 1 for row in rows)
    return [row.tolist() for row in rows]


def library(tokenizer: Tokenizer, folder: Path) -> tokenizers.Tokenizer:
    """Read what was saved with the library alone."""
    tokenizer.save(folder)
    return tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))


@given(st.lists(known_text, max_size=4))
def test_characters_lose_nothing(texts: list[str]) -> None:
    tokenizer = learned("char")
    rows = tokenizer.encode(texts)
    assert tokenizer.decode(rows) == texts
    assert [len(row) for row in rows] == [len(text) for text in texts]


@pytest.mark.parametrize("kind", ["byte", "bpe"])
@given(texts=st.lists(any_text | known_text, max_size=4))
def test_bytes_lose_nothing(kind: str, texts: list[str]) -> None:
    tokenizer = learned(kind)
    rows = tokenizer.encode(texts)
    assert tokenizer.decode(rows) == texts
    if kind == "byte":
        assert [(row - 5).tolist() for row in rows] == [list(text.encode()) for text in texts]


@pytest.mark.parametrize("kind", ["char", "byte"])
@given(text=any_text | known_text)
def test_the_table_gives_the_ids_of_the_file(kind: str, text: str) -> None:
    own = tokenizers.Tokenizer.from_str(learned(kind)._backend.to_str())
    own.encode_special_tokens = True
    assert lists(learned(kind).encode([text])) == [own.encode(text).ids]


@pytest.mark.parametrize("kind", KINDS)
def test_ids_are_those_of_the_library(kind: str, tmp_path: Path) -> None:
    texts = [text.replace("</s><pad>", "") for text in TEXTS]
    encodings = library(learned(kind), tmp_path).encode_batch(texts)
    assert lists(learned(kind).encode(texts)) == [encoding.ids for encoding in encodings]


@pytest.mark.parametrize("kind", KINDS)
def test_a_saved_tokenizer_is_complete(kind: str, tmp_path: Path) -> None:
    learned(kind).save(tmp_path / "new" / "folder")
    assert [path.name for path in (tmp_path / "new" / "folder").iterdir()] == ["tokenizer.json"]
    again = load_tokenizer(tmp_path / "new" / "folder")
    assert again.fingerprint() == learned(kind).fingerprint()
    assert again.size == learned(kind).size
    assert lists(again.encode(TEXTS)) == lists(learned(kind).encode(TEXTS))
    assert (again.pad, again.unk, again.start, again.end, again.mask) == (0, 1, 2, 3, 4)


def test_different_tokenizers_have_different_fingerprints() -> None:
    assert len({learned(kind).fingerprint() for kind in KINDS}) == len(KINDS)


@pytest.mark.parametrize("kind", KINDS)
def test_text_does_not_become_a_special_token(kind: str) -> None:
    tokenizer = learned(kind)
    for row in lists(tokenizer.encode(INJECTIONS)):
        assert not {tokenizer.pad, tokenizer.start, tokenizer.end, tokenizer.mask} & set(row)
    if kind in ("char", "byte", "bpe"):
        assert tokenizer.decode(tokenizer.encode(INJECTIONS)) == INJECTIONS


@pytest.mark.parametrize("kind", KINDS)
def test_special_tokens_are_found_where_that_is_asked_for(kind: str) -> None:
    tokenizer = learned(kind)
    [row] = lists(tokenizer.encode(["the <mask> sat</s>"], special=True))
    assert row.count(tokenizer.mask) == 1
    assert row[-1] == tokenizer.end
    assert "mask" not in tokenizer.decode([row])[0]


@pytest.mark.parametrize("kind", ["char", "word", "space", "unigram"])
def test_what_was_never_seen_is_unknown(kind: str) -> None:
    [row] = lists(learned(kind).encode(["ж"]))
    assert row[-1] == learned(kind).unk
    assert "ж" not in learned(kind).decode([row])[0]


def test_words_and_unigram_pieces_keep_the_words() -> None:
    assert learned("word").decode(learned("word").encode(["the  cat,\na mat."])) == ["the cat , a mat ."]
    assert learned("space").decode(learned("space").encode(["the  cat\na cat"])) == ["the cat \n a cat"]
    assert learned("unigram").decode(learned("unigram").encode(["the  cat,\na mat."])) == ["the cat, a mat."]


@pytest.mark.parametrize("kind", KINDS)
def test_decoding_leaves_special_tokens_out_and_takes_arrays(kind: str) -> None:
    tokenizer = learned(kind)
    [row] = tokenizer.encode(["the cat"])
    framed = np.concatenate([[tokenizer.start], row, [tokenizer.end, tokenizer.pad]])
    assert tokenizer.decode([framed, [], framed.tolist()]) == ["the cat", "", "the cat"]
    assert tokenizer.encode([]) == []
    assert tokenizer.decode([]) == []


def test_pieces_can_be_read() -> None:
    def pieces(kind: str, text: str) -> list[str]:
        return learned(kind).pieces(learned(kind).encode([text])[0])

    assert "".join(pieces("bpe", "the cat sat")) == "the cat sat"
    assert " cat" in pieces("bpe", "the cat sat")
    assert pieces("byte", "a é\n") == ["a", " ", r"\xc3", r"\xa9", "\n"]
    assert pieces("char", "a ü") == ["a", " ", "ü"]
    assert pieces("word", "the cat!") == ["the", "cat", "<unk>"]
    assert "".join(pieces("unigram", "the cat")) == " the cat"
    assert learned("bpe").pieces([3, 4]) == ["</s>", "<mask>"]
    with pytest.raises(InputError, match="the vocabulary of 261 tokens has no token 261"):
        learned("byte").pieces([261])
    for rows in ([[3, 4]], torch.tensor([[3, 4], [5, 6]]), "the cat", 3):
        with pytest.raises(InputError, match="must be one row of token ids"):
            learned("bpe").pieces(rows)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="must be token ids, which are whole numbers"):
        learned("bpe").pieces([3.7])  # type: ignore[list-item]
    assert learned("bpe").pieces(torch.tensor([3, 4])) == learned("bpe").pieces([3, 4])  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["byte", "char", "word", "bpe", "unigram"])
def test_spans_are_where_the_ids_come_from(kind: str) -> None:
    text = "the cat  sat"
    (ids,), (spans,) = learned(kind).encode([text]), learned(kind).spans([text])
    assert len(ids) == len(spans)
    for piece, (begin, end) in zip(learned(kind).pieces(ids), spans, strict=True):
        assert piece.strip() == text[begin:end].strip() or not piece.strip()


def test_some_vocabularies_join_a_word_and_the_space_before_it() -> None:
    kinds = ("byte", "char", "word", "bpe", "unigram")
    assert [kind for kind in kinds if learned(kind).joins_blanks()] == ["bpe", "unigram"]


def test_an_underscore_is_not_a_space_among_characters() -> None:
    tokenizer = train_tokenizer(["a▁"], TokenizerConfig(kind="char"))
    assert tokenizer.pieces(tokenizer.encode(["▁a"])[0]) == ["▁", "a"]


def test_dropout_varies_the_pieces_but_not_the_text() -> None:
    tokenizer = learned("bpe", 0.5)
    text = "the cat sat on the mat. " * 20
    varied = tokenizer.encode_varied([text] * 5, [1])
    assert tokenizer.decode(varied) == [text] * 5
    assert len({tuple(row) for row in lists(varied)}) > 1
    assert lists(tokenizer.encode([text])) == lists(learned("bpe").encode([text]))
    assert tokenizer.fingerprint() == learned("bpe").fingerprint()
    assert set(np.concatenate(tokenizer.encode_varied(INJECTIONS * 5, [1])).tolist()).isdisjoint({0, 2, 3, 4})


@pytest.mark.parametrize("copied", [deepcopy, lambda own: pickle.loads(pickle.dumps(own))], ids=["copy", "pickle"])
def test_a_copy_gives_the_same_ids(copied: Callable[[Tokenizer], Tokenizer]) -> None:
    """A model is copied with its tokenizer, and sent to other processes."""
    own = train_tokenizer(TEXTS, TokenizerConfig("bpe", 300, dropout=0.5))
    plain, varied = own.encode(TEXTS), own.encode_varied(TEXTS, [1])
    other = copied(own)
    for found, wanted in ((other.encode(TEXTS), plain), (other.encode_varied(TEXTS, [1]), varied)):
        assert [row.tolist() for row in found] == [row.tolist() for row in wanted]


def test_full_dropout_leaves_bytes() -> None:
    assert [len(row) for row in learned("bpe", 1.0).encode_varied(["the cat"], [1])] == [7]


@pytest.mark.parametrize("kind", KINDS)
def test_without_dropout_nothing_varies(kind: str) -> None:
    assert lists(learned(kind).encode_varied(TEXTS, [1])) == lists(learned(kind).encode(TEXTS))


def test_dropout_of_a_tokenizer_that_was_read(tmp_path: Path) -> None:
    learned("bpe").save(tmp_path)
    assert [len(row) for row in load_tokenizer(tmp_path, dropout=1.0).encode_varied(["the cat"], [1])] == [7]
    learned("word").save(tmp_path)
    with pytest.raises(ConfigError, match="dropout: 0.1 is for BPE only; this tokenizer is of the kind WordLevel"):
        load_tokenizer(tmp_path, dropout=0.1)


def test_the_config_says_where_to_read(tmp_path: Path) -> None:
    learned("word").save(tmp_path)
    config = TokenizerConfig(kind="byte", dropout=0.1, vocabulary=1, path=str(tmp_path))
    assert train_tokenizer([], config).fingerprint() == learned("word").fingerprint()


@pytest.mark.parametrize("kind", ["bpe", "word", "unigram"])
def test_without_a_vocabulary_size_there_is_one(kind: str) -> None:
    tokenizer = train_tokenizer(TEXTS, TokenizerConfig(kind=kind))
    assert tokenizer.size >= learned(kind).size


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"kind": "word", "dropout": 0.1}, "dropout: 0.1 is for kind='bpe' only; kind is 'word'"),
        ({"vocabulary": 260}, r"vocabulary: 260 must be at least 261 \(256 bytes and 5 special tokens\)"),
        ({"kind": "word", "vocabulary": 5}, r"vocabulary: 5 must be at least 6 \(5 special tokens and one more\)"),
        ({"kind": "unigram", "vocabulary": 5}, "vocabulary: 5 must be at least 6"),
        ({"kind": "wrod"}, "kind: \"wrod\" is unknown; did you mean 'word'"),
    ],
)
def test_a_wrong_config_is_rejected(table: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        from_table(table, TokenizerConfig)


@pytest.mark.parametrize("kind", ["char", "word", "bpe", "unigram"])
def test_nothing_can_be_learned_from_nothing(kind: str) -> None:
    with pytest.raises(RegardError, match="the text is empty, so no tokenizer can be learned from it"):
        train_tokenizer([""], TokenizerConfig(kind=kind))


@pytest.mark.parametrize("kind", KINDS)
def test_half_a_character_is_refused(kind: str) -> None:
    with pytest.raises(InputError, match="half a character"):
        learned(kind).encode(["cat", "a\udc00"])


# --- what others made ----------------------------------------------------------------------------------------------


def foreign(names: list[str], folder: Path) -> Tokenizer:
    """Save and read a tokenizer with other special tokens, with padding, truncation and a template."""
    words = {word: id for id, word in enumerate([*names, "cat", "mat"])}
    backend = tokenizers.Tokenizer(models.WordLevel(words, unk_token=names[0]))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    backend.add_special_tokens(names)
    backend.add_tokens(["dog house"])
    backend.enable_padding(length=9)
    backend.enable_truncation(1)
    frame = [(name, words[name]) for name in names]
    backend.post_processor = processors.TemplateProcessing(single=f"{names[-1]} $A", special_tokens=frame)
    backend.save(str(folder / "tokenizer.json"))
    return load_tokenizer(folder / "tokenizer.json")


def test_special_tokens_of_bert_are_known(tmp_path: Path) -> None:
    tokenizer = foreign(["[UNK]", "[PAD]", "[CLS]", "[SEP]", "[MASK]"], tmp_path)
    assert (tokenizer.unk, tokenizer.pad, tokenizer.start, tokenizer.end, tokenizer.mask) == (0, 1, 2, 3, 4)
    assert tokenizer.size == 8
    assert lists(tokenizer.encode(["cat [MASK] mat [SEP]"])) == [[5, 0, 6, 0]]
    assert lists(tokenizer.encode(["cat [MASK] mat"], special=True)) == [[5, 4, 6]]
    assert lists(tokenizer.encode(["cat dog house mat"])) == [[5, 7, 6]]


def test_special_tokens_that_are_missing_are_added(tmp_path: Path) -> None:
    tokenizer = foreign(["<|endoftext|>"], tmp_path)
    assert (tokenizer.start, tokenizer.end, tokenizer.unk) == (0, 0, 0)
    assert (tokenizer.pad, tokenizer.mask, tokenizer.size) == (4, 5, 6)
    assert tokenizer.pieces([4, 5, 3]) == ["<pad>", "<mask>", "dog house"]
    assert lists(tokenizer.encode(["cat dog house mat <pad>"])) == [[1, 3, 2, 0]]


def test_a_unigram_model_of_others_does_not_read_its_special_tokens_in_a_text(tmp_path: Path) -> None:
    pieces = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), *((letter, -5.0) for letter in "▁</s>")]
    backend = tokenizers.Tokenizer(models.Unigram(pieces, unk_id=2))
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    backend.decoder = decoders.Metaspace()
    backend.add_special_tokens(["<pad>", "</s>", "<unk>"])
    backend.save(str(tmp_path / "tokenizer.json"))
    tokenizer = load_tokenizer(tmp_path)
    assert tokenizer.pieces(tokenizer.encode(["</s>"])[0]) == [" ", "<", "/", "s", ">"]
    assert lists(tokenizer.encode(["</s>"], special=True)) == [[1]]


def test_scores_of_others_do_not_change_the_fingerprint_when_they_are_saved(tmp_path: Path) -> None:
    scores = np.random.default_rng(0).normal(-8, 3, 500)
    pieces = [("<unk>", 0.0), *((chr(300 + number), float(score)) for number, score in enumerate(scores))]
    tokenizer = Tokenizer(tokenizers.Tokenizer(models.Unigram(pieces, unk_id=0)))
    tokenizer.save(tmp_path)
    assert load_tokenizer(tmp_path).fingerprint() == tokenizer.fingerprint()
    pieces[7] = (pieces[7][0], pieces[7][1] + 0.001)
    assert Tokenizer(tokenizers.Tokenizer(models.Unigram(pieces, unk_id=0))).fingerprint() != tokenizer.fingerprint()


def test_bytes_of_sentencepiece_are_shown() -> None:
    vocabulary = {"<unk>": 0, "<0x41>": 1, "<0xC3>": 2, "▁the": 3}
    backend = tokenizers.Tokenizer(models.BPE(vocabulary, [], unk_token="<unk>", byte_fallback=True))
    backend.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    assert Tokenizer(backend).pieces([1, 2, 3]) == ["A", r"\xc3", " the"]
    assert Tokenizer(backend).byte_tokens == {1, 2}
    assert learned("byte").byte_tokens == set()


def test_dropout_in_a_file_of_others_is_not_for_every_use(tmp_path: Path) -> None:
    state = json.loads(learned("bpe")._backend.to_str())
    state["model"]["dropout"] = 1.0
    (tmp_path / "tokenizer.json").write_text(json.dumps(state))
    tokenizer = load_tokenizer(tmp_path)
    assert lists(tokenizer.encode(["the cat"])) == lists(learned("bpe").encode(["the cat"]))
    assert lists(tokenizer.encode(["the cat"], special=True)) == lists(learned("bpe").encode(["the cat"]))
    assert tokenizer.fingerprint() == learned("bpe").fingerprint()


def test_a_merge_that_spells_a_special_token_is_not_made() -> None:
    vocabulary = {"<s>": 0, "<": 1, "s": 2, ">": 3, "<s": 4}
    backend = tokenizers.Tokenizer(models.BPE(vocabulary, [("<", "s"), ("<s", ">")]))
    backend.add_special_tokens(["<s>"])
    assert lists(Tokenizer(backend).encode(["<s>"])) == [[4, 3]]


# --- files that are none -------------------------------------------------------------------------------------------


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    with pytest.raises(RegardError, match="tokenizer.json: no such file; a tokenizer is a tokenizer.json, a"):
        load_tokenizer(path)
    for damage in ("{", "{}", json.dumps({"model": {"type": "Nonsense"}}), "[]", "\x00"):
        path.write_text(damage)
        with pytest.raises(RegardError, match="tokenizer.json: cannot be read as a tokenizer: "):
            load_tokenizer(tmp_path)
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(RegardError, match="tokenizer.json: cannot be read as a tokenizer: "):
        load_tokenizer(path)


def test_an_unknown_kind_of_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "vocab.txt").touch()
    with pytest.raises(RegardError, match="vocab.txt: unknown kind of file; a tokenizer is a tokenizer.json, a sent"):
        load_tokenizer(tmp_path / "vocab.txt")


def test_a_folder_must_hold_one_tokenizer(tmp_path: Path) -> None:
    with pytest.raises(RegardError, match="holds no tokenizer.json and no sentencepiece .model; name the file"):
        load_tokenizer(tmp_path)
    (tmp_path / "a.model").touch()
    (tmp_path / "b.model").touch()
    with pytest.raises(RegardError, match="holds several .model files; name the file of the tokenizer"):
        load_tokenizer(tmp_path)


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(RegardError, match="file: cannot be written: File exists; choose another folder"):
        learned("byte").save(tmp_path / "file")


@pytest.mark.parametrize("row", [[3, -1], [2**40]])
def test_an_id_that_no_vocabulary_has_cannot_be_decoded(row):
    tokenizer = learned("byte")
    for rows in (row, [row]):
        with pytest.raises(InputError, match=f"the vocabulary of .* tokens has no token {row[-1]}"):
            tokenizer.decode(rows)


@pytest.mark.unchecked
@pytest.mark.parametrize("kind", ["byte", "bpe", "word"])
@pytest.mark.parametrize("wrong", [5, None, b"ab", {"a": 1}, [5], ["a", None], [["a"]]])
def test_what_is_not_text_cannot_be_encoded(kind, wrong):
    with pytest.raises(InputError, match=r"texts(\[\d\])?=.* must be a (list of texts|text)$"):
        learned(kind).encode(wrong)


@pytest.mark.unchecked
@pytest.mark.parametrize("wrong", [5, None, "ab", b"ab", {1: 2}, ["a"], [1.5], [[1.5]]])
def test_what_is_not_an_id_cannot_be_decoded(wrong):
    with pytest.raises(InputError, match=r"must be token ids, which are whole numbers, or a list of rows of them$"):
        learned("byte").decode(wrong)


def test_one_text_or_a_list(tmp_path: Path) -> None:
    tokenizer = learned("byte")
    one = tokenizer.encode("ab")
    assert one.tolist() == tokenizer.encode(["ab"])[0].tolist()
    assert tokenizer.decode(one) == tokenizer.decode(one.tolist()) == "ab"
    assert tokenizer.decode([one, one[:0]]) == ["ab", ""]
    assert (tokenizer.encode([]), tokenizer.decode([])) == ([], [])


def test_a_vocabulary_that_the_library_has_no_memory_for_is_a_mistake():
    with pytest.raises(ConfigError, match="vocabulary=2147483647 must be between 1 and 1000000"):
        TokenizerConfig("bpe", 2**31 - 1)
