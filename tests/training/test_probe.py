"""Snapshots of attention: their steps, content and size, the same after resuming, and reading them."""

import errno
import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import save_file
from torch import Tensor

from regard.data.batches import Draw
from regard.errors import RegardError
from regard.models import store
from regard.models.model import Model
from regard.models.store import tensors
from regard.parts.watch import watch
from regard.runs.checkpoint import load_checkpoint
from regard.runs.ownership import check_free
from regard.training import probe
from regard.training.draft import RunPlan
from regard.training.loop import Trainer
from regard.training.probe import (
    GAPS,
    LIMIT,
    Snapshots,
    bounded,
    fitting_inputs,
    probe_steps,
    probe_weights,
    read_probe,
)
from regard.training.trial import build_model
from regard.training.update import Outcome

from .tiny import ALONE, make_trainer, planned

QUICK = ("train.optimizer.rate=0.1", "train.schedule.warmup=0")
# Task, architecture, overrides, and the attentions with their numbers of heads.
CASES: dict[str, tuple[str, str, tuple[str, ...], dict[str, int]]] = {
    "translator": (
        "translation",
        "translator",
        (),
        {
            f"{side}.layers.{layer}.{kind}": 4
            for side, kind in (("decoder", "cross"), ("decoder", "mixer"), ("encoder", "mixer"))
            for layer in (0, 1)
        },
    ),
    "bahdanau": ("translation", "rnn-attention", QUICK, {"attention": 1}),
    "luong": ("translation", "rnn-attention", (*QUICK, "model.feed=none"), {"attention": 1}),
    "input-feeding": ("translation", "rnn-attention", (*QUICK, "model.feed=attended"), {"attention": 1}),
    "language": ("language", "gpt2", (), {f"stack.layers.{layer}.mixer": 4 for layer in (0, 1)}),
    "experts": ("language", "deepseek-like", (), {"stack.layers.0.mixer": 2, "stack.layers.1.mixer": 1}),
    "bfloat16": ("language", "gpt2", ("train.precision=bfloat16",), {f"stack.layers.{n}.mixer": 4 for n in (0, 1)}),
    "masked": ("masked", "bert", (), {f"stack.layers.{layer}.mixer": 4 for layer in (0, 1)}),
    "classification": ("classification", "bert", (), {f"stack.layers.{layer}.mixer": 4 for layer in (0, 1)}),
    "vision": ("vision", "vit", (), {f"stack.layers.{layer}.mixer": 4 for layer in (0, 1)}),
}


@pytest.fixture(autouse=True, scope="module")
def _cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REGARD_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


def trainer_of(found: RunPlan, folder: Path) -> Trainer:
    """Return the trainer of a run, without validations, which would take longest."""
    trainer, _ = make_trainer(found, folder)
    trainer.task.measure = lambda model, rows=None: {trainer.task.metric: 1.0}
    trainer.task.samples = lambda model: []
    return trainer


def changed(found: RunPlan, **values: object) -> RunPlan:
    """Return the same run with other settings."""
    return replace(found, config=replace(found.config, train=replace(found.config.train, **values)))


def at_the_end(found: RunPlan, run: Path, kind: str = "model") -> Model:
    """Return the model with the weights of the last checkpoint."""
    last = load_checkpoint(run / "checkpoints", pytest.fail)
    assert last is not None
    model = build_model(found.config, ALONE)
    with torch.no_grad():
        for name, tensor in tensors(model).items():
            tensor.copy_(last.tensors[f"{kind}/{name}"])
    return model


def seen(trainer: Trainer, model: Model) -> dict[str, Tensor]:
    """Return what a model attends to in the probe, by watching it."""
    with torch.no_grad(), trainer.update.autocast(), watch(model.eval()) as tape:
        model(*trainer.task.probe().values())
        return {name: tape.weights(name)[0].half() for name in tape}


def assert_same(one: dict[str, Tensor], other: dict[str, Tensor]) -> None:
    assert one.keys() == other.keys()
    for name, tensor in one.items():
        assert tensor.dtype == other[name].dtype
        assert torch.equal(tensor, other[name]), name


def files(run: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (run / "probe").iterdir()}


# --- which steps -----------------------------------------------------------------------------------------------------


