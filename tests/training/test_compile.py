"""A compiled update compiles each region once for each shape of its data, in the first epoch, and never again."""

from collections.abc import Callable
from io import StringIO
from pathlib import Path

import pytest
import torch
from torch._dynamo.exc import BackendCompilerFailed
from torch._dynamo.testing import CompileCounter

from regard.config import from_table
from regard.data.tokenizer import TokenizerConfig
from regard.models.model import Model
from regard.tasks.task import Task
from regard.training.config import TrainConfig
from regard.training.execution import why_compiling_failed
from regard.training.loop import Trainer
from regard.training.probe import probe_weights
from regard.training.ranks import Ranks
from regard.training.stop import StopError
from regard.training.update import Update

from ..tasks.corpora import model_for, prepare, sentences, write
from .tiny import make_trainer, planned

pytestmark = pytest.mark.compile


@pytest.fixture
def counter(tmp_path, monkeypatch) -> CompileCounter:
    """Counts what is compiled; the back end does nothing, since it is not tested here."""
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))
    counter = CompileCounter()
    real = torch.compile
    monkeypatch.setattr(torch, "compile", lambda model, dynamic, options: real(model, backend=counter, dynamic=dynamic))
    monkeypatch.setattr("regard.parts.region._COMPILED", {})
    monkeypatch.setattr("regard.training.execution.what_compiling_lacks", lambda device: "")
    torch._dynamo.reset()
    return counter


def epochs(task: Task, model: Model, tokens: int, counter: CompileCounter) -> tuple[int, list[int]]:
    """Train for three epochs; return the number of shapes, and what was compiled after each epoch."""
    table = {"steps": 99, "tokens": tokens, "validate_every": 9, "checkpoint_every": 9, "compile": "always"}
    table |= {"optimizer": {"kind": "adamw", "rate": 1e-3}, "schedule": {"kind": "linear", "warmup": 2}}
    update = Update(model, task, from_table(table, TrainConfig), Ranks(0, 1, torch.device("cpu")))
    feed = task.feed(model, tokens, 0)
    step, compiled, shapes = 0, [], set()
    for epoch in range(3):
        for draw in feed.order.epoch(epoch):
            step += 1
            shapes.add(draw.shape)
            update(feed.batch(draw, epoch), step)
        model.eval()
        task.measure(model)  # validations and snapshots in between change nothing
        if model.packs_documents:
            probe_weights(model, task.probe())
        compiled.append(counter.frame_count)
    return len(shapes), compiled


def translation(path: Path) -> tuple[Task, Model]:
    source = (write(path / "a.de", sentences(80)),)
    task = prepare("translation", source=source, target=source)
    return task, model_for(task, "translator").float()


def classification(path: Path) -> tuple[Task, Model]:
    lines = [f"{text}\t{text.split()[0]}" for text in sentences(200, shortest=1, longest=40)]
    task = prepare("classification", train=(write(path / "a.tsv", ["text\tlabel", *lines]),))
    changes = ("model.depth=1", "model.head.kind=classes", "model.head.classes=10", "model.head.pool.kind=mean")
    return task, model_for(task, "reader", *changes).float()


def language(path: Path) -> tuple[Task, Model]:
    files = (write(path / "a.txt", sentences(40)),)
    task = prepare("language", TokenizerConfig("char"), train=files, documents="line", window=16)
    return task, model_for(task, "writer").float()


def recurrent(path: Path) -> tuple[Task, Model]:
    task, _ = language(path)
    return task, model_for(task, "lstm").float()


def masked(path: Path) -> tuple[Task, Model]:
    files = (write(path / "a.txt", sentences(40)),)
    task = prepare("masked", TokenizerConfig("char"), train=files, documents="line", window=16)
    return task, model_for(task, "reader").float()


@pytest.mark.parametrize(("make", "regions"), [(translation, 4), (language, 3), (masked, 3)])
def test_one_shape_is_compiled_once(make: Callable, regions: int, tmp_path, counter):
    """The regions are the kinds of layers, however many layers there are, the head and the loss."""
    task, model = make(tmp_path)
    shapes, compiled = epochs(task, model, 128, counter)
    assert shapes == 1
    assert compiled == [regions] * 3


def test_each_shape_is_compiled_once(tmp_path, counter):
    shapes, compiled = epochs(*classification(tmp_path), 128, counter)
    assert shapes > 8  # more than torch's default limit of compilations of one function
    assert shapes < compiled[0] <= 2 * shapes  # the layers; and the loss, which has no width
    assert compiled == [compiled[0]] * 3


def test_a_carried_state_is_compiled_once_more(tmp_path, counter):
    """The very first update has no state to continue from, all others have."""
    shapes, compiled = epochs(*recurrent(tmp_path), 128, counter)
    assert shapes == 1
    assert compiled == [4, 4, 4]


def test_a_module_without_regions_is_compiled_whole(tmp_path, counter):
    task, _ = language(tmp_path)

    class Own(torch.nn.Module):
        packs_documents = carries_state = False

        def __init__(self) -> None:
            super().__init__()
            self.table = torch.nn.Embedding(64, 64)

        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            return self.table(tokens)

    _, compiled = epochs(task, Own(), 128, counter)
    assert compiled == [1, 1, 1]


# --- what cannot be compiled -----------------------------------------------------------------------------------------


def run_of(path: Path) -> tuple[Trainer, StringIO]:
    changes = ("train.compile=always", "train.steps=3", "train.validate_every=3", "train.checkpoint_every=3")
    return make_trainer(planned("language", path, *changes), path / "run")


def weights_after(trainer: Trainer) -> list[torch.Tensor]:
    trainer.train()
    return [weight.detach().clone() for weight in trainer.model.parameters()]


def refuse(function: Callable, dynamic: bool, options: object) -> Callable:
    """Compile as torch does where a part of the compiler is missing."""

    def call(*given: object, **named: object) -> object:
        raise BackendCompilerFailed(refuse, OSError("Python.h is missing\nand much more"), None)

    return call


def test_if_the_compiler_fails_the_run_continues_without_it(tmp_path, monkeypatch, counter):
    plain, _ = make_trainer(
        planned("language", tmp_path, "train.steps=3", "train.validate_every=3"), tmp_path / "plain"
    )
    wanted = weights_after(plain)
    monkeypatch.setattr(torch, "compile", refuse)
    trainer, said = run_of(tmp_path)
    assert all(map(torch.equal, weights_after(trainer), wanted))
    [line] = [line for line in said.getvalue().splitlines() if "compiling failed" in line]
    assert line.startswith("step 1: compiling failed (OSError: Python.h is missing); updates take longer")


def test_without_a_compiler_a_run_says_so_and_continues(tmp_path, monkeypatch, counter):
    monkeypatch.setattr("regard.training.execution.what_compiling_lacks", lambda device: "there is no C++ compiler")
    trainer, said = run_of(tmp_path)
    trainer.train()
    assert counter.frame_count == 0
    assert "nothing is compiled: there is no C++ compiler; updates take longer" in said.getvalue()


def test_a_signal_that_the_compiler_met_is_not_its_failure(tmp_path):
    stopped = BackendCompilerFailed(refuse, StopError("stopped at once", tmp_path, 2), None)
    assert why_compiling_failed(stopped) is None
    assert why_compiling_failed(RuntimeError("another error")) is None
