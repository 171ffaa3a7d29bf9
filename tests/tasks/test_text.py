"""What the tasks on text share."""

import dataclasses
import os
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.config import from_table
from regard.data.batches import EMPTY, Draw
from regard.data.read import Skipped
from regard.data.tokenizer import TokenizerConfig
from regard.errors import ConfigError
from regard.models.recipe import build
from regard.tasks.defaults import TaskConfig
from regard.tasks.kinds import TASKS
from regard.tasks.loss import IGNORE
from regard.tasks.text import (
    chunks_of,
    hold_out,
    ignore_empty,
    learn_tokenizer,
    lengths_of,
    shown,
    skips,
    spread,
    telling,
    text_key,
    with_skips,
)

from ..laws.cases import SHRINK, VARIANTS
from .corpora import prepare, sentences, write


@given(st.integers(2, 300))
def test_held_out_rows_are_disjoint_and_always_the_same(rows: int):
    train, valid = hold_out(rows)
    assert sorted([*train, *valid]) == list(range(rows))
    assert len(valid) == max(1, rows // 20)
    again = hold_out(rows)
    assert np.array_equal(train, again[0])
    assert np.array_equal(valid, again[1])


@pytest.mark.parametrize(
    ("kind", "table", "key"),
    [
        ("language", {"train": ["a.txt", ""]}, "train"),
        ("classification", {"train": ["a.csv"], "valid": [""]}, "valid"),
        ("translation", {"source": ["a.de"], "target": [""]}, "target"),
        ("vision", {"train": "", "classes": ["cat", "dog"]}, "train"),
        ("vision", {"train": "images", "valid": ""}, "valid"),
    ],
)
def test_an_empty_name_is_not_the_current_folder(kind: str, table: dict[str, object], key: str):
    with pytest.raises(ConfigError, match=rf"^{key}: the name of a file is empty; is a variable of the shell not set"):
        from_table({"kind": kind, **table}, TaskConfig)


def test_a_text_is_not_the_name_of_a_file():
    with pytest.raises(ConfigError, match=r"^train: 'once upon a.*\.\.\..*' must be a path; give texts in a file$"):
        from_table({"kind": "language", "train": ["once upon a time " * 20]}, TaskConfig)


def test_held_out_rows_are_limited():
    train, valid = hold_out(100_000)
    assert len(valid) == 2000
    assert len(train) == 98_000


def test_of_one_row_nothing_is_held_out():
    train, valid = hold_out(1)
    assert (train.tolist(), valid.tolist()) == ([0], [])


@given(st.integers(0, 50), st.integers(1, 60))
def test_spread_rows_are_even(rows: int, count: int):
    found = spread(np.arange(rows), count)
    assert len(found) == min(rows, count)
    steps = np.diff(found)
    assert (steps >= 1).all()
    assert steps.max(initial=1) - steps.min(initial=rows) <= 1


def test_all_rows_without_a_count():
    assert spread(np.arange(9), None).tolist() == list(range(9))


@pytest.mark.parametrize(("count", "rows"), [(1, [0]), (2, [0, 1]), (4, [0, 1, 2]), (5, [1, 2, 3]), (9, [2, 4, 6])])
def test_rows_to_show(count: int, rows: list[int]):
    assert shown(count).tolist() == rows


def test_chunks_are_lists_in_order():
    texts = [(letter,) for letter in "abcdefg"]
    assert list(chunks_of(texts, 3)) == [texts[:3], texts[3:6], texts[6:]]
    assert list(chunks_of([])) == []


def test_what_was_skipped_survives_the_cache():
    skipped, again = Skipped(), Skipped()
    for line in (3, 5):
        skipped.note("blank line", f"a.txt:{line}")
    skipped.note("pair of more than 9 tokens", "a.txt, pair 7")
    with_skips({"skipped": skips(skipped)}, again)
    assert again.report() == skipped.report()


def test_empty_rows_have_one_token_and_no_label():
    draw = Draw((4,), np.array([2, EMPTY, 0]))
    assert lengths_of(np.array([3, 9, 6]), draw, torch.device("cpu")).tolist() == [4, 1, 3]  # cut at the width
    for labels in (torch.ones(3, dtype=torch.long), torch.ones(3, 4, dtype=torch.long)):
        found = ignore_empty(labels, draw)
        assert (found[1] == IGNORE).all()
        assert (found[[0, 2]] == 1).all()


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("bert", True),
        ("writer", True),
        ("translator", True),
        ("lstm", False),
        ("conv", False),
        ("rnn-attention", False),
    ],
)
def test_which_models_keep_packed_texts_apart(name: str, wanted: bool):
    assert build(name, *SHRINK[name]).packs_documents is wanted


def test_one_other_mixer_is_enough_not_to_keep_them_apart():
    recipe, changes = VARIANTS["hybrid"]
    assert not build(recipe, *changes).packs_documents


def key_of(path):
    return text_key(TASKS["language"](train=(str(path),)), files=[str(path)])


def test_a_tokenizer_is_learned_once_for_the_same_files(tmp_path):
    path = tmp_path / "a.txt"
    write(path, sentences(20))
    asked = []

    def texts():
        asked.append(1)
        return path.read_text().splitlines()

    first = learn_tokenizer(TokenizerConfig("bpe", 270), key_of(path), texts)
    again = learn_tokenizer(TokenizerConfig("bpe", 270), key_of(path), texts)
    assert len(asked) == 1
    assert again.fingerprint() == first.fingerprint()
    learn_tokenizer(TokenizerConfig("bpe", 265), key_of(path), texts)  # another tokenizer,
    write(path, sentences(21))
    learn_tokenizer(TokenizerConfig("bpe", 270), key_of(path), texts)  # or other content
    assert len(asked) == 3


