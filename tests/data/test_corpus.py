"""Corpora against plain lists, and in the cache."""

import errno
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.data import corpus as module
from regard.data.cache import CacheKey
from regard.data.corpus import Corpus, CorpusWriter, cached_corpus, read_corpus
from regard.data.device import to_device
from regard.errors import RegardError

ROWS = [[1, 2, 3], [], [4], [5, 6, 7, 8, 9], [], [10, 11]]
FLAT = [id for row in ROWS for id in row]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "corpora"


def arrays(rows: list[list[int]]) -> list[np.ndarray]:
    return [np.array(row, dtype=np.int32) for row in rows]


def made(rows: list[list[int]], folder: Path) -> Corpus:
    with CorpusWriter(folder) as writer:
        writer.add(iter(arrays(rows)))
    corpus = read_corpus(folder)
    assert corpus is not None
    return corpus


def writes(rows: list[list[int]], calls: list[int] | None = None) -> Callable[[CorpusWriter], None]:
    def write(writer: CorpusWriter) -> None:
        (calls if calls is not None else []).append(len(rows))
        writer.add(arrays(rows))

    return write


rows_of_ids = st.lists(st.lists(st.sampled_from([0, 1, 255, 256, 40_000, 65_535, 65_536, 2**31 - 1]), max_size=6))


@given(rows=rows_of_ids, block=st.sampled_from([1, 3, 16, 100]), data=st.data())
def test_a_corpus_gives_what_lists_give(
    rows: list[list[int]], block: int, data: st.DataObject, tmp_path_factory
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "BLOCK", block)  # small enough to flush and to widen in the middle
        corpus = made(rows, tmp_path_factory.mktemp("corpora") / "one")
    flat = [id for row in rows for id in row]
    owner = [number for number, row in enumerate(rows) for _ in row]
    assert (corpus.tokens, corpus.rows) == (len(flat), len(rows))
    assert corpus.lengths.dtype == np.int64
    assert corpus.lengths.tolist() == [len(row) for row in rows]
    width = data.draw(st.integers(1, 4))
    chosen = data.draw(st.lists(st.integers(0, len(rows) - 1))) if rows else []
    padded = corpus.padded(np.array(chosen, dtype=np.int64), width, 7)
    assert padded.dtype == torch.int64
    assert padded.tolist() == [(rows[number] + [7] * width)[:width] for number in chosen]
    starts = data.draw(st.lists(st.integers(0, len(flat) - width))) if len(flat) >= width else []
    windows = corpus.windows(np.array(starts, dtype=np.int32), width)
    assert windows.dtype == torch.int64
    assert windows.tolist() == [flat[start : start + width] for start in starts]
    found = corpus.row_at(np.array(starts, dtype=np.int64), width)
    assert found.tolist() == [owner[start : start + width] for start in starts]
    corpus.release()
    assert corpus.windows(np.array(starts, dtype=np.int64), width).equal(windows)


@pytest.mark.parametrize(("largest", "bytes_each"), [(255, 1), (256, 2), (65_535, 2), (65_536, 4)])
def test_tokens_take_the_fewest_bytes(largest: int, bytes_each: int, tmp_path: Path) -> None:
    corpus = made([[0], [largest], [1]], tmp_path / "one")
    assert (tmp_path / "one" / "tokens.bin").stat().st_size == 3 * bytes_each
    assert (tmp_path / "one" / "offsets.bin").stat().st_size == 4 * 8
    assert corpus.windows(np.array([0]), 3).tolist() == [[0, largest, 1]]


def test_a_row_may_come_in_pieces(tmp_path: Path) -> None:
    with CorpusWriter(tmp_path / "one") as writer:
        writer.add_piece(np.array([1, 2]), ends=False)
        writer.add_piece(np.array([], dtype=np.int32), ends=False)
        writer.add_piece(np.array([3]), ends=True)
        writer.add_piece(np.array([4]), ends=True)
    corpus = read_corpus(tmp_path / "one")
    assert corpus is not None
    assert corpus.lengths.tolist() == [3, 1]


def test_row_minus_one_is_empty(tmp_path: Path) -> None:
    corpus = made(ROWS, tmp_path / "one")
    assert corpus.padded(np.array([2, -1, 0]), 2, 99).tolist() == [[4, 99], [99, 99], [1, 2]]


def test_rows_start_where_the_ones_before_end(tmp_path: Path) -> None:
    assert made(ROWS, tmp_path / "one").starts.tolist() == [0, 3, 3, 4, 9, 9]


def test_a_row_must_end(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="the last row has not ended"), CorpusWriter(tmp_path / "one") as writer:
        writer.add_piece(np.array([1]), ends=False)


def test_indices_outside_the_corpus_are_a_bug_of_the_caller(tmp_path: Path) -> None:
    corpus = made(ROWS, tmp_path / "one")
    assert corpus.windows(np.array([len(FLAT) - 2]), 2).tolist() == [FLAT[-2:]]
    for start in (-1, len(FLAT) - 1):
        with pytest.raises(AssertionError, match="outside the corpus"):
            corpus.windows(np.array([start]), 2)
        with pytest.raises(AssertionError, match="outside the corpus"):
            corpus.row_at(np.array([start]), 2)
    for row in (-2, len(ROWS)):
        with pytest.raises(AssertionError, match="a row is outside the corpus"):
            corpus.padded(np.array([row]), 2, 0)


