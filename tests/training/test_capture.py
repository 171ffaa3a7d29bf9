"""Captured updates: the same weights as without a graph, and what cannot be captured runs as before.

Here a graph is a function that is called again: what is tested is everything around it (static batches, numbers filled
before a replay, state that is changed in place). `python -m bench.accelerator` compares real graphs.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook

from regard.extend import registered
from regard.models.recipe import build_empty, load_recipe
from regard.parts.feedforward import MLP
from regard.parts.watch import watch
from regard.recipe_files import recipe_names
from regard.tasks.loss import Losses
from regard.tasks.task import Batch
from regard.training import capture
from regard.training.capture import WAITS, CapturedUpdates, Recorder, can_capture
from regard.training.draft import RunPlan
from regard.training.execution import (
    CAPTURED_SECONDS,
    LEAST_SECONDS,
    SPEED,
    Execution,
    choose_execution,
    estimate_flops,
)
from regard.training.optimizer import AdamWConfig
from regard.training.ranks import Ranks
from regard.training.trial import build_model
from regard.training.update import Update

from .test_update import CASES, batches, everything, limit_rows, make, same, spoil
from .tiny import ALONE, make_trainer, planned

CUDA = Ranks(0, 1, torch.device("cuda"))


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))


class CountingRecorder(Recorder):
    """Counts what is recorded and replayed."""

    def __init__(self) -> None:
        self.recorded = self.replayed = 0

    def record(self, work: Callable[[], None]) -> Callable[[], None]:
        self.recorded += 1

        def replay() -> None:
            self.replayed += 1
            work()

        return replay


def with_graphs(update: Update, recorder: Recorder | None = None) -> Update:
    """Make an update capture as on CUDA."""
    captured = CapturedUpdates(update._learn, update._compute, update._undo, torch.device("cpu"))
    captured.recorder = recorder or CountingRecorder()
    update.captured = captured
    return update


def learn(update: Update, given: list[Batch]) -> dict[str, Tensor]:
    for step, batch in enumerate(given, 1):
        update({name: tensor.clone() for name, tensor in batch.items()}, step)
    return everything(update) | {f"average.{name}": tensor for name, tensor in (update.average or {}).items()}


@pytest.mark.parametrize(("case", "optimizer"), [*((case, "adamw") for case in CASES), ("translation, packed", "muon")])
def test_captured_updates_give_the_same_weights_to_the_bit(tmp_path: Path, case: str, optimizer: str) -> None:
    """With dropout, accumulation, a moving average and a schedule."""
    kind, recipe, changes = CASES[case]
    asked = [f"train.optimizer.kind={optimizer}", "train.optimizer.rate=0.01", "train.ema=0.9"]
    found = planned(kind, tmp_path, *changes, *asked, recipe=recipe)
    given = batches(found, 6, torch.float32)
    given = [given[index % len(given)] for index in (*range(6), 0, 1, 2)]
    plain, captured = (make(found, 2, torch.float32) for _ in range(2))
    recorder = CountingRecorder()
    assert same(learn(plain, given), learn(with_graphs(captured, recorder), given))
    assert recorder.replayed >= 2


def test_a_skipped_update_in_a_graph_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = planned("language", tmp_path, recipe="lstm")
    given = batches(found, 1, torch.float32) * 5
    factor = torch.ones(())
    spoil(found, monkeypatch, lambda _, losses: Losses(*(part * factor for part in losses)))
    recorder = CountingRecorder()
    update = with_graphs(make(found, 2, torch.float32), recorder)
    learn(update, given)
    before = everything(update)
    assert recorder.replayed
    factor.fill_(torch.nan)
    assert float(update(dict(given[0]), 6).bad) == 1
    assert same(before, everything(update))
    factor.fill_(1.0)
    assert float(update(dict(given[0]), 7).bad) == 0
    assert not same(before, everything(update))


def test_results_of_an_update_stay_when_the_next_one_is_replayed(tmp_path: Path) -> None:
    found = planned("language", tmp_path)
    given = batches(found, 6, torch.float32)
    plain, captured = make(found, 1, torch.float32), with_graphs(make(found, 1, torch.float32))
    wanted, found = ([update(dict(b), step) for step, b in enumerate(given, 1)] for update in (plain, captured))
    assert [[float(value) for value in each] for each in wanted] == [[float(value) for value in each] for each in found]


def test_each_shape_has_one_graph(tmp_path: Path) -> None:
    found = planned("classification", tmp_path)
    given = batches(found, 99, torch.float32)
    recorder = CountingRecorder()
    update = with_graphs(make(found, 1, torch.float32), recorder)
    for _ in range(3):
        learn(update, given)
    shapes = {batch["tokens"].shape for batch in given}
    assert len(shapes) > 1
    assert recorder.recorded == len(shapes)


def test_beyond_a_number_of_shapes_updates_are_not_captured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capture, "GRAPHS", 1)
    found = planned("classification", tmp_path)
    given = batches(found, 99, torch.float32) * 3
    recorder = CountingRecorder()
    plain, captured = make(found, 1, torch.float32), with_graphs(make(found, 1, torch.float32), recorder)
    assert same(learn(plain, given), learn(captured, given))
    assert recorder.recorded == 1


class WaitingRecorder(CountingRecorder):
    """Notices in the rehearsal that an update waits for the device."""

    is_rehearsal = False

    @contextmanager
    def without_waiting(self) -> Iterator[None]:
        self.is_rehearsal = True
        yield
        self.is_rehearsal = False


@pytest.mark.parametrize("recipe", ["gpt2", "lstm", "deepseek-like"])
def test_an_update_that_waits_for_the_device_is_not_captured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recipe: str
) -> None:
    found = planned("language", tmp_path, recipe=recipe)
    given = batches(found, 4, torch.float32)
    wanted = learn(make(found, 2, torch.float32), given)
    recorder, passes = WaitingRecorder(), []

    def wait(batch: Batch, losses: Losses) -> Losses:
        passes.append(batch)
        if recorder.is_rehearsal and len(passes) % 2 == 0:  # in the second of two parts
            recorder.is_rehearsal = False
            raise RuntimeError(WAITS)
        return losses

    spoil(found, monkeypatch, wait)
    update = with_graphs(make(found, 2, torch.float32), recorder)
    assert same(wanted, learn(update, given))
    assert recorder.recorded == 0
    assert update.captured is not None
    assert update.captured.failure == WAITS


def test_what_follows_the_passes_happens_once_also_if_it_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights that an optimizer has changed could not be restored, so the rehearsal is over before it."""
    found = planned("language", tmp_path)
    given = batches(found, 4, torch.float32)
    wanted = learn(make(found, 2, torch.float32), given)
    recorder = WaitingRecorder()
    update = with_graphs(make(found, 2, torch.float32), recorder)
    step = update.optimizer.step

    def step_and_wait(bad: Tensor) -> None:
        step(bad)
        if recorder.is_rehearsal:
            raise RuntimeError(WAITS)

    monkeypatch.setattr(update.optimizer, "step", step_and_wait)
    assert same(wanted, learn(update, given))


