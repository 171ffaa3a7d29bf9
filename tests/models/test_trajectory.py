"""The model of trajectories: where a scene is and how it is rotated, who is seen, and what is forecast."""

from math import cos, pi, sin

import pytest
import torch

from regard.errors import ConfigError, InputError
from regard.models.recipe import build
from regard.models.trajectory import agent_frames, token_places, velocities

from ..laws.cases import SHRINK, Case, batch, call

CASE = Case("forecaster", "forecaster", tuple(SHRINK["forecaster"]))


def scene():
    data = batch(CASE)
    return data.tracks, data.present


@torch.no_grad()
def test_futures_move_with_the_scene():
    model, (tracks, present) = CASE.build(), scene()
    before, after = model(tracks, present), model(tracks + torch.tensor([3.0, -7.0]), present)
    torch.testing.assert_close(after.logits, before.logits)
    moved = before.paths + torch.tensor([3.0, -7.0])
    torch.testing.assert_close(after.paths[0], moved[0])


@torch.no_grad()
def test_the_future_of_an_agent_alone_starts_from_its_own_direction():
    """Rotating the scene changes only the features of the scene: without them the futures rotate with it."""
    model, (tracks, present) = CASE.build(), scene()
    model.motion.up.weight[:, 4:] = 0.0
    turn = torch.tensor([[cos(pi / 3), sin(pi / 3)], [-sin(pi / 3), cos(pi / 3)]], dtype=torch.float64)
    before, after = model(tracks[:1], present[:1]), model(tracks[:1] @ turn, present[:1])
    torch.testing.assert_close(after.paths, before.paths @ turn)
    torch.testing.assert_close(after.logits, before.logits)


def test_velocities_are_zero_where_a_step_is_missing():
    tracks = torch.tensor([[[[0.0, 0.0], [1.0, 2.0], [9.0, 9.0]], [[0.0, 0.0], [0.0, 0.0], [0.0, 0.0]]]])
    present = torch.tensor([[[True, True, False], [True, True, True]]])
    speeds = velocities(tracks, present)
    assert speeds[0, 0].tolist() == [[0, 0], [1, 2], [0, 0]]
    frame = agent_frames(tracks, speeds)
    torch.testing.assert_close(frame.direction[0, 0], torch.tensor([1.0, 2.0]) / 5**0.5)
    assert frame.direction[0, 1].tolist() == [1, 0]  # it does not move
    vectors = torch.randn(1, 2, 4, 2)
    torch.testing.assert_close(frame.leave(frame.enter(vectors)), vectors)
    ahead = frame.enter(torch.tensor([[[[1.0, 2.0]], [[1.0, 2.0]]]]))
    torch.testing.assert_close(ahead[0, 0, 0], torch.tensor([5**0.5, 0.0]))


def test_times_and_agents_of_tokens():
    present = torch.tensor([[[False, True, True], [True, True, False]]])
    times, agents = token_places(present)
    assert times.tolist() == [[-1, 1, 2, -1, -1, -1]]
    assert agents.tolist() == [[-1, 0, 0, -1, -1, -1]]


@torch.no_grad()
def test_an_agent_that_left_is_not_seen_and_one_that_stays_is():
    model, (tracks, present) = CASE.build(), scene()
    before = call(model, batch(CASE))
    tracks[1, 6:] += 5.0  # the third agent of the second row is absent
    torch.testing.assert_close(model(tracks, present).logits, before[..., -3:])
    tracks[0, 6:] += torch.tensor([[5.0, 0.0], [1.0, 1.0], [0.0, 2.0]])
    assert not torch.allclose(model(tracks, present).logits[0, 0], before[0, 0, -3:])


def test_steps_must_be_complete():
    model, (tracks, present) = CASE.build(), scene()
    with pytest.raises(InputError, match="8 steps are not a multiple of 3, the steps of each agent"):
        model(tracks[:, :8], present[:, :8])


def test_what_it_says_of_itself():
    model = CASE.build()
    assert (model.description, model.verbs, model.task, model.reads) == (
        "a model of trajectories",
        ("forecast",),
        "trajectories",
        "tracks",
    )
    assert [role.queries for role in model.attentions()] == ["steps", "steps"]


def test_one_observed_step_is_too_few():
    with pytest.raises(ConfigError, match=r"model\.observed: 1 must be at least 2, since a velocity needs two steps"):
        build("forecaster", "model.observed=1")


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        (["mixer.kind=gru", "mixer.bidirectional=true"], "mixer"),
        (["mixer.kind=conv"], "mixer"),
        (["feedforward.kind=channel-mix"], "feedforward"),
    ],
)
def test_only_attention_keeps_agents_apart(changes: list[str], part: str):
    """Other mixers would read on from one agent to the next, and into the padding of smaller scenes."""
    small = [change for change in SHRINK["forecaster"] if ".mixer." not in change or part != "mixer"]
    with pytest.raises(ConfigError, match=rf"^model\.layers\.block\.{part}: .* which only attention keeps apart; use"):
        build("forecaster", *small, *(f"model.layers.block.{change}" for change in changes))