@given(st.integers(1, 10**7))
def test_steps_lead_from_the_first_to_the_last_in_growing_gaps(steps: int) -> None:
    found = probe_steps(steps)
    assert (found[0], found[-1]) == (0, steps)
    gaps = [after - before for before, after in pairwise(found)]
    assert min(gaps) > 0
    assert all(later >= earlier - 1 for earlier, later in pairwise(gaps))  # except for rounding
    assert len(found) <= GAPS + 1
    if steps >= 70:
        assert len(found) >= 16


# --- what is in them -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", CASES)
def test_snapshots_are_what_the_model_attends_to(case: str, tmp_path: Path) -> None:
    kind, recipe, changes, attentions = CASES[case]
    found = planned(kind, tmp_path, *changes, "train.steps=4", recipe=recipe)
    trainer = trainer_of(found, tmp_path / "run")
    trainer.train()
    kept = read_probe(tmp_path / "run")
    assert kept.steps == (0, 1, 2, 3, 4)
    inputs = trainer.task.probe()
    assert_same(kept.inputs, inputs)
    assert list(kept.inputs) == list(inputs)  # in the order that the model takes them
    last = kept.weights(4)
    assert {name: len(weights) for name, weights in last.items()} == attentions
    assert_same(last, seen(trainer, at_the_end(found, tmp_path / "run")))
    assert_same(kept.weights(0), seen(trainer, build_model(found.config, ALONE)))
    for weights in last.values():
        assert weights.dtype == torch.float16
        assert weights.sum(-1).sub(1).abs().max() < 0.02
    if kind == "translation":
        lengths = (inputs["target"].shape[1], inputs["source"].shape[1])
        (cross,) = (
            weights.shape[1:] for name, weights in last.items() if name in ("attention", "decoder.layers.0.cross")
        )
        assert cross == lengths
        assert lengths[0] > 1
    assert not any(torch.equal(last[name], first) for name, first in kept.weights(0).items())  # something was learned


def test_with_a_moving_average_snapshots_are_of_that(tmp_path: Path) -> None:
    found = planned("language", tmp_path, "train.ema=0.9")
    trainer = trainer_of(found, tmp_path / "run")
    trainer.train()
    last = read_probe(tmp_path / "run").weights(12)
    assert_same(last, seen(trainer, at_the_end(found, tmp_path / "run", "average")))
    own = seen(trainer, at_the_end(found, tmp_path / "run"))
    assert not torch.equal(last["stack.layers.0.mixer"], own["stack.layers.0.mixer"])


@pytest.mark.parametrize(("kind", "recipe"), [("language", "lstm"), ("translation", "rnn-seq2seq")])
def test_a_model_without_attention_leaves_nothing(kind: str, recipe: str, tmp_path: Path) -> None:
    trainer = trainer_of(planned(kind, tmp_path, recipe=recipe), tmp_path / "run")
    trainer.train()
    assert not (tmp_path / "run/probe").exists()