def test_a_watched_model_runs_without_graphs(tmp_path: Path) -> None:
    """A replay would neither record nor edit what attentions compute."""
    found = planned("language", tmp_path)
    given = batches(found, 4, torch.float32)
    recorder = CountingRecorder()
    update = with_graphs(make(found, 1, torch.float32), recorder)
    learn(update, given)
    replayed = recorder.replayed
    assert replayed
    with watch(update.model) as tape:
        update(dict(given[0]), 5)
    assert recorder.replayed == replayed
    assert all(len(calls) == 1 for calls in tape.values())
    update(dict(given[0]), 6)
    assert recorder.replayed == replayed + 1


def test_when_compiling_has_failed_updates_are_captured_from_the_beginning(tmp_path: Path) -> None:
    """Caches of what now runs are filled outside of graphs, whose memory is used again."""
    update = with_graphs(make(planned("language", tmp_path), 1, torch.float32))
    captured = update.captured
    update._compile_no_more("no compiler")
    assert update.captured is not captured


class FailingRecorder(CountingRecorder):
    """Cannot record the second graph."""

    def record(self, work: Callable[[], None]) -> Callable[[], None]:
        if self.recorded:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return super().record(work)


def test_after_a_capture_that_failed_updates_run_as_before(tmp_path: Path) -> None:
    found = planned("classification", tmp_path)
    given = batches(found, 99, torch.float32) * 3
    plain, captured = (make(found, 1, torch.float32) for _ in range(2))
    assert same(learn(plain, given), learn(with_graphs(captured, FailingRecorder()), given))
    assert captured.captured is not None
    assert captured.captured.failure == "CUDA out of memory"
    assert not captured.captured.graphs


