"""Lines through a model: in chunks, in batches, and back in order."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.use import batches as module
from regard.use.batches import (
    Chunks,
    batches,
    by_line,
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


def test_rows_are_padded_on_the_right():
    table, lengths = padded_batch([[1, 2, 3], np.array([4], np.int32)], 9, torch.device("cpu"))
    assert table.tolist() == [[1, 2, 3], [4, 9, 9]]
    assert lengths.tolist() == [3, 1]


def test_an_accelerator_gets_larger_batches():
    assert tokens_per_batch(None, torch.device("cpu")) < tokens_per_batch(None, torch.device("cuda"))
    assert tokens_per_batch(7, torch.device("cuda")) == 7


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
