"""Trajectories: batches by hand, the loss and the errors against naive ones, baselines, and bad recordings."""

import numpy as np
import pytest
import torch

from regard.data.batches import EMPTY, Draw
from regard.errors import ConfigError, InputError
from regard.models.recipe import build
from regard.models.trajectory import Futures
from regard.tasks.baselines import constant_velocity, constant_velocity_samples, linear_motion
from regard.tasks.kinds import TASKS
from regard.tasks.loss import IGNORE
from regard.tasks.trajectories import TrajectoriesConfig, best_of_futures, nearest_agents, vary

from ..laws.cases import SHRINK
from .corpora import prepare, walks, write

STEPS = {"observed": 3, "predicted": 2}


def model_for(dtype=torch.float32):
    return build("forecaster", *SHRINK["forecaster"], dtype=dtype, seed=0).eval()


@pytest.fixture
def task(tmp_path):
    files = {"train": (walks(tmp_path / "a.txt"),), "valid": (walks(tmp_path / "b.txt", seed=1),)}
    return prepare("trajectories", **files, **STEPS)


def still(task):
    """The same task without random variations."""
    from dataclasses import replace

    task.config = replace(task.config, rotate=False, flip=False, scale=0.0)
    return task


def test_a_batch_by_hand(task):
    batch = still(task).varied(Draw((9,), np.array([0, 5, EMPTY])))
    assert batch["tracks"].shape == (3, 9, 2)
    assert batch["future"].shape == (3, 3, 2, 2)
    windows = task.train
    first = windows.positions[windows.begins[0] : windows.begins[1]]
    seen = ~np.isnan(first[:, :3]).any(-1)
    assert batch["present"][0].reshape(3, 3)[: len(first)].tolist() == seen.tolist()
    np.testing.assert_allclose(batch["tracks"][0, :3], first[0, :3])
    np.testing.assert_allclose(batch["future"][0, 0], first[0, 3:])
    wanted = windows.whole[windows.begins[0] : windows.begins[1]]
    assert (batch["labels"][0] != IGNORE).tolist() == [*wanted.tolist(), *[False] * (3 - len(wanted))]
    assert (batch["labels"][2] == IGNORE).all()  # an empty row
    assert not any(tensor.isnan().any() for tensor in batch.values() if tensor.is_floating_point())


@pytest.mark.parametrize("final", [0.0, 0.3])
def test_the_loss_is_that_of_the_best_future(final: float):
    generator = torch.Generator().manual_seed(0)
    paths, logits = torch.randn(2, 3, 4, 5, 2, generator=generator), torch.randn(2, 3, 4, generator=generator)
    truth, wanted = torch.randn(2, 3, 5, 2, generator=generator), torch.tensor([[True, False, True], [True] * 3])
    found = best_of_futures(Futures(paths, logits), truth, wanted, relax=0.2, choice=0.5, final=final)
    objective = plain = 0.0
    for row, agent in wanted.nonzero().tolist():
        away = [
            [((x - y) ** 2).sum().sqrt() for x, y in zip(path, truth[row, agent], strict=True)]
            for path in paths[row, agent]
        ]
        errors = [(1 - final) * sum(each) / 5 + final * each[-1] for each in away]
        best = int(np.argmin(errors))
        chosen = -float(logits[row, agent].log_softmax(0)[best])
        objective += 0.8 * min(errors) + 0.2 * sum(errors) / 4 + 0.5 * chosen
        plain += min(sum(each) / 5 for each in away)
    assert float(found.objective) == pytest.approx(float(objective), rel=1e-5)
    assert float(found.loss) == pytest.approx(float(plain), rel=1e-5)
    assert int(found.count) == 5


def test_measured_errors_are_those_of_every_agent_on_its_own(task):
    model = model_for()
    found, errors = task.measure(model), []
    windows = task.valid
    for number in range(len(windows)):
        rows = slice(windows.begins[number], windows.begins[number + 1])
        positions = torch.from_numpy(windows.positions[rows])
        present = ~positions[:, :3].isnan().any(-1)
        with torch.no_grad():
            paths, logits = model(positions[:, :3].nan_to_num(0.0).reshape(1, -1, 2), present.reshape(1, -1))
        for agent in np.flatnonzero(windows.whole[rows]):
            away = (paths[0, agent] - positions[agent, 3:]).norm(dim=-1)
            likely = away[int(logits[0, agent].argmax())]
            errors.append([away.mean(-1).min(), away[:, -1].min(), likely.mean(), likely[-1]])
    wanted = np.mean(errors, 0)
    assert [found[name] for name in ("ade", "fde", "ade_likely", "fde_likely")] == pytest.approx(wanted, rel=1e-5)
    task.parts = 4  # less memory, the same result
    assert task.measure(model) == pytest.approx(found, rel=1e-5)