def test_the_run_says_once_that_updates_cannot_be_captured(tmp_path: Path) -> None:
    trainer, said = make_trainer(planned("language", tmp_path), tmp_path / "run")
    recorder = FailingRecorder()
    recorder.recorded = 1
    with_graphs(trainer.update, recorder)
    draws = trainer.draws()
    for _ in range(5):
        trainer.advance(draws)
    reason = "cannot be captured as a CUDA graph (CUDA out of memory)"
    assert said.getvalue() == f"step 3: an update {reason}; updates run without graphs, with the same result\n"


def test_when_memory_runs_out_the_smaller_parts_are_captured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = planned("language", tmp_path, still=True)
    given = batches(found, 6, torch.float32)
    limit_rows(found, monkeypatch, 3)
    recorder = CountingRecorder()
    plain, captured = make(found, 1, torch.float32), with_graphs(make(found, 1, torch.float32), recorder)
    assert same(learn(plain, given), learn(captured, given))
    assert captured.split == 4
    assert recorder.replayed


def test_loading_a_checkpoint_forgets_the_graphs(tmp_path: Path) -> None:
    found = planned("language", tmp_path, recipe="lstm")
    given = batches(found, 1, torch.float32) * 6
    update = with_graphs(make(found, 1, torch.float32))
    learn(update, given)
    state = {name: tensor.clone() for name, tensor in update.state().items()}
    update.load(state, split=1, rows=len(given[0]["labels"]))
    assert update.captured is None  # which on CUDA captures again


# --- the choice ------------------------------------------------------------------------------------------------------


@pytest.fixture
def run(tmp_path: Path) -> tuple[RunPlan, nn.Module]:
    found = planned("language", tmp_path)
    return found, build_model(found.config, ALONE)