COLUMNS = [
    "title\tbody\tlabel",
    *(f"{'abcdefgh'[place:]}\t{'mnopqrst'[place:]}\t{place % 2}" for place in range(7)),
]


@pytest.mark.parametrize(("kind", "option"), [("language", "column"), ("masked", "column"), ("classification", "text")])
def test_a_tokenizer_is_learned_from_the_column_that_is_read(tmp_path, kind: str, option: str):
    table = write(tmp_path / "a.tsv", COLUMNS)
    lengths = {"window": 3} if kind != "classification" else {}
    for column, letters in (("title", "abcdefgh"), ("body", "mnopqrst")):
        task = prepare(kind, TokenizerConfig("char"), train=(table,), **{option: column}, **lengths)
        assert set(task.tokenizer.names(task.tokenizer.size)[5:]) == set(letters)


def test_a_tokenizer_is_learned_from_the_texts_of_its_task(tmp_path):
    table = write(tmp_path / "a.tsv", COLUMNS)
    letters = [
        set(prepare(kind, TokenizerConfig("char"), **files, **more).tokenizer._backend.get_vocab())
        for kind, files, more in (
            ("language", {"train": (table,)}, {"column": "title", "window": 3}),
            ("classification", {"train": (table,)}, {"text": "body"}),
        )
    ]
    assert [len(found & set("ah")) for found in letters] == [2, 0]
    assert [len(found & set("mt")) for found in letters] == [0, 2]


def test_every_setting_of_a_task_counts_unless_it_is_known_not_to(tmp_path):
    """A setting that is added later must not give the texts of another setting."""

    @dataclass(frozen=True, kw_only=True)
    class Spoken(TASKS["language"]):
        accent: str = ""

    path = write(tmp_path / "a.txt", ["a"])
    names = {
        text_key(Spoken(train=(path,), **values), files=[path]).name()
        for values in ({}, {"accent": "northern"}, {"documents": "line"}, {"window": 3})
    }
    assert len(names) == 3
    for config in TASKS.values():
        fields = {field.name for field in dataclasses.fields(config)}
        assert {*config.after_reading, *config.file_keys} <= fields


@pytest.mark.parametrize("damage", [b"", b"{", None])
def test_a_damaged_tokenizer_is_learned_again(tmp_path, damage: bytes | None):
    path = write(tmp_path / "a.txt", sentences(20))
    first = prepare("language", train=(path,), window=4)
    [tokenizer] = (tmp_path / "cache" / "tokenizers").glob("*/tokenizer.json")
    tokenizer.write_bytes(bytes(tokenizer.stat().st_size) if damage is None else damage)
    assert prepare("language", train=(path,), window=4).tokenizer.fingerprint() == first.tokenizer.fingerprint()


def test_zeros_in_place_of_tokens_are_noticed(tmp_path):
    """As after a crash: the right size, but nothing in it."""
    path = write(tmp_path / "a.txt", sentences(20))
    first = prepare("language", train=(path,), window=4).train.windows(np.array([0]), 9).tolist()
    [tokens] = (tmp_path / "cache" / "corpora").glob("*/tokens.bin")
    tokens.write_bytes(bytes(tokens.stat().st_size))
    assert prepare("language", train=(path,), window=4).train.windows(np.array([0]), 9).tolist() == first


def test_other_content_of_the_same_size_and_time_is_read(tmp_path):
    path = tmp_path / "a.txt"
    found = []
    for letter in "ab":
        write(path, [letter * 9] * 20)
        os.utime(path, ns=(1, 1))
        task = prepare("language", TokenizerConfig("char"), train=(str(path),), window=4)
        found.append(task.tokenizer.decode(task.train.windows(np.array([1]), 9)[0].tolist()))
    assert found == ["a" * 9, "b" * 9]


def test_a_tokenizer_with_a_path_is_only_read(tmp_path):
    path = tmp_path / "a.txt"
    write(path, sentences(20))
    first = learn_tokenizer(TokenizerConfig("bpe", 270), key_of(path), lambda: path.read_text().splitlines())
    first.save(tmp_path / "mine")
    found = learn_tokenizer(TokenizerConfig(path=str(tmp_path / "mine"), dropout=0.5), key_of(path), lambda: 1 / 0)
    assert found.fingerprint() == first.fingerprint()
    assert found.dropout == 0.5


@given(lengths=st.lists(st.integers(1, 30), min_size=1, max_size=40), longest=st.integers(1, 40))
def test_the_row_to_watch_fits_and_is_neither_short_nor_the_longest(lengths: list[int], longest: int):
    row = telling(np.array(lengths), longest)
    fitting = [length for length in lengths if length <= longest]
    if not fitting:
        assert lengths[row] == min(lengths)
        return
    assert lengths[row] in fitting
    longer = sum(length > lengths[row] for length in fitting)
    assert longer <= 1 + len(fitting) // 4
    if len(set(fitting)) == len(fitting) > 1:
        assert longer >= 1


def test_texts_come_in_lists_of_bounded_size():
    pairs = [("a" * 1_000_000, "b" * 1_000_000)] * 9
    assert [len(chunk) for chunk in chunks_of(pairs)] == [3, 3, 3]
    assert [len(chunk) for chunk in chunks_of([("a", "b")] * 5000)] == [4096, 904]