def test_baselines_of_straight_and_curved_paths():
    steps = np.arange(8.0)
    straight = np.stack((steps, 2 * steps), -1)[None]
    assert constant_velocity(straight, 5).score == pytest.approx(0)
    assert linear_motion(straight, 5).score == pytest.approx(0)
    curved = np.stack((steps, steps**2 / 10), -1)[None]
    # The last step is (1, 0.7), so the errors are 0.1 (k^2 + 9 k) - 0.7 k = 0.1 (k + k^2): 0.2, 0.6, 1.2.
    assert constant_velocity(curved, 5).score == pytest.approx((0.2 + 0.6 + 1.2) / 3)
    assert constant_velocity(curved, 5).how == "fde 1.2"
    assert constant_velocity_samples(curved, 5).score < constant_velocity(curved, 5).score
    slope = np.polyfit(steps[:5], curved[0, :5, 1], 1)
    away = abs(np.polyval(slope, steps[5:]) - curved[0, 5:, 1])
    assert linear_motion(curved, 5).score == pytest.approx(away.mean())


def test_training_windows_keep_the_agents_nearest_to_one_that_is_forecast():
    positions = torch.arange(6.0)[None, :, None, None].expand(1, 6, 4, 2).clone()
    positions[0, 5] = torch.nan
    whole = torch.tensor([[False, False, False, False, True, False]])
    kept, forecast = nearest_agents(positions, whole, 2, 3)
    assert sorted(kept[0, :, 0, 0].tolist()) == [2, 3, 4]
    assert forecast.sum() == 1
    assert nearest_agents(positions, whole, 2, 6)[0] is positions


def test_variations_keep_all_distances_up_to_the_scale(task):
    positions = torch.randn(4, 3, 5, 2)
    positions[0, 0, 0] = torch.nan
    torch.manual_seed(0)
    varied = vary(positions, task.config)
    assert (varied.isnan() == positions.isnan()).all()
    before, after = ((each[:, 1:, 1:] - each[:, 1:, :-1]).norm(dim=-1).flatten(1) for each in (positions, varied))
    factors = after / before
    torch.testing.assert_close(factors, factors[:, :1].expand_as(factors))
    assert ((factors > 0.8) & (factors < 1.2)).all()
    assert not torch.allclose(varied[1:], positions[1:], atol=1e-2)


def test_facts_and_readings(task):
    assert task.facts() == {
        "windows": 26,
        "agents to forecast": 75,
        "validation windows": 26,
        "validation agents": 75,
    }
    (reading,) = task.readings()
    assert reading.how == "frame, agent, x, y; a step is 10 frames"
    assert task.needs() == STEPS
    assert (task.longest(), task.amount().rows) == (9, 26)
    assert [baseline.name for baseline in task.baselines] == [
        "constant velocity",
        "constant velocity, best of 20",
        "linear fit",
    ]
    assert len(task.samples(model_for())) == 3
    probe = task.probe(6)
    assert {name: tensor.shape[:2] for name, tensor in probe.items()} == {"tracks": (1, 6), "present": (1, 6)}


def test_without_validation_files_the_end_is_held_out(tmp_path):
    found = prepare("trajectories", train=(walks(tmp_path / "a.txt", steps=60),), **STEPS)
    assert found.facts()["validation windows"] == 5
    assert found.facts()["windows"] == 47
    same = prepare("trajectories", train=(str(tmp_path),), **STEPS)
    assert same.fingerprint() == found.fingerprint()


def test_a_model_sees_at_least_two_steps():
    with pytest.raises(ConfigError, match="observed: 1 must be at least 2, since a velocity needs two steps"):
        TrajectoriesConfig(train=("a.txt",), observed=1)


def test_recordings_that_are_too_short(tmp_path):
    alone = write(tmp_path / "a.txt", ["0 a 0 0", "10 b 1 1", "20 c 2 2"])  # every agent for one step only
    rule = r"a.txt: no agent is present for 5 consecutive steps both before .*, others with --valid, or lower task"
    with pytest.raises(InputError, match=rule):
        prepare("trajectories", train=(alone,), **STEPS)
    with pytest.raises(InputError, match=r"a.txt: no agent is present for 5 consecutive steps; give longer recordings"):
        prepare("trajectories", train=(walks(tmp_path / "b.txt"),), valid=(alone,), **STEPS)
    with pytest.raises(InputError, match="no agent is present"):
        TASKS["trajectories"](train=("b",), **STEPS).evaluation(None, [alone])
    with pytest.raises(ConfigError, match="train must name at least one file"):
        TASKS["trajectories"](train=())
    with pytest.raises(ConfigError, match="name a file with rows"):
        TASKS["trajectories"].from_files([], [])


def test_a_scene_of_one_agent_can_be_learned_and_measured(tmp_path):
    found = prepare("trajectories", train=(walks(tmp_path / "a.txt", agents=1),), **STEPS)
    model = model_for().train()
    losses, _ = found.loss(model, found.varied(Draw((3,), np.array([0, 1]))))
    losses.objective.backward()
    assert torch.isfinite(losses.objective)
    assert all(torch.isfinite(weight.grad).all() for weight in model.parameters() if weight.grad is not None)
    assert found.measure(model.eval())["ade"] > 0