@pytest.fixture(autouse=True)
def _can_compile(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is chosen must not depend on what is installed here."""
    monkeypatch.setattr("regard.training.execution.what_compiling_lacks", lambda device: "")


def choose(run: tuple[RunPlan, nn.Module], ranks: Ranks, shapes: int = 1, **changes: object) -> Execution:
    found, model = run
    return choose_execution(model, found.task, replace(found.config.train, **changes), ranks, shapes)


def test_a_small_model_is_captured_and_not_compiled(run: tuple[RunPlan, nn.Module]) -> None:
    assert choose(run, CUDA, steps=3_000) == Execution(compiles=False, captures=True)


def test_a_large_update_is_compiled_and_not_captured(run: tuple[RunPlan, nn.Module]) -> None:
    assert choose(run, CUDA, steps=10_000, tokens=2 * 10**9)[:2] == Execution(compiles=True, captures=False)[:2]


def test_a_short_run_is_not_compiled(run: tuple[RunPlan, nn.Module]) -> None:
    assert choose(run, CUDA, steps=1, tokens=2 * 10**9) == Execution(compiles=False, captures=False)


def test_two_passes_take_twice_as_long(tmp_path: Path) -> None:
    found = planned("translation", tmp_path, "task.r_drop=1.0", recipe="translator")
    model = build_model(found.config, ALONE)
    longest = CAPTURED_SECONDS - LEAST_SECONDS
    tokens = round(0.7 * longest * SPEED / estimate_flops(model, 1))
    assert not choose((found, model), CUDA, tokens=tokens).captures
    assert choose((found, model), CUDA, tokens=tokens // 2).captures


def test_what_the_user_chooses_decides(run: tuple[RunPlan, nn.Module]) -> None:
    assert choose(run, CUDA, compile="always") == Execution(compiles=True, captures=True)
    assert choose(run, CUDA, capture="never", steps=10) == Execution(compiles=False, captures=False)
    large = choose(run, CUDA, steps=10_000, tokens=2 * 10**9, capture="always", compile="never")
    assert large == Execution(compiles=False, captures=True)


def test_graphs_are_for_one_cuda_device(run: tuple[RunPlan, nn.Module]) -> None:
    for ranks in (ALONE, Ranks(0, 1, torch.device("mps")), Ranks(0, 2, torch.device("cuda"))):
        assert not choose(run, ranks).captures
        assert not choose(run, ranks, capture="always").captures
    assert choose(run, ALONE, steps=10**6, tokens=10**9) == Execution(compiles=False, captures=False)
    assert choose(run, ALONE, compile="always").compiles


@dataclass(frozen=True)
class OwnOptimizer(AdamWConfig):
    """Its rates may be numbers of Python, which a graph would not follow."""


def test_parts_and_hooks_of_the_user_are_not_captured(run: tuple[RunPlan, nn.Module]) -> None:
    """They may run Python that a graph would not."""
    found, model = run
    optimizer = found.config.train.optimizer

    class Own(nn.Linear):
        pass

    def own_activation(x: Tensor) -> Tensor:
        return x

    assert can_capture(model, found.task, optimizer)
    assert not can_capture(nn.Sequential(model, Own(1, 1)), found.task, optimizer)
    for own in (own_activation, partial(own_activation)):
        with registered(("activation", "own", own)):
            assert not can_capture(MLP(2, 2, "own", bias=True), found.task, optimizer)
    assert choose(run, CUDA).captures
    with registered(("optimizer", "own", OwnOptimizer)):
        assert not choose(run, CUDA, optimizer=OwnOptimizer(0.1)).captures
    weight = next(model.parameters())
    for add_hook in (
        partial(next(model.children()).register_forward_hook, lambda *arguments: None),
        partial(register_module_forward_hook, lambda *arguments: None),
        partial(weight.register_hook, lambda gradient: gradient),
        partial(weight.register_post_accumulate_grad_hook, lambda parameter: None),
    ):
        handle = add_hook()
        assert not choose(run, CUDA).captures
        handle.remove()
        assert choose(run, CUDA).captures


@pytest.mark.parametrize("recipe", recipe_names())
def test_every_recipe_can_be_captured(run: tuple[RunPlan, nn.Module], recipe: str) -> None:
    model = build_empty(load_recipe(recipe).model)
    assert can_capture(model, run[0].task, run[0].config.train.optimizer)


def test_compiling_must_save_more_time_than_it_takes(run: tuple[RunPlan, nn.Module]) -> None:
    """The kernels of GPT-2 124M at 32k tokens run 0.17 s an update, those of a translator of 13 M at 8k 11 ms."""

    def compiles(kernels: float, steps: int, shapes: int = 1, capture: str = "auto") -> bool:
        tokens = round((kernels - LEAST_SECONDS) * SPEED / estimate_flops(run[1], 1))
        return choose(run, CUDA, shapes, steps=steps, tokens=tokens, capture=capture).compiles

    assert compiles(0.17, 2000)
    assert not compiles(0.17, 200)
    assert not compiles(0.011, 3000)
    assert compiles(0.011, 14_000)
    assert compiles(0.011, 3000, capture="never")  # launching takes longer than the kernels
    assert not compiles(0.011, 14_000, shapes=20)


def test_a_long_run_is_compiled_whole(run: tuple[RunPlan, nn.Module]) -> None:
    """It saves little more than regions do, and takes longer to compile."""
    assert not choose(run, CUDA, steps=5_000, capture="never").whole
    assert choose(run, CUDA, steps=100_000, capture="never") == Execution(compiles=True, captures=False, whole=True)
    assert not choose(run, Ranks(0, 2, torch.device("cuda")), steps=100_000).whole
    found, _ = run
    assert choose((found, nn.Linear(2, 2)), CUDA, compile="always").whole  # nothing in it is a region
