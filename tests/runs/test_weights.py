"""The weights of a run by step: of checkpoints, of validations that are kept, and what is not there."""

import shutil

import pytest
import torch

import regard
from regard.errors import InputError, RegardError
from regard.models.store import save_weights, tensors
from regard.runs.checkpoint import newest_facts
from regard.runs.weights import saved_steps
from regard.training.pretrained import Pretrained

from ..training.tiny import make_trainer, planned
from ..use.made import run as untrained


@pytest.fixture(autouse=True)
def _cache(tmp_path, monkeypatch):
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))


def trained(folder, *changes: str):
    """Train a tiny language model; return its folder and the weights after each step."""
    found = planned("language", folder / "data", "train.steps=4", "train.checkpoint_every=3", *changes)
    trainer, _ = make_trainer(found, folder / "run")
    weights = {}
    advance = trainer.advance

    def noted(draws):
        outcome = advance(draws)
        weights[trainer.step] = {
            name: tensor.detach().clone() for name, tensor in (trainer.update.average or tensors(trainer.model)).items()
        }
        return outcome

    trainer.advance = noted
    trainer.train()
    return folder / "run", weights


def same(model, weights) -> bool:
    """Return whether the weights are equal, each in aligned memory, so that outputs are equal to the bit."""
    found = tensors(model).items()
    return all(torch.equal(tensor, weights[name]) and tensor.data_ptr() % 64 == 0 for name, tensor in found)


def test_the_weights_of_a_checkpoint(tmp_path):
    run, weights = trained(tmp_path, "train.keep=2")
    assert list(saved_steps(run)) == [3, 4]
    for step in (3, 4):
        assert same(regard.load(run, device="cpu", step=step).model, weights[step])
        assert same(regard.load_model(run / "checkpoints" / f"step-{step:08d}"), weights[step])
        assert same(regard.open_run(run).model(step=step), weights[step])
    assert not same(regard.load_model(run / "checkpoints" / "step-00000003"), weights[4])


def test_a_moving_average_is_what_is_measured_and_loaded(tmp_path):
    run, weights = trained(tmp_path, "train.ema=0.5", "train.keep=2")
    assert same(regard.open_run(run).model(step=3), weights[3])


def test_the_weights_of_validations_that_are_kept_for_averaging(tmp_path):
    run, weights = trained(tmp_path, "train.average=3", "train.validate_every=2")
    assert list(saved_steps(run)) == [4]  # of a finished run
    save_weights(weights[2], run / "averaging" / "step-00000002.safetensors")  # of one that is being trained
    assert list(saved_steps(run)) == [2, 4]
    assert same(regard.load(run, device="cpu", step=2).model, weights[2])


def test_a_step_that_was_not_saved(tmp_path):
    run, _ = trained(tmp_path, "train.keep=2")
    with pytest.raises(RegardError) as error:
        regard.load(run, step=450)
    assert str(error.value) == f"{run}: no weights were saved after step 450; there are weights of the steps 3, 4"
    shutil.rmtree(run / "checkpoints")
    with pytest.raises(RegardError, match="no weights were saved after step 4; only its best weights were saved"):
        regard.load(run, step=4)


def test_a_damaged_checkpoint_is_not_loaded(tmp_path):
    run, _ = trained(tmp_path)
    path = run / "checkpoints" / "step-00000004"
    (path / "facts.json").write_text("{}")
    with pytest.raises(RegardError) as error:
        regard.load_model(path)
    fault = "facts.json does not match its checksum"
    assert str(error.value) == f"{path}: the checkpoint is damaged ({fault}); take another step"


def test_only_runs_have_steps(tmp_path):
    run = untrained("language", tmp_path / "run")
    (run / "recipe.toml").unlink()
    with pytest.raises(InputError, match="step=3: only the folder of a run holds weights of several steps"):
        regard.load(run, step=3)


def test_a_run_that_was_stopped_before_its_first_validation_says_how_to_continue(tmp_path):
    """Not that a file of a model is missing: the folder is that of a run, and its training can continue."""
    run, _ = trained(tmp_path, "train.keep=2")
    for name in ("config.json", "model.safetensors"):
        (run / name).unlink()
    rule = "this run has no best weights yet"
    remedy = f"continue it with: regard train --resume {run}"
    for use in (regard.load, regard.load_model, lambda run: Pretrained(run).config()):
        with pytest.raises(RegardError) as error:
            use(run)
        assert str(error.value) == f"{run}: {rule}, only those of the steps 3, 4; {remedy}"
    assert regard.load(run, device="cpu", step=4).model is not None
    shutil.rmtree(run / "checkpoints" / "step-00000003")
    with pytest.raises(RegardError, match="yet, only those of step 4; continue it with"):
        regard.load(run)
    shutil.rmtree(run / "checkpoints")
    with pytest.raises(RegardError) as error:
        regard.load(run)
    assert str(error.value) == f"{run}: {rule}; {remedy}"


def test_a_run_of_an_own_module_says_how_to_read_its_weights(tmp_path):
    run, _ = trained(tmp_path)
    (run / "config.json").unlink()
    with pytest.raises(RegardError, match="was trained with a module of your own; read its weights with module"):
        regard.load(run)


def test_the_facts_of_the_newest_checkpoint_that_can_be_read(tmp_path):
    run, _ = trained(tmp_path, "train.keep=2")
    folder = run / "checkpoints"
    newest = newest_facts(folder)
    assert newest["best_step"] == 4
    (folder / "step-00000004" / "facts.json").write_text("{")
    assert newest_facts(folder)["fingerprint"] == newest["fingerprint"]
    shutil.rmtree(folder)
    assert newest_facts(folder) == {}
