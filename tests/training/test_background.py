"""Files are written while updates continue: in order, from what tensors were, and no error is lost."""

import threading

import pytest
import torch

from regard.errors import RegardError
from regard.training import background
from regard.training.background import Background, FileWriter, copy_to_keep
from regard.training.ranks import Ranks

CPU = torch.device("cpu")


def fail() -> None:
    raise RegardError("the disk is full")


def test_work_is_done_in_order_in_another_thread_and_all_of_it_at_the_end():
    done, threads = [], set()

    def note(number: int) -> None:
        done.append(number)
        threads.add(threading.current_thread())

    with Background(CPU) as later:
        for number in range(20):
            later.submit(lambda number=number: note(number))
    assert done == list(range(20))
    assert len(threads) == 1
    assert threads != {threading.current_thread()}


def test_little_work_waits_at_a_time():
    """Each keeps copies of tensors, so a slow disk must slow training down and not fill the memory."""
    go, begun = threading.Event(), threading.Semaphore(0)
    with Background(CPU) as later:
        for _ in range(background.MOST_WORK):
            later.submit(lambda: (begun.release(), go.wait()))
        ended = threading.Event()
        thread = threading.Thread(target=lambda: (later.submit(lambda: None), ended.set()))
        thread.start()
        begun.acquire()
        assert not ended.is_set()
        go.set()
        thread.join()


def test_after_an_error_nothing_more_is_done():
    """A checkpoint must not say that there are weights which could not be written."""
    done = []
    with Background(CPU) as later:
        later.submit(fail)
        with pytest.raises(RegardError, match="the disk is full"):
            later.wait()
        later.submit(lambda: done.append(1))
        later.wait()
    assert done == []


def test_an_error_at_the_end_is_raised_unless_training_itself_failed():
    with pytest.raises(RegardError, match="the disk is full"), Background(CPU) as later:
        later.submit(fail)
    later = Background(CPU)
    later.submit(fail)
    assert later.__exit__(ValueError, ValueError("of training"), None) is None  # which is raised then


def test_copies_keep_what_tensors_were_unless_they_are_too_large(monkeypatch: pytest.MonkeyPatch):
    weights = {"a": torch.ones(4)}
    kept = copy_to_keep(weights)
    weights["a"].zero_()
    assert kept is not None
    assert kept["a"].tolist() == [1, 1, 1, 1]
    monkeypatch.setattr(background, "LARGEST_COPY", 15)
    assert copy_to_keep(weights) is None


def test_if_a_copy_does_not_fit_into_memory_there_is_none(monkeypatch: pytest.MonkeyPatch):
    def full(tensor: torch.Tensor) -> torch.Tensor:
        raise torch.OutOfMemoryError("out of memory")

    monkeypatch.setattr(torch.Tensor, "clone", full)
    assert copy_to_keep({"a": torch.ones(4)}) is None


@pytest.mark.parametrize("world", [1, 2])
def test_a_writer_writes_what_tensors_were_later_or_at_once(world: int):
    """Alone in another thread, which is waited for; with several processes at once, and so outside the block."""
    files, here = FileWriter(Ranks(0, world, CPU)), threading.current_thread()
    written: list[tuple[list[float], bool]] = []

    def write(tensors: dict[str, torch.Tensor]) -> None:
        written.append((tensors["a"].tolist(), threading.current_thread() is here))

    weights = {"a": torch.ones(2)}
    with files.later():
        files.write(weights, write)
        weights["a"].zero_()
        files.do(lambda: write({"a": torch.ones(1)}))
        files.wait()
        assert written == [([1, 1], world > 1), ([1], world > 1)]
    files.write(weights, write)
    assert written[2:] == [([0, 0], True)]
