"""Captured updates on CUDA: the same weights as without graphs. `bench.accelerator` runs these checks.

Every case trains a tiny model twice without graphs and once with them, with dropout, a schedule, a moving average, two
parts for each update, and one update whose loss is not finite. If the two runs without graphs agree to the bit, the
third must, too; otherwise (some kernels of torch add in any order) it may differ by ten times their difference.
"""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import count, islice
from pathlib import Path
from typing import NamedTuple

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # before CUDA starts: products that are repeatable

import torch
from torch import Tensor

from regard.tasks.loss import Losses
from regard.tasks.task import Batch
from regard.training.capture import WAITS
from regard.training.draft import RunPlan
from regard.training.ranks import Ranks
from regard.training.trial import build_model
from regard.training.update import Update
from tests.training.tiny import planned

STEPS = 14
BAD = 9  # the step whose loss is not finite


class CaptureCase(NamedTuple):
    """A run to compare: its task, its recipe, changes of its plan, and why it cannot be captured, if so."""

    name: str
    kind: str
    recipe: str
    changes: tuple[str, ...] = ()
    failure: str | None = None
    waits: bool = False  # whether the loss waits for the device in a way that only a capture notices


ADAM = ("train.optimizer.kind=adamw", "train.optimizer.rate=0.003")
MUON = ("train.optimizer.kind=muon",)
CAPTURE_CASES = (
    CaptureCase("translation", "translation", "translator", ADAM),
    CaptureCase("translation, Muon", "translation", "translator", MUON),
    CaptureCase("translation, float32", "translation", "translator", (*ADAM, "train.precision=float32")),
    CaptureCase("translation, R-Drop", "translation", "translator", (*ADAM, "task.r_drop=1.0")),
    CaptureCase("translation, in buckets", "translation", "rnn-attention", ADAM),
    CaptureCase("language", "language", "gpt2", ADAM),
    CaptureCase("language, Muon", "language", "gpt2", MUON),
    CaptureCase("language, LSTM", "language", "lstm", ADAM),
    CaptureCase("language, RWKV-4", "language", "rwkv4", ADAM),
    CaptureCase("language, RWKV-7", "language", "rwkv7", ADAM),
    CaptureCase("language, gated DeltaNet", "language", "gated-deltanet", ADAM),
    CaptureCase("language, Mamba-2", "language", "mamba2", ADAM),
    CaptureCase("masked", "masked", "bert", ADAM),
    CaptureCase("classification", "classification", "bert", ADAM),
    CaptureCase("vision", "vision", "vit", ADAM),
    CaptureCase("experts", "language", "deepseek-like", (*ADAM, "train.balance=0.1")),
    CaptureCase("experts, float32", "language", "deepseek-like", (*ADAM, "train.precision=float32"), WAITS),
    CaptureCase("a capture that fails", "language", "gpt2", ADAM, "", waits=True),
)


@contextmanager
def spoiled(found: RunPlan, factor: Tensor, waits: bool) -> Iterator[None]:
    """Multiply losses by a number on the device."""
    original = found.task.loss

    def loss(model: torch.nn.Module, batch: Batch) -> tuple[Losses, Batch]:
        losses, kept = original(model, batch)
        if waits and torch.cuda.is_current_stream_capturing():
            torch.cuda.synchronize()
        return Losses(losses.objective * factor, losses.loss * factor, losses.count), kept

    found.task.loss = loss  # type: ignore[method-assign]
    try:
        yield
    finally:
        found.task.loss = original  # type: ignore[method-assign]


def train_case(
    case: CaptureCase, found: RunPlan, capture: str, resumed: bool = False
) -> tuple[dict[str, Tensor], Update]:
    """Train for some updates; return the state at the end. With `resumed`, continue in a new object half-way."""
    ranks = Ranks(0, 1, torch.device("cuda"))
    config = replace(found.config.train, capture=capture, compile="never", ema=0.9, accumulate=2, clip=1.0)
    found.task.to(ranks.device)

    def make() -> Update:
        return Update(build_model(found.config, ranks), found.task, config, ranks)

    update = make()
    feed = found.task.feed(update.model, config.tokens, config.seed)
    draws = ((draw, epoch) for epoch in count() for draw in feed.order.epoch(epoch))
    factor = torch.ones((), device=ranks.device)
    with spoiled(found, factor, case.waits):
        for step, (draw, epoch) in enumerate(islice(draws, STEPS), 1):
            torch.cuda.manual_seed(step)
            batch = feed.batch(draw, epoch)
            factor.fill_(float("nan") if step == BAD else 1.0)
            outcome = update(batch, step)
            assert float(outcome.bad) == (step == BAD), f"step {step} is bad: {float(outcome.bad)}"
            if resumed and step == STEPS // 2:
                state = {name: tensor.clone() for name, tensor in update.state().items()}
                update = make()
                update.load(state, split=2, rows=len(batch["labels"]))
    return {name: tensor.clone() for name, tensor in update.state().items()}, update


def check_capture(case: CaptureCase) -> tuple[bool, str]:
    """Compare captured updates with others."""
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.utils.deterministic.fill_uninitialized_memory = False
    with tempfile.TemporaryDirectory() as name:
        os.environ["REGARD_CACHE"] = f"{name}/cache"
        found = planned(case.kind, Path(name), *case.changes, recipe=case.recipe)
        wanted, _ = train_case(case, found, "never")
        again, _ = train_case(case, found, "never")
        captured, update = train_case(case, found, "always")
        resumed, _ = train_case(case, found, "always", resumed=True)
    noise, error, after = (largest_difference(wanted, other) for other in (again, captured, resumed))
    assert update.captured is not None
    graphs, failure = len(update.captured.graphs), update.captured.failure
    expected = graphs > 0 if case.failure is None else failure is not None and case.failure in failure
    good = expected and max(error, after) <= 10 * noise
    text = f"captured {error:.1e}  resumed {after:.1e}  noise {noise:.1e}  graphs {graphs}"
    return good, f"{case.name:32} {text}{'' if failure is None else f'  ({failure[:60]})'}"


def largest_difference(found: dict[str, Tensor], wanted: dict[str, Tensor]) -> float:
    """Return the largest difference of all tensors of two states; NaN counts as infinite."""
    assert found.keys() == wanted.keys()
    differences = [float((found[name].double() - wanted[name].double()).abs().max()) for name in found]
    return max(float("inf") if difference != difference else difference for difference in differences)
