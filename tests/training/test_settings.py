"""Training and using a model leave the settings of the process as they were found."""

import csv
import os
import random
import signal
import sys
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.utils.tensorboard  # importing it changes settings of others, once
from rich.console import Console

import regard
from regard.training import start
from regard.training.settings import left_as_found

from ..tasks.corpora import sentences, write
from ..use.made import run

SMALL = ["model.dim=16", "model.depth=1", "train.steps=2", "train.tokens=64", "train.validate_every=2"]
SMALL += ["train.compile=always", "train.precision=bfloat16"]
# The checks of shapes draw from Python's generator, if this file is run with them.
CHECKS = {"Python's generator"} if os.environ.get("REGARD_CHECK_SHAPES", "1") != "0" else set()
QUIET = Console(quiet=True)


def snapshot() -> dict[str, Any]:
    """Return the settings of the process that a library could change."""
    return {
        "torch's generator": torch.get_rng_state().tolist(),
        "Python's generator": random.getstate(),
        "numpy's generator": np.random.get_state()[1].tolist(),  # type: ignore[index, union-attr]
        "fields of CSV": csv.field_size_limit(),
        "precision of products": torch.get_float32_matmul_precision(),
        "TF32": (torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32),
        "cuDNN": (torch.backends.cudnn.benchmark, torch.backends.cudnn.deterministic),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "quantised engine": torch.backends.quantized.engine,
        "threads": torch.get_num_threads(),
        "data type": torch.get_default_dtype(),
        "gradients": torch.is_grad_enabled(),
        "shapes": torch._dynamo.config.recompile_limit,
        "warnings": list(warnings.filters),
        "signals": {number: signal.getsignal(number) for number in signal.valid_signals()},
        "hooks": (sys.excepthook, threading.excepthook, sys.displayhook),
        "environment": dict(os.environ),
        "recursion": sys.getrecursionlimit(),
        "folder": Path.cwd(),
        "numbers that print": torch._tensor_str.PRINT_OPTS.precision,
    }


def changed(work: Callable[[], Any]) -> list[str]:
    """Return the names of the settings that some work changes."""
    before = snapshot()
    work()
    after = snapshot()
    return [name for name in before if before[name] != after[name] and name not in CHECKS]


def test_training_loading_generating_and_measuring_change_no_setting(tmp_path, monkeypatch):
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(start, "finish", lambda *arguments: None)  # drawing curves takes longer than training
    monkeypatch.setattr(torch, "compile", lambda model, **options: model)
    rows = [f'"{line}",{line.split()[0]}' for line in sentences(60)]
    table = write(tmp_path / "table.csv", ["text,label", *rows])
    task = {"kind": "classification", "train": [table]}
    assert changed(lambda: regard.train(task, *SMALL, run=tmp_path / "run", console=QUIET)) == []
    assert changed(lambda: regard.resume(tmp_path / "run", "train.steps=3", console=QUIET)) == []
    loaded = regard.load(tmp_path / "run")
    writer = run("language", tmp_path / "writer")
    for work in (
        lambda: regard.load(tmp_path / "run"),
        lambda: loaded.evaluate(table),
        lambda: regard.load(writer).generate(["red"], tokens=3),
        lambda: regard.load(writer, precision="int8").generate(["red"], tokens=3),
    ):
        assert changed(work) == []


@pytest.mark.parametrize("off", [torch.no_grad, torch.inference_mode])
def test_training_computes_gradients_where_the_program_turned_them_off(off, tmp_path, monkeypatch):
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(start, "finish", lambda *arguments: None)
    task = {"kind": "language", "train": [write(tmp_path / "text.txt", sentences(60))]}
    small = ["model.dim=16", "model.depth=1", "train.steps=2"]
    with off():
        found = regard.train(task, *small, run=tmp_path / "run", console=QUIET)
        assert not torch.is_grad_enabled()
    assert len(found.metrics) > 1


@pytest.mark.parametrize("enabled", [True, False])
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_an_autocast_of_the_program_changes_nothing(precision, enabled, tmp_path, monkeypatch):
    """Its cache would keep the weights of the first update for all others."""
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(start, "finish", lambda *arguments: None)
    task = {"kind": "language", "train": [write(tmp_path / "text.txt", sentences(60))]}
    small = ["model.dim=16", "model.depth=1", "train.steps=3", "train.ema=0.5", f"train.precision={precision}"]
    wanted = regard.train(task, *small, run=tmp_path / "alone", console=QUIET)
    with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
        found = regard.train(task, *small, run=tmp_path / "inside", console=QUIET)
        assert torch.is_autocast_enabled("cpu") is enabled
        assert torch.is_autocast_cache_enabled()
    pairs = zip(wanted.model().parameters(), found.model().parameters(), strict=True)
    assert all(torch.equal(one, other) for one, other in pairs)


def test_settings_are_restored_after_an_error():
    def spoil() -> None:
        torch.manual_seed(7)
        random.seed(7)
        np.random.seed(7)
        torch.set_float32_matmul_precision("high")
        torch.set_num_threads(3)
        warnings.simplefilter("ignore")
        raise MemoryError

    def work() -> None:
        with pytest.raises(MemoryError), left_as_found(torch.device("cpu")):
            spoil()

    def work_without() -> None:
        with pytest.raises(MemoryError):
            spoil()

    assert changed(work) == []
    with warnings.catch_warnings(), torch.random.fork_rng([]):
        noticed = changed(work_without)
    torch.set_float32_matmul_precision("highest")
    torch.set_num_threads(1)
    spoiled = {"torch's generator", "Python's generator", "precision of products", "threads", "warnings"}
    assert spoiled - CHECKS <= set(noticed)


def test_threads_that_train_at_once_learn_what_each_learns_alone(tmp_path):
    """Dropout draws from torch's generator, which all threads of a process share."""
    text = write(tmp_path / "a.txt", sentences(200))
    longer = [
        *SMALL[:2],
        "train.steps=40",
        "train.tokens=64",
        "train.log_every=1",
        "task.window=16",
        "model.layers.block.dropout=0.5",
    ]

    def weights(name: str, seed: int, callbacks: list[Any]) -> dict[str, torch.Tensor]:
        settings = [text, *longer, f"train.seed={seed}"]
        found = regard.train("language", *settings, run=tmp_path / name, callbacks=callbacks, device="cpu")
        return found.model().state_dict()

    alone = [weights(f"alone-{seed}", seed, []) for seed in (0, 1)]
    found: dict[int, dict[str, torch.Tensor]] = {}
    other = threading.Thread(target=lambda: found.update({1: weights("together-1", 1, [])}))

    class Starting:
        def on_update(self, step: int, metrics: Any) -> None:
            if step == 1:
                other.start()

    found[0] = weights("together-0", 0, [Starting()])
    other.join()
    for seed in (0, 1):
        for name, weight in alone[seed].items():
            assert torch.equal(weight, found[seed][name])