@pytest.mark.parametrize("ema", [None, 0.9])
def test_what_is_learned_does_not_depend_on_snapshots(
    ema: float | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With dropout, and experts that count their load."""
    changes = ("model.embed.dropout=0.1", "train.steps=3")
    found = changed(planned("language", tmp_path, *changes, recipe="deepseek-like"), ema=ema)
    with_them = trainer_of(found, tmp_path / "run")
    with_them.train()
    assert (tmp_path / "run/probe").exists()
    monkeypatch.setattr(Snapshots, "wanted", lambda *given, **named: False)
    without = trainer_of(found, tmp_path / "other")
    without.train()
    assert not (tmp_path / "other/probe").exists()
    assert_same(with_them.state(), without.state())


@pytest.mark.parametrize("training", [True, False])
def test_snapshots_do_not_change_the_mode_or_the_random_state(tmp_path: Path, training: bool) -> None:
    trainer = trainer_of(planned("masked", tmp_path), tmp_path / "run")
    trainer.model.train(training)
    before = torch.get_rng_state()
    weights = probe_weights(trainer.model, trainer.task.probe())
    assert torch.equal(torch.get_rng_state(), before)
    assert trainer.model.training is training
    assert {module.training for module in trainer.model.modules()} == {training}
    assert not any(tensor.requires_grad for tensor in weights.values())
    trainer.model.eval()
    assert_same(probe_weights(trainer.model, trainer.task.probe()), weights)  # without dropout, whatever the mode


# --- their size ------------------------------------------------------------------------------------------------------


def size(weights: dict[str, Tensor]) -> int:
    return sum(tensor.numel() * 2 for tensor in weights.values())


@pytest.mark.parametrize(("limit", "wanted"), [(500, 8), (1100, 8), (2000, 11), (10**6, 32)])
def test_a_row_is_shortened_to_the_limit(
    limit: int, wanted: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 8 heads that look at 8 tokens: 1024 bytes."""
    monkeypatch.setattr(probe, "LIMIT", limit)
    found = planned("language", tmp_path, "task.window=32")
    trainer = trainer_of(found, tmp_path / "run")
    inputs = fitting_inputs(trainer.model, trainer.task)
    length = inputs["tokens"].shape[1]
    assert length == wanted
    assert_same(inputs, trainer.task.probe(length))


@pytest.mark.parametrize("limit", [500, 1100])
def test_snapshots_are_within_the_limit(limit: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 8 heads that look at 8 tokens, or of 4 where not all fit."""
    monkeypatch.setattr(probe, "LIMIT", limit)
    trainer = trainer_of(planned("language", tmp_path, "task.window=32", "train.steps=2"), tmp_path / "run")
    trainer.train()
    kept = read_probe(tmp_path / "run")
    assert kept.inputs["tokens"].shape == (1, 8)
    for step in kept.steps:
        assert size(kept.weights(step)) == {500: 384, 1100: 1024}[limit]


def test_a_pair_is_chosen_that_fits_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = planned("translation", tmp_path, "task.longest=20")
    trainer = trainer_of(found, tmp_path / "run")
    large = probe_weights(trainer.model, trainer.task.probe())
    monkeypatch.setattr(probe, "LIMIT", size(large) - 1)
    monkeypatch.setattr(probe, "SHORTEST", 2)
    inputs = fitting_inputs(trainer.model, trainer.task)
    assert size(probe_weights(trainer.model, inputs)) < size(large)
    assert inputs["source"][0, -1] == trainer.task.special.end
    assert inputs["target"][0, 0] == trainer.task.special.start


@given(
    heads=st.lists(st.integers(1, 16), min_size=1, max_size=14),
    rows=st.integers(1, 300),
    columns=st.integers(1, 300),
)
def test_what_cannot_be_shortened_is_left_out_in_part(heads: list[int], rows: int, columns: int) -> None:
    weights = {f"layer.{n}": torch.zeros((), dtype=torch.float16).expand(h, rows, columns) for n, h in enumerate(heads)}
    kept = bounded(weights)
    assert 0 < size(kept) <= LIMIT
    assert list(kept) == [name for name in weights if name in kept]  # in their order
    if size(weights) <= LIMIT:
        assert kept.keys() == weights.keys()
    if len(kept) > 1:
        assert f"layer.{len(heads) - 1}" in kept
        assert "layer.0" in kept
        assert all(len(kept[name]) == len(weights[name]) for name in kept)


def test_one_head_is_kept_however_large_it_is() -> None:
    weights = {"a": torch.zeros(3, 400, 400, dtype=torch.float16), "b": torch.ones(3, 400, 400, dtype=torch.float16)}
    assert_same(bounded(weights), {"b": weights["b"][:1]})


# --- resumed ---------------------------------------------------------------------------------------------------------


class KilledError(BaseException):
    """Simulates SIGKILL."""


def kill_before(trainer: Trainer, step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Train until the update of a step, which is killed."""
    advance = trainer.advance

    def advance_or_die(draws: Iterator[tuple[Draw, int, int]]) -> Outcome:
        if trainer.step + 1 == step:
            raise KilledError
        return advance(draws)

    monkeypatch.setattr(trainer, "advance", advance_or_die)
    with pytest.raises(KilledError):
        trainer.train()


@pytest.mark.parametrize(
    ("kind", "ema", "step"),
    [("language", 0.9, 2), ("masked", None, 9), ("language", 0.9, 12)],
)
def test_a_run_killed_and_resumed_leaves_the_same_snapshots(
    kind: str, ema: float | None, step: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = changed(planned(kind, tmp_path), ema=ema)
    whole = trainer_of(found, tmp_path / "whole")
    whole.train()
    killed = trainer_of(found, tmp_path / "run")
    kill_before(killed, step, monkeypatch)
    resumed = trainer_of(found, tmp_path / "run")
    assert resumed.resume() is (step > 3)
    resumed.train()
    assert files(tmp_path / "run") == files(tmp_path / "whole")
    assert len(files(tmp_path / "run")) == len(probe_steps(12)) + 1


def test_killed_right_after_a_checkpoint_no_snapshot_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = planned("language", tmp_path)
    killed = trainer_of(found, tmp_path / "run")
    save = killed.save

    def save_and_die() -> None:
        save()
        if killed.step == 6:
            raise KilledError

    monkeypatch.setattr(killed, "save", save_and_die)
    with pytest.raises(KilledError):
        killed.train()
    resumed = trainer_of(found, tmp_path / "run")
    assert resumed.resume()
    assert resumed.step == 6
    resumed.train()
    assert list(read_probe(tmp_path / "run").steps) == probe_steps(12)


def test_snapshots_after_the_step_that_is_resumed_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run of 8 steps is resumed from step 6 with more steps, in which 7 and 8 have no snapshots."""
    found = changed(planned("language", tmp_path), steps=8, checkpoint_every=6, keep=2)
    trainer_of(found, tmp_path / "run").train()
    assert read_probe(tmp_path / "run").steps == tuple(range(9))
    shutil.rmtree(tmp_path / "run/checkpoints/step-00000008")
    resumed = trainer_of(changed(found, steps=1000), tmp_path / "run")
    assert resumed.resume()
    kill_before(resumed, 12, monkeypatch)
    assert read_probe(tmp_path / "run").steps == (0, 1, 2, 3, 4, 5, 6, 11)


def test_a_run_that_is_extended_keeps_its_snapshots(tmp_path: Path) -> None:
    found = planned("language", tmp_path)
    first = trainer_of(found, tmp_path / "run")
    first.train()
    before = files(tmp_path / "run")
    more = trainer_of(changed(found, steps=20), tmp_path / "run")
    assert more.resume()
    more.train()
    kept = read_probe(tmp_path / "run")
    assert kept.steps == (*probe_steps(12), *(step for step in probe_steps(20) if step > 12))
    assert before.items() <= files(tmp_path / "run").items()


@pytest.mark.parametrize("kind", ["translation", "trajectories"])
def test_a_run_that_continues_on_other_data_keeps_its_row(kind: str, tmp_path: Path) -> None:
    found = planned(kind, tmp_path)
    trainer_of(found, tmp_path / "run").train()
    before = read_probe(tmp_path / "run")
    more = trainer_of(changed(found, steps=20), tmp_path / "run")
    assert more.resume()
    other = {name: tensor[:, :3] for name, tensor in more.task.probe().items()}
    more.task.probe = lambda longest=64: other
    more.train()
    after = read_probe(tmp_path / "run")
    assert_same(after.inputs, before.inputs)
    shapes = [{name: weights.shape for name, weights in after.weights(step).items()} for step in (12, after.steps[-1])]
    assert shapes[0] == shapes[1]


def test_a_run_that_has_ended_writes_nothing_more(tmp_path: Path) -> None:
    found = planned("language", tmp_path)
    first = trainer_of(found, tmp_path / "run")
    first.train()
    (tmp_path / "run/probe/step-00000012.safetensors").unlink()
    again = trainer_of(found, tmp_path / "run")
    assert again.resume()
    again.train()
    assert read_probe(tmp_path / "run").steps == tuple(probe_steps(12))[:-1]


def test_out_of_patience_a_run_leaves_its_last_step(tmp_path: Path) -> None:
    found = planned("language", tmp_path, "train.steps=1000", "train.validate_every=4", "train.patience=1")
    trainer = trainer_of(found, tmp_path / "run")
    trainer.train()
    assert trainer.step == 8
    assert read_probe(tmp_path / "run").steps == (0, 1, 5, 8)
    assert_same(read_probe(tmp_path / "run").weights(8), seen(trainer, at_the_end(found, tmp_path / "run")))


def test_a_run_of_a_version_without_snapshots_gets_some(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = planned("language", tmp_path)
    killed = trainer_of(found, tmp_path / "run")
    kill_before(killed, 8, monkeypatch)
    shutil.rmtree(tmp_path / "run/probe")
    resumed = trainer_of(found, tmp_path / "run")
    assert resumed.resume()
    resumed.train()
    kept = read_probe(tmp_path / "run")
    assert kept.steps == (7, 8, 10, 12)
    assert_same(kept.inputs, resumed.task.probe())


# --- what can be wrong -----------------------------------------------------------------------------------------------


def test_a_full_disk_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = trainer_of(planned("language", tmp_path), tmp_path / "run")

    def fail_to_save(tensors: dict[str, Tensor], path: Path) -> None:
        path.write_bytes(b"the beginning")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(store, "save_file", fail_to_save)
    with pytest.raises(RegardError) as error:
        trainer.train()
    cause = "cannot be written: No space left on device; free some space, or choose another folder"
    assert str(error.value) == f"{tmp_path / 'run/probe/inputs.safetensors'}: {cause}"
    assert list((tmp_path / "run/probe").iterdir()) == []


@pytest.fixture
def written(tmp_path: Path) -> Path:
    """A run with two snapshots, written by hand."""
    (tmp_path / "probe").mkdir()
    save_file({"tokens": torch.tensor([[1, 2]])}, tmp_path / "probe/inputs.safetensors")
    weights = {f"stack.layers.{layer}.mixer": torch.full((1, 2, 2), float(layer)).half() for layer in (10, 9, 0)}
    for step in (123456789, 0):
        save_file(weights, tmp_path / f"probe/step-{step:08d}.safetensors")
    (tmp_path / "probe/step-00000007.safetensors.part").touch()
    return tmp_path


def test_snapshots_are_read_in_order(written: Path) -> None:
    kept = read_probe(str(written))
    assert kept.inputs["tokens"].tolist() == [[1, 2]]
    assert kept.steps == (0, 123456789)
    weights = kept.weights(123456789)
    assert list(weights) == ["stack.layers.0.mixer", "stack.layers.9.mixer", "stack.layers.10.mixer"]
    assert [int(tensor[0, 0, 0]) for tensor in weights.values()] == [0, 9, 10]


def test_a_run_without_snapshots_says_why(tmp_path: Path) -> None:
    cause = "its model has no attention, or an older version trained it"
    remedy = f"`regard train {tmp_path}/recipe.toml --run OTHER` makes new ones"
    for _ in range(2):
        with pytest.raises(RegardError) as error:
            read_probe(tmp_path)
        assert str(error.value) == f"{tmp_path}: the run has no snapshots of attention: {cause}; {remedy}"
        (tmp_path / "probe").mkdir(exist_ok=True)  # and with an empty folder


def test_inputs_that_are_missing_or_damaged_are_named(written: Path) -> None:
    path = written / "probe/inputs.safetensors"
    remedy = f"`regard train {written}/recipe.toml --run OTHER` makes new ones"
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(RegardError, match=r"inputs.safetensors: is damaged: .*[Ii]ncomplete.*; `regard train"):
        read_probe(written)
    path.unlink()
    with pytest.raises(RegardError) as error:
        read_probe(written)
    assert str(error.value) == f"{path}: is missing; {remedy}"
    path.mkdir()
    with pytest.raises(RegardError, match=r"inputs.safetensors: is damaged: .*; `regard train"):
        read_probe(written)


def test_a_snapshot_that_is_missing_or_damaged_is_named(written: Path) -> None:
    kept = read_probe(written)
    with pytest.raises(RegardError) as error:
        kept.weights(5)
    assert str(error.value) == f"{written}/probe: there is no snapshot of step 5; there are those of 0, 123456789"
    path = written / "probe/step-00000000.safetensors"
    path.write_bytes(b"")
    with pytest.raises(RegardError, match=f"^{path}: is damaged: .*; remove it to look at the other steps$"):
        kept.weights(0)
    path.unlink()
    with pytest.raises(RegardError, match=r"there is no snapshot of step 0; there are those of 0, 123456789$"):
        kept.weights(0)


def test_a_folder_with_other_snapshots_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "probe").mkdir()
    with pytest.raises(RegardError, match=r"holds probe of something else; choose another run=FOLDER$"):
        check_free(tmp_path)
