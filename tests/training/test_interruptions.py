"""Validations and checkpoints are few where they would take long beside the updates of a run."""

from collections.abc import Callable

import pytest
import torch

from regard.tasks.pair_task import PairTask
from regard.training import memory
from regard.training.draft import RunPlan
from regard.training.planning import plan_run
from regard.training.ranks import Ranks
from regard.training.request import RunRequest
from regard.training.resumed_config import resumed_config

from .tiny import data, plan


@pytest.fixture(autouse=True)
def _cache(tmp_path, monkeypatch):
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def plan_on_gpu(monkeypatch) -> Callable[..., RunPlan]:
    """Plan a run as on an NVIDIA GPU, on any machine."""
    monkeypatch.setattr(memory, "free_memory", lambda device: None)
    return lambda table, *changes: plan_run(RunRequest(table, changes), Ranks(0, 1, torch.device("cuda")))


def test_a_short_run_translates_fewer_sentences(tmp_path, monkeypatch):
    monkeypatch.setattr(PairTask, "least_written", 2)
    table, words = data("translation", tmp_path), "tokenizer.kind=word"
    short = plan(table, words, "train.steps=10", "train.tokens=24")
    assert (short.config.train.rare_until, short.config.train.valid_rows) == (1.0, 2)
    assert "limit_validations" in short.sources["train.valid_rows"]
    assert plan(table, words, "train.steps=1000", "train.tokens=512").config.train.valid_rows == 500
    assert plan(table, words, "train.steps=10", "train.tokens=24", "train.valid_rows=4").config.train.valid_rows == 4


@pytest.mark.parametrize("kind", ["language", "masked", "classification", "vision", "translation", "parsing"])
def test_on_an_accelerator_a_validation_waits_for_its_kernels(tmp_path, monkeypatch, plan_on_gpu, kind: str):
    """Of a run of 400 updates of 6 ms, five validations of 0.05 s are a tenth; a CPU computes all the time."""
    table, changes = data(kind, tmp_path), ("train.steps=400", "train.tokens=512")
    task = plan_on_gpu(table, *changes).task
    assert task.validation_latency() > 0
    latency = 0.0
    monkeypatch.setattr(type(task), "validation_latency", lambda self, rows=None: latency)
    monkeypatch.setattr(type(task), "passes", lambda self: 1)
    assert plan_on_gpu(table, *changes).config.train.rare_until == 0.6
    latency = 0.05
    assert plan_on_gpu(table, *changes).config.train.rare_until == 1.0
    assert plan(table, *changes).config.train.rare_until == 0.6


def test_checkpoints_on_an_accelerator_are_not_seconds_apart(tmp_path, plan_on_gpu):
    """Updates of a tiny model take 6 ms there."""
    table = data("language", tmp_path)
    few, many = (plan_on_gpu(table, f"train.steps={steps}").config for steps in (400, 40_000))
    assert (few.train.checkpoint_every, many.train.checkpoint_every) == (80, 2000)
    assert plan(table, "train.steps=400").config.train.checkpoint_every == 20
    for change in ("train.keep=20", "train.checkpoint_every=20"):
        assert plan_on_gpu(table, "train.steps=400", change).config.train.checkpoint_every == 20
    assert resumed_config(few, ["train.steps=2000"]).train.checkpoint_every == 100
