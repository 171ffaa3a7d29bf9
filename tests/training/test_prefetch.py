"""The batch of the next update is prepared on another stream, in memory that no update reads any more."""

from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from regard.data.batches import Draw, Shuffled
from regard.models.store import tensors
from regard.tasks.task import Feed
from regard.training import prefetch
from regard.training.loop import Trainer
from regard.training.prefetch import Prefetcher

from .tiny import make_trainer, planned


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))


class FakeStream:
    """Notes what a stream is asked to do."""

    def __init__(self, name: str, notes: list[str]) -> None:
        self.name, self.notes, self.events = name, notes, 0

    def wait_stream(self, other: "FakeStream") -> None:
        self.notes.append(f"{self.name} waits for {other.name}")

    def wait_event(self, event: str) -> None:
        self.notes.append(f"{self.name} waits for {event}")

    def record_event(self) -> str:
        self.events += 1
        return f"event {self.events}"


@pytest.fixture
def notes(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Make a prefetcher on the CPU work as on CUDA, with streams that only note what they are asked."""
    notes: list[str] = []
    main, side = FakeStream("main", notes), FakeStream("side", notes)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: main)
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: nullcontext())
    init = Prefetcher.__init__

    def as_on_cuda(self: Prefetcher, *given: object) -> None:
        init(self, *given)  # type: ignore[arg-type]
        self.stream = side  # type: ignore[assignment]

    monkeypatch.setattr(prefetch.Prefetcher, "__init__", as_on_cuda)
    return notes


def draws() -> Iterator[tuple[Draw, int, int]]:
    for number in range(100):
        yield Draw((1,), np.array([number])), 0, number + 1


def test_memory_is_used_again_after_the_update_that_read_it(notes: list[str]) -> None:
    def batch(draw: Draw, epoch: int) -> dict[str, Tensor]:
        notes.append(f"batch {draw.rows[0]}")
        return {"labels": torch.from_numpy(draw.rows)}

    batches, source = Prefetcher(Feed(Shuffled(1, 1, (1,), 0), batch), torch.device("cpu"), 0), draws()
    for step in range(1, 4):
        found = batches.take(source, step)
        notes.append(f"update {found.batch['labels'][0]}")
        batches.prepare_next(source, step + 1)
    assert notes == [
        *("side waits for main", "batch 0", "main waits for side", "update 0", "batch 1"),
        *("main waits for side", "update 1", "side waits for event 1", "batch 2"),  # in the memory of batch 0
        *("main waits for side", "update 2", "side waits for event 2", "batch 3"),
    ]


def weights_of(trainer: Trainer) -> list[Tensor]:
    return [tensor.detach().clone() for tensor in tensors(trainer.model).values()]


@pytest.mark.parametrize("kind", ["vision", "masked"])  # whose batches are random
def test_what_is_learned_does_not_depend_on_it(
    kind: str, tmp_path: Path, notes: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def trained(name: str, stops: int | None = None) -> list[Tensor]:
        found = planned(kind, tmp_path, "train.steps=5", "train.validate_every=5", "train.checkpoint_every=2")
        trainer, _ = make_trainer(found, tmp_path / name)
        if stops is None:
            trainer.train()
            return weights_of(trainer)
        source = trainer.draws()
        for _ in range(stops):
            trainer.advance(source)
        trainer.save()
        resumed, _ = make_trainer(found, tmp_path / name)
        assert resumed.resume()
        resumed.train()
        return weights_of(resumed)

    ahead, resumed = trained("ahead"), trained("resumed", stops=2)
    assert notes.count("side waits for main") == 3  # only the first batch of a process is not prepared before
    monkeypatch.undo()
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))
    for one, other, plain in zip(ahead, resumed, trained("plain"), strict=True):
        assert torch.equal(one, plain)
        assert torch.equal(other, plain)