def test_a_corpus_on_a_device_gives_the_same(tmp_path: Path) -> None:
    corpus = made([*ROWS, [300]], tmp_path / "one")
    moved = corpus.to("cpu")
    assert moved.windows(np.array([0, 5]), 4).equal(corpus.windows(np.array([0, 5]), 4))
    assert moved.lengths.tolist() == corpus.lengths.tolist()


def every_batch(corpus: Corpus) -> list[torch.Tensor]:
    return [
        corpus.padded(np.array([3, -1, 0]), 4, -7),
        corpus.gather(np.array([[2, -1], [0, 10]]), -7),
        corpus.windows(np.array([0, 6]), 5),
        corpus.row_at(np.array([0, 6]), 5),
    ]


@pytest.mark.parametrize(("free", "stays"), [(200, True), (4000, False), (None, False)])
def test_a_corpus_that_is_too_large_for_an_accelerator_is_copied_batch_by_batch(
    free: int | None, stays: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[torch.device] = []
    copied: list[torch.Tensor] = []

    def copy(array: np.ndarray, device: torch.device) -> torch.Tensor:
        if device.type == "meta":
            copied.append(torch.from_numpy(array.copy()))
        return to_device(array, device)

    monkeypatch.setattr(module, "free_memory", lambda device: asked.append(device) or free)
    monkeypatch.setattr(module, "to_device", copy)
    corpus = made([*ROWS, [3]], tmp_path / "one")
    moved = corpus.to("meta")  # a device without data: only copies to it can be seen
    assert asked == [torch.device("meta")]
    wanted = every_batch(corpus)
    assert [(batch.shape, batch.device.type) for batch in every_batch(moved)] == [
        (each.shape, "meta") for each in wanted
    ]
    same = len(copied) == len(wanted) and all(map(torch.equal, copied, wanted))
    assert same is stays  # otherwise only indices are copied, and tokens are gathered there


def test_released_pages_are_no_longer_resident(tmp_path: Path) -> None:
    corpus = made([[id % 50_000 for id in range(500_000)]] * 4, tmp_path / "one")

    def resident() -> int:
        """Return the kilobytes of the file that are in the memory of this process."""
        lines = iter(Path("/proc/self/smaps").read_text().splitlines())
        tokens = str(tmp_path / "one" / "tokens.bin")  # the whole path: corpora of other tests may still be mapped
        inside = (next(line for line in lines if line.startswith("Rss:")) for row in lines if tokens in row)
        return sum(int(line.split()[1]) for line in inside)

    if not Path("/proc/self/smaps").exists():
        pytest.skip("only Linux tells what is resident")
    corpus.windows(np.arange(0, corpus.tokens - 10, 1000), 10)
    assert resident() > 1000
    corpus.release()
    assert resident() == 0


# --- in the cache --------------------------------------------------------------------------------------------------


def test_a_corpus_is_made_once(cache: Path) -> None:
    calls: list[int] = []

    def write(writer: CorpusWriter) -> None:
        writes(ROWS, calls)(writer)
        writer.note(bytes=12, words={"all": 3})
        writer.note(skipped=1)

    first = cached_corpus(CacheKey({}, {"file": "a", "size": 1}), write)
    again = cached_corpus(CacheKey({}, {"size": 1, "file": "a"}), write)
    assert calls == [len(ROWS)]
    assert first.facts == again.facts == {"bytes": 12, "words": {"all": 3}, "skipped": 1}
    assert again.windows(np.array([0]), len(FLAT)).tolist() == [FLAT]
    cached_corpus(CacheKey({}, {"file": "a", "size": 2}), writes([[1]], calls))
    assert calls == [len(ROWS), 1]
    assert len(list(cache.iterdir())) == 2


def test_the_checksum_of_a_corpus_follows_from_its_rows(tmp_path: Path) -> None:
    cuts = ([[1, 2], [3]], [[1], [2, 3]], [[1, 2, 3]], [[3, 2, 1]])
    found = [cached_corpus(CacheKey({}, {"number": number}), writes(rows)) for number, rows in enumerate(cuts)]
    assert len({corpus.checksum for corpus in found}) == len(cuts)
    again = cached_corpus(CacheKey({}, {"number": "another"}), writes(cuts[0]))
    assert again.to("cpu").checksum == found[0].checksum


@pytest.mark.parametrize(
    ("number", "trouble"),
    [
        (errno.ENOSPC, "cannot be written: No space left on device"),
        (errno.EIO, "cannot be written: Input/output error"),
    ],
)
def test_a_full_disk_is_named(number: int, trouble: str, cache: Path) -> None:
    class Full:
        def write(self, data: object) -> None:
            raise OSError(number, os.strerror(number))

        def close(self) -> None:
            raise OSError(number, os.strerror(number))

    def write(writer: CorpusWriter) -> None:
        writer._token_file.close()
        writer._token_file = Full()  # type: ignore[assignment]
        writer.add(arrays(ROWS))

    message = rf"cache/corpora/\w+: {trouble}; free some space, or set REGARD_CACHE to another folder"
    with pytest.raises(RegardError, match=message):
        cached_corpus(CacheKey({}, {"file": "a"}), write)
    assert list(cache.iterdir()) == []
