"""Lines through a model: in chunks, in batches, and back in order."""

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.errors import InputError
from regard.use import batches as module
from regard.use.batches import (
    Chunks,
    batches,
    by_line,
    check_count,
    check_text,
    check_texts,
    chunk_lines,
    in_halves,
    padded_batch,
    tokens_per_batch,
)


@given(st.lists(st.integers(0, 50), max_size=40), st.integers(1, 200))
def test_every_row_is_in_one_batch_and_no_batch_is_too_large(sizes, most):
    found = list(batches(sizes, most))
    assert sorted(place for batch in found for place in batch) == list(range(len(sizes)))
    for batch in found:
        assert len(batch) == 1 or len(batch) * max(sizes[place] for place in batch) <= most
    firsts = [sizes[batch[0]] for batch in found]
    assert firsts == sorted(firsts, reverse=True)  # so similar lengths are together


@given(st.lists(st.text("ab ", max_size=6), max_size=30), st.integers(1, 5), st.integers(1, 30))
def test_answers_go_back_to_their_lines(lines, chunk, most):
    chunks = [lines[begin : begin + chunk] for begin in range(0, len(lines), chunk)]
    answers = by_line(
        Chunks(chunks),
        lambda lines: [line.split() for line in lines],  # a line of several words has several rows
        len,
        lambda rows: [row.upper() for row in rows],
        most,
        lambda count: None,
    )
    assert list(answers) == [(line, line.upper().split()) for line in lines]


def test_no_more_is_read_than_is_asked_for(monkeypatch):
    monkeypatch.setattr(module, "CHUNK", 10)
    read = 0

    def source():
        nonlocal read
        for number in range(1_000_000):
            read += 1
            yield f"line {number}"

    chunks = Chunks(chunk_lines(source()))
    answers = by_line(chunks, lambda lines: [[line] for line in lines], len, list, 100, lambda count: None)
    assert [next(answers) for _ in range(25)] == [(f"line {number}", [f"line {number}"]) for number in range(25)]
    assert read == 30


def test_long_lines_make_short_chunks(monkeypatch):
    monkeypatch.setattr(module, "LETTERS", 10)
    assert list(chunk_lines(["abc"] * 5 + ["x" * 30, "y"])) == [["abc"] * 4, ["abc", "x" * 30], ["y"]]
    assert list(chunk_lines([])) == []


def test_one_text_is_not_taken_for_a_list_of_letters():
    with pytest.raises(InputError, match=r"one text was given where a list of texts belongs; put it into brackets"):
        check_texts("hello", "texts")


@pytest.mark.parametrize("wrong", [3, None, {"a": 1}, {"a"}, b"hello", len])
def test_an_argument_that_is_not_a_list_of_texts_is_rejected(wrong):
    with pytest.raises(InputError) as caught:
        check_texts(wrong, "prompts")
    assert str(caught.value) == f"prompts={wrong!r} must be a list of texts"
    with pytest.raises(InputError) as caught:
        check_text(wrong, "prompt")
    assert str(caught.value) == f"prompt={wrong!r} must be one text"


def test_an_item_that_is_not_a_text_is_rejected_with_its_index():
    texts = check_texts(("red", Path("a.png"), "dog"), "texts")
    assert next(texts) == "red"
    with pytest.raises(InputError, match=r"^texts\[1\]=PosixPath\('a.png'\) must be a text$"):
        next(texts)
    assert list(check_texts(["red", Path("a.png")], "texts", (str, Path))) == ["red", "a.png"]
    with pytest.raises(InputError, match=r"^texts\[0\]=None must be a text$"):
        list(check_texts([None], "texts", (str, Path)))


def test_texts_may_come_one_by_one():
    assert next(check_texts(iter(str, "never"), "texts")) == ""
    assert list(check_texts(np.array(["red", "dog"]), "texts")) == ["red", "dog"]
    assert list(check_texts({"red": 1, "dog": 2}.keys(), "texts")) == ["red", "dog"]
    assert check_text("red", "prompt") == "red"


def test_rows_are_padded_on_the_right():
    table, lengths = padded_batch([[1, 2, 3], np.array([4], np.int32)], 9, torch.device("cpu"))
    assert table.tolist() == [[1, 2, 3], [4, 9, 9]]
    assert lengths.tolist() == [3, 1]


def test_an_accelerator_gets_larger_batches():
    assert tokens_per_batch(None, torch.device("cpu")) < tokens_per_batch(None, torch.device("cuda"))
    assert tokens_per_batch(7, torch.device("cuda")) == 7


@pytest.mark.parametrize("wrong", [True, 0, -1, 1.5, "3"])
def test_a_count_is_a_whole_number(wrong):
    with pytest.raises(InputError, match=f"^top={wrong!r} must be a whole number, at least 1$"):
        check_count(wrong, "top")


def test_progress_counts_lines_as_their_batches_are_finished():
    """Long before the first answer of a chunk, and blank lines among them."""
    told: list[int] = []
    chunks = [["a"] * 6 + [""] * 2, [""] * 3]
    answers = by_line(Chunks(chunks), lambda lines: [line.split() for line in lines], len, list, 2, told.append)
    assert next(answers) == ("a", ["a"])
    assert [count for count in told if count] == [2, 3, 3]
    list(answers)
    assert sum(told) == 11


def test_a_batch_that_does_not_fit_is_answered_in_halves():
    seen: list[int] = []

    def work(rows: list[str]) -> list[str]:
        seen.append(len(rows))
        if len(rows) > 2:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return [row.upper() for row in rows]

    assert in_halves(work, list("abcde")) == list("ABCDE")
    assert seen == [5, 2, 3, 1, 2]
    with pytest.raises(torch.OutOfMemoryError):
        in_halves(lambda rows: work(rows * 3), ["a", "b"])
