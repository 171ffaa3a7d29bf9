"""Variants of pairs: made when they are needed, one epoch ahead, and the same whatever was made before."""

import os
import subprocess
import sys
from threading import Event, current_thread, main_thread
from threading import enumerate as enumerate_threads

import numpy as np
import pytest
import torch

from regard.data.batches import Buckets, Draw, Shuffled
from regard.data.cache import CacheKey, cache_folder
from regard.data.columns import ColumnOptions
from regard.data.corpus import Corpus
from regard.data.tokenizer import TokenizerConfig
from regard.tasks.pairs import PairFiles, Pairs
from regard.tasks.task import Feed
from regard.tasks.variants import Epochs, Variants, describe_variants

from .test_translation import task_of


def pairs_of(lengths: list[list[int]]) -> Pairs:
    offsets = np.concatenate(([0], np.cumsum(np.ravel(lengths))))
    corpus = Corpus(torch.zeros(int(offsets[-1]), dtype=torch.uint8), offsets, {}, [])
    return Pairs(corpus, PairFiles((), (), ColumnOptions((), ())), CacheKey({}, {}), np.arange(len(lengths)))


def numbered(made: list[int], wait: Event | None = None):
    """Make feeds whose batch is the number of the version; the versions that were made are noted in `made`."""

    def make(number: int) -> Feed:
        assert current_thread() is not main_thread()
        if wait is not None and number:
            assert wait.wait(10)
        made.append(number)
        return Feed(Shuffled(4, 2, (3,), 0), lambda draw, epoch: {"version": torch.tensor(number)})

    return make


def version(epochs: Epochs, draw: Draw, epoch: int) -> int:
    return int(epochs.batch(draw, epoch)["version"])


def test_the_first_update_waits_for_the_first_version_only() -> None:
    made, wait = [], Event()
    epochs = Epochs(3, numbered(made, wait))
    first, second = epochs.epoch(0)
    assert version(epochs, first, 0) == 0
    assert version(epochs, second, 0) == 0  # while the next version is still being made
    assert made == [0]
    wait.set()
    assert [version(epochs, draw, 1) for draw in epochs.epoch(1)] == [1, 1]
    assert [version(epochs, draw, 3) for draw in epochs.epoch(3)] == [0, 0]
    assert sorted(made) == [0, 1, 2][: len(made)]


def test_looking_at_one_batch_makes_no_other_version() -> None:
    made, before = [], set(enumerate_threads())
    epochs = Epochs(3, numbered(made))
    epochs.batch(next(epochs.epoch(0)), 0)
    for thread in set(enumerate_threads()) - before:
        thread.join()
    assert made == [0]


def test_an_error_is_raised_where_the_version_is_needed() -> None:
    def make(number: int) -> Feed:
        if number:
            raise ValueError("the disk is full")
        return Feed(Shuffled(4, 2, (3,), 0), lambda draw, epoch: {"version": torch.tensor(number)})

    epochs = Epochs(2, make)
    for draw in epochs.epoch(0):
        epochs.batch(draw, 0)
    with pytest.raises(ValueError, match="the disk is full"):
        epochs.epoch(1)


def test_a_version_whose_thread_cannot_be_started_is_begun_again(monkeypatch) -> None:
    epochs = Epochs(2, numbered([]))

    def fail(thread: object) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as changed:
        changed.setattr("regard.tasks.variants.Thread.start", fail)
        with pytest.raises(RuntimeError, match="start new thread"):
            epochs.feed(1)
    begun = epochs._begin(1)
    assert int(begun.result(timeout=60).batch(next(epochs.epoch(0)), 1)["version"]) == 1


def test_versions_are_opened_once_and_moved_to_the_device() -> None:
    opened = []

    def make(number: int) -> Pairs:
        opened.append(number)
        return pairs_of([[number, 1]])

    variants = Variants(pairs_of([[1, 2], [3, 1]]), 3, make, (8, 8))
    assert (len(variants), variants.widest, opened) == (3, (8, 8), [])
    assert variants[2] is variants[-1]
    variants.to(torch.device("cpu"))
    assert [pairs.lengths[0, 0] for pairs in variants] == [1, 1, 2]
    assert sorted(opened) == [1, 2]
    assert Variants(pairs_of([[1, 2], [3, 1]])).widest == (3, 2)
    with pytest.raises(IndexError):
        variants[3]


def test_preparing_makes_one_version(tmp_path) -> None:
    task = task_of(tmp_path, tokenizer=TokenizerConfig("bpe", 300, dropout=0.5))
    corpora = cache_folder() / "corpora"
    before = len(list(corpora.iterdir()))
    task.train.open(1)
    assert len(list(corpora.iterdir())) == before + 1


def test_another_way_to_draw_is_noticed(tmp_path) -> None:
    task = task_of(tmp_path, tokenizer=TokenizerConfig("bpe", 300, dropout=0.5))
    described = describe_variants(task.tokenizer, 1, {"dropout": 0.5})
    assert described == describe_variants(task.tokenizer, 1, {"dropout": 0.5})
    assert described != describe_variants(task.tokenizer, 2, {"dropout": 0.5})
    task.tokenizer._dropout._limits = task.tokenizer._dropout._limits // np.uint64(2)
    assert described != describe_variants(task.tokenizer, 1, {"dropout": 0.5})


def test_a_variant_is_never_wider_than_was_said() -> None:
    pairs = pairs_of([[10, 40], [30, 20]])
    assert pairs.widest(128) == (64, 80)
    assert pairs.widest(70) == (64, 70)


def test_buckets_hold_rows_of_other_lengths() -> None:
    rng = np.random.default_rng(0)
    lengths = rng.integers(1, 30, (200, 2))
    others = np.minimum(lengths + rng.integers(0, 12, (200, 2)), 40)
    buckets = Buckets(lengths, 64, 0, widest=(40, 40))
    held = buckets.holding(others)
    assert held.shapes == buckets.shapes
    assert held.shapes[-1] == (40, 40)
    draws: list[Draw] = list(held.epoch(3))
    assert sorted(row for draw in draws for row in draw.rows if row >= 0) == list(range(200))
    assert all((others[draw.rows[draw.rows >= 0]] <= draw.shape).all() for draw in draws)
    assert {(draw.shape, len(draw.rows)) for draw in draws} <= set(zip(held.shapes, held.batches, strict=True))


ENDING = """
from itertools import count
from threading import Thread
from regard.tasks.text import chunks_of
Thread(target=lambda: [None for _ in chunks_of((("a", "b") for _ in count()))]).start()
"""


def test_the_program_does_not_wait_for_a_version() -> None:
    run = subprocess.run([sys.executable, "-c", ENDING], capture_output=True, text=True, timeout=60, env={**os.environ})
    assert "the program ends" in run.stderr
